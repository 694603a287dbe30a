package turn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// untilDeadline ends ctx when the run's deadline has passed, if it has one.
func (k *Taker) untilDeadline(ctx context.Context, of state.Limits) (context.Context, context.CancelFunc) {
	if of.DeadlineAt.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, k.cfg.Clock.Local(of.DeadlineAt), effect.ErrDeadline)
}

// interrupted fills in the event of an effect that was cut short because ctx ended. An abort or the
// deadline ends the run through its loop, and a message continues it; any other cause is an error and
// ends the attempt.
func (t *turn) interrupted(ctx context.Context, ev loop.Aborted) (loop.Event, error) {
	cause := context.Cause(ctx)
	var abort *upkeep.AbortError
	var interrupt *upkeep.InterruptError
	switch {
	case errors.As(cause, &abort), errors.As(cause, &interrupt):
		c, late, err := t.lateSignals(ctx)
		if err != nil {
			return nil, err
		}
		ev.Signals = late
		switch {
		case c.Abort != nil: // takes precedence over the one that arrived on the bus
			ev.Cause, ev.Reason, ev.By = loop.ByUser, c.Abort.Reason, c.Abort.By
		case abort != nil:
			ev.Cause, ev.Reason, ev.By = loop.ByUser, abort.Abort.Reason, abort.Abort.By
		case slices.ContainsFunc(late, func(s state.Signal) bool { return s.Mode.Interrupts() }):
			ev.Cause = loop.ByMessage
		default:
			return nil, fmt.Errorf("%w: the store does not return the message that interrupted the turn: run `turnpike doctor` if this repeats; a worker retries the turn", effect.ErrRelease)
		}
	case errors.Is(cause, effect.ErrDeadline):
		ev.Cause, ev.Reason = loop.ByDeadline, "limit deadline"
	case errors.Is(cause, effect.ErrShutdown):
		return nil, effect.ErrRelease
	default:
		return nil, fmt.Errorf("%w: %w", effect.ErrDrop, cause)
	}
	ev.At = t.taker.cfg.Clock.Now()
	return ev, nil
}

// notLoaded returns the error of a turn whose agent cannot be loaded. It releases a turn that the deadline or a shutdown
// has ended, because only the agent's loop can end or continue the run. For the same reason it releases a turn that an
// abort or a message has ended, but only if claimAgain succeeds, so that this worker still has the claim. After an abort
// the next claim returns that abort, which then does not interrupt the attempt. notLoaded drops any other turn.
func (t *turn) notLoaded(ctx context.Context, err *effect.NotLoadedError) error {
	end := effect.ErrDrop
	if _, e := t.interrupted(ctx, loop.Aborted{}); e == nil || errors.Is(e, effect.ErrRelease) {
		end = effect.ErrRelease
	}
	return fmt.Errorf("%w: %w", end, err)
}

// lateSignals claims the turn again, and returns the claim with the signals that arrived during the turn,
// before the abort that ends it if there is one.
func (t *turn) lateSignals(ctx context.Context) (c *state.Claim, late []state.Signal, err error) {
	if c, err = t.taker.claimAgain(ctx, t.lease.Lease, 1); err != nil {
		return c, nil, err
	}
	late = c.Signals[min(len(t.claim.Signals), len(c.Signals)):]
	t.claim.Signals = c.Signals
	return c, late, nil
}

// claimAgain repeats the claim of a turn, even if ctx has ended, for up to half a lease. maxLog is
// state.ClaimRequest.MaxLogBytes. The error wraps effect.ErrDrop.
func (k *Taker) claimAgain(ctx context.Context, l state.Lease, maxLog int64) (*state.Claim, error) {
	lasts := k.cfg.Periods.Lease
	ctx, cancel := k.outlive(ctx, lasts/2)
	defer cancel()
	ask := state.ClaimRequest{
		Run: l.Run, Version: l.Version, Token: l.Token, Worker: k.cfg.Worker, Lease: lasts, RedeliveryDelay: k.cfg.Periods.RedeliveryDelay,
		MaxLogBytes: maxLog,
	}
	for {
		c, err := k.store.Claim(ctx, ask)
		switch {
		case err == nil && c.Outcome == state.Claimed:
			return c, nil
		case err == nil:
			return c, fmt.Errorf("%w: the run is %s", effect.ErrDrop, c.Outcome)
		case !clock.Pause(ctx, storePause):
			return c, fmt.Errorf("%w: claim again: %w", effect.ErrDrop, err)
		}
	}
}

// storePause is the time between attempts at a store that does not answer.
const storePause = 100 * time.Millisecond

// final reports whether a retry would return the same error.
func final(err error) bool {
	_, full := errors.AsType[*state.TooLargeError](err)
	_, gap := errors.AsType[*state.GapError](err)
	return full || gap || upkeep.LeaseOver(err) || errors.Is(err, state.ErrFormat)
}
