package turn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// commit ends the turn in the store. It repeats a commit with an unknown outcome, under the same id, until the
// lease has surely expired or ctx ends. It applies signals that have arrived late, and commits again. The error
// wraps effect.ErrDrop or effect.ErrRelease.
func (t *turn) commit(ctx context.Context) (state.Committed, error) {
	k := t.taker
	leases := k.cfg.Upkeep.Leases
	t.sign()
	c := state.Commit{
		ID: t.lease.Token, State: t.s, From: t.journal.length, Consumed: len(t.claim.Signals), RequireInboxConsumed: true, RedeliveryDelay: k.cfg.Periods.RedeliveryDelay,
	}
	c.Figures = state.EndFigures(t.s)
	began := time.Now()
	if t.s.Status == state.Queued && leases.ClaimsEagerly() {
		var claim bool
		if claim, t.sticky = k.cfg.Next(); claim {
			c.EagerClaim = k.cfg.Random.Token()
			defer leases.Expect(t.s.ID)()
		}
	}
	for {
		done, err := k.store.Commit(ctx, t.lease.Lease, c)
		if err == nil {
			k.observe(t, done)
			t.journal.Committed(ctx, t.s.Log)
			if done.Claimed {
				leases.NoteEager(upkeep.EagerClaim{
					Lease: state.Lease{Run: t.s.ID, Token: c.EagerClaim, Version: done.Version, Worker: k.cfg.Worker}, Sent: began, FinalizedSeq: t.claim.FinalizedSeq,
				})
			}
			return done, nil
		}
		if errors.Is(err, state.ErrUnconsumedSignals) {
			if err := t.applyLate(ctx); err != nil {
				return state.Committed{}, err
			}
			c.State, c.Consumed, c.Figures = t.s, len(t.claim.Signals), state.EndFigures(t.s)
			continue
		}
		if final(err) || leases.Age(t.lease) > k.cfg.Periods.Lease || !clock.Pause(ctx, storePause) {
			return state.Committed{}, fmt.Errorf("%w: commit: %w", effect.ErrDrop, err)
		}
	}
}

// sign records worker, attempt and duration in the turn's last entry, and the attempt in the other new entries.
func (t *turn) sign() {
	t.journal.stamp(t.s.Log)
	last := &t.s.Log[len(t.s.Log)-1]
	last.Worker, last.Attempt, last.DurationMS = t.taker.cfg.Worker, t.claim.Attempt, time.Since(t.started).Milliseconds()
}

// applyLate applies signals that arrived after the turn was claimed, before the turn ends the run;
// after an abort, only those from before it. The others continue the run after its end. If the run
// would end as expired, or the store does not return the signal that it counts, the error wraps
// effect.ErrRelease: the next attempt receives the signal. Other errors wrap effect.ErrDrop.
func (t *turn) applyLate(ctx context.Context) error {
	if t.s.Transition.Reason == state.EndExpired {
		return fmt.Errorf("%w: the signal that the run waited for arrived before the run expired; nothing to do, a worker continues with it", effect.ErrRelease)
	}
	c, err := t.taker.claimAgain(ctx, t.lease.Lease, 1)
	if err != nil {
		return err
	}
	late := c.Signals[min(len(t.claim.Signals), len(c.Signals)):]
	if len(late) == 0 {
		return fmt.Errorf("%w: the store counts a signal in the inbox, but does not return it: run `turnpike doctor` if this repeats; a worker retries the turn", effect.ErrRelease)
	}
	t.claim.Signals = c.Signals
	next := loop.ApplyLateSignals(*t.s, t.taker.cfg.Clock.Now(), late, c.Abort != nil)
	t.become(&next)
	t.sign()
	return nil
}

// leaveToSweeper gives up on the follow-up of a committed turn: the publication of the next turn, or the finalization
// of the run. The message is not acknowledged, and the run stays in the schedule, so a redelivery or the sweeper
// makes a worker repeat the follow-up.
func (t *turn) leaveToSweeper(err error) error {
	t.gaveUp = err
	t.taker.runLog(t.s.ID).Warn("turn committed, but publishing its next turn or finalizing its run failed; a worker retries that", "error", err, "hint", "nothing is lost. If this repeats, run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation; if the error says that something panicked, report the bug")
	return nil
}

// giveUp ends an attempt that cannot end its turn. With effect.ErrRelease or state.ErrFormat it releases the turn. With
// any other error it leaves the run and the message as they are: the lease expires, and the attempt counts unless
// handIn reports that the worker was only paused. Either way it may hand in late results, which the store keeps unless
// another worker has overtaken them (I8).
func (t *turn) giveUp(ctx context.Context, err error) error {
	t.gaveUp = err
	log := t.taker.runLog(t.s.ID)
	if fenced := errors.Is(err, state.ErrFenced); fenced || t.journal.unsaved {
		t.handIn(ctx, fenced)
	}
	if !errors.Is(err, effect.ErrRelease) && !errors.Is(err, state.ErrFormat) {
		log.Warn("turn dropped", "error", err, "hint", "a worker continues the turn from its journal once the lease has ended; only results that the store does not have are lost. If this repeats and the error does not say that the lease is lost, run `turnpike doctor`: the store may be unreachable or refuse the operation")
		return nil
	}
	delay := time.Duration(0)
	if p, ok := errors.AsType[*effect.PostponedError](err); ok {
		delay = p.Delay
	}
	ctx, cancel := t.taker.outlive(ctx, t.taker.cfg.Periods.Lease)
	defer cancel()
	if err := t.taker.store.Release(ctx, t.lease.Lease, delay); err != nil {
		log.Warn("lease of a turn not released; when it has expired, a worker continues the turn", "error", err, "hint", releaseHint)
		return nil
	}
	log.Info("turn released before its end; a worker continues it later", "error", err)
	if errors.Is(err, state.ErrFormat) {
		return t.delivery.Nak(t.taker.cfg.Periods.Sweep) // else it would come back here at once
	}
	if delay > 0 {
		return t.delivery.Ack() // the sweeper publishes the turn again
	}
	return t.delivery.Nak(0)
}

// releaseHint is the hint for a lease that was not released.
const releaseHint = "ignore this if the error says that the lease is lost; otherwise run `turnpike doctor`: the store may be unreachable or refuse the operation"

// handIn gives the store the results of the calls of a turn that this worker gives up, see Journal.Late, and waits for
// it, at most for a lease and LateResults. fenced reports that the turn ended because its lease is over, or may be. If
// so, or if the store says that the lease is over, handIn also calls Release, for at most another lease: the store then
// records that the worker was only paused or cut off, or ends the lease if it is still in force.
func (t *turn) handIn(ctx context.Context, fenced bool) {
	k := t.taker
	err := t.journal.Late(ctx, k.cfg.Periods.Lease+max(0, k.cfg.Periods.LateResults))
	k.debug(err, "hand in late results")
	if fenced || upkeep.LeaseOver(err) {
		ctx, cancel := k.outlive(ctx, k.cfg.Periods.Lease)
		defer cancel()
		k.debug(k.store.Release(ctx, t.lease.Lease, 0), "say that the worker was paused")
	}
}
