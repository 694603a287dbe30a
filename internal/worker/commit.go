package worker

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

// commit ends the turn in the store. An unknown outcome is asked again with the
// same id until the lease is surely over.
func (t *turn) commit(ctx context.Context) (state.Committed, error) {
	t.sign()
	c := state.Commit{
		ID: t.lease.Token, State: t.s, From: t.journal.length, Consumed: len(t.claim.Signals), RequireInboxConsumed: true, RedeliveryDelay: t.w.cfg.RedeliveryDelay,
	}
	began := time.Now()
	if t.s.Status == state.Queued && t.w.hasSlot() && t.w.leases.ClaimsEagerly() {
		c.EagerClaim = t.w.random.Token()
		defer t.w.leases.Expect(t.s.ID)()
	}
	for {
		done, err := t.w.store.Commit(ctx, t.lease.Lease, c)
		if err == nil {
			t.observe(done)
			t.journal.Committed(ctx, t.s.Log)
			if done.Claimed {
				t.w.leases.NoteEager(state.Lease{Run: t.s.ID, Token: c.EagerClaim, Version: done.Version, Worker: t.w.cfg.ID}, began)
			}
			return done, nil
		}
		if errors.Is(err, state.ErrUnconsumedSignals) {
			if err := t.hear(ctx); err != nil {
				return state.Committed{}, err
			}
			c.State, c.Consumed = t.s, len(t.claim.Signals)
			continue
		}
		if final(err) || t.w.leases.Age(t.lease) > t.w.cfg.LeaseDuration || !clock.Pause(ctx, storePause) {
			return state.Committed{}, fmt.Errorf("%w: commit: %w", effect.ErrDrop, err)
		}
	}
}

// sign writes into the entry that ends the turn who has made it.
func (t *turn) sign() {
	t.journal.stamp(t.s.Log)
	last := &t.s.Log[len(t.s.Log)-1]
	last.Worker, last.Attempt, last.DurationMS = t.w.cfg.ID, t.claim.Attempt, time.Since(t.started).Milliseconds()
}

// hear takes what has come in for a run since its turn was claimed, before the turn ends it:
// what is said after run.finished is for the run that goes on then, and nothing before.
func (t *turn) hear(ctx context.Context) error {
	if t.s.Transition.Reason == state.EndExpired {
		return fmt.Errorf("%w: what the run waited for has come", effect.ErrRelease)
	}
	c, err := t.claimAgain(ctx)
	if err != nil {
		return err
	}
	late := c.Signals[min(len(t.claim.Signals), len(c.Signals)):]
	if len(late) == 0 {
		return fmt.Errorf("%w: the store knows of a signal, and does not show it", effect.ErrRelease)
	}
	t.claim.Signals = c.Signals
	t.s = loop.ApplyLateSignals(t.s, t.w.clock.Now(), late, c.Abort != nil)
	t.sign()
	return nil
}

// ack answers the message of a turn that is done.
func (t *turn) ack() error { return t.delivery.Ack() }

// leaveToSweeper ends a turn that was committed although what follows it could not be
// published. Its message stays, and so does the run in the schedule: one of them brings
// somebody who publishes it.
func (t *turn) leaveToSweeper(err error) error {
	t.gaveUp = err
	t.w.runLog(t.s.ID).Warn("what follows a turn was not published", "error", err, "hint", "check that NATS is reachable; the turn is committed, and the sweeper publishes its follow-up")
	return nil
}

// giveUp answers for a turn that cannot be ended here. One that this worker may no longer
// take is dropped: its message stays, and its run is as it was but for results that come
// late, which the store keeps if nobody has overtaken them (I8).
func (t *turn) giveUp(ctx context.Context, err error) error {
	t.gaveUp = err
	log := t.w.runLog(t.s.ID)
	if fenced := errors.Is(err, state.ErrFenced); fenced || t.journal.unsaved {
		t.handIn(ctx, fenced)
	}
	if !errors.Is(err, effect.ErrRelease) && !errors.Is(err, state.ErrFormat) {
		log.Warn("turn dropped", "error", err, "hint", "no action needed: another worker continues from the journal")
		return nil
	}
	delay := time.Duration(0)
	if p, ok := errors.AsType[*effect.PostponedError](err); ok {
		delay = p.Delay
	}
	if err := t.w.store.Release(context.WithoutCancel(ctx), t.lease.Lease, delay); err != nil {
		log.Warn("release failed", "error", err, "hint", "check that the store is reachable; the lease expires")
		return nil
	}
	log.Info("turn released", "error", err)
	if errors.Is(err, state.ErrFormat) {
		return t.delivery.Nak(t.w.cfg.SweepInterval) // else it would come back here as fast as it can
	}
	if delay > 0 {
		return t.delivery.Ack() // the sweeper publishes the turn again
	}
	return t.delivery.Nak(0)
}

// handIn gives the store the results of the calls of a turn that this worker has lost, and says
// that it was only paused or cut off. fenced says that the lease is known to be over. Otherwise
// the store has not answered, so handIn waits until it does, about as long as the results are of
// use.
func (t *turn) handIn(ctx context.Context, fenced bool) {
	err := t.journal.Late(ctx, t.w.cfg.LeaseDuration+max(0, t.w.cfg.LateResults))
	t.w.check(err, "hand in late results")
	if fenced || upkeep.LeaseOver(err) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.w.cfg.LeaseDuration)
		defer cancel()
		t.w.check(t.w.store.Release(ctx, t.lease.Lease, 0), "say that the worker was paused")
	}
}
