package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// untilDeadline ends ctx when the run's deadline has passed, if it has one.
func (t *turn) untilDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.s.Limits.DeadlineAt.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, t.w.clock.Local(t.s.Limits.DeadlineAt), effect.ErrDeadline)
}

// open asks the loop of the run for the first effect of the turn. Without an effect the loop has
// ended the turn.
func (t *turn) open(ctx context.Context) (first loop.Effect, err error) {
	if t.claim.Abort, err = t.orphaned(ctx); err != nil {
		return nil, err
	}
	began := t.began()
	if t.s.Status == state.Queued || t.s.Status == state.Waiting {
		t.w.effects.ShowStarted(&t.effects)
	}
	// Not on the executor: servers may have to be asked what the agent's tools are.
	a, err := t.w.agents.Get(ctx, t.s.Tenant, t.s.Agent, t.s.AgentVersion)
	if err == nil {
		t.loop, err = t.w.agents.Loop(ctx, t.s)
	}
	if invalid, ok := errors.AsType[*definition.InvalidError](err); ok {
		t.s = loop.Fail(t.s, t.w.clock.Now(), state.EndInvalidAgent, invalid.Error()).Next
		return nil, nil
	}
	if err != nil {
		return nil, t.notLoaded(ctx, &effect.NotLoadedError{Err: err})
	}
	if began.Attempt > 1 {
		t.w.executor.Run(func() { began.Spent = t.spentBefore(a, began) })
	}
	if err := t.w.effects.Probe(ctx, &t.effects, a, &began); err != nil {
		return nil, err
	}
	return t.decide(began), nil
}

// notLoaded returns the error with which a turn without its agent is given up. A turn that was aborted
// meanwhile is released, since only the agent's loop can end it: its next claim reports the abort, and
// nothing interrupts it then.
func (t *turn) notLoaded(ctx context.Context, err *effect.NotLoadedError) error {
	end := effect.ErrDrop
	if _, e := t.interrupted(ctx, loop.Aborted{}); e == nil || errors.Is(e, effect.ErrRelease) {
		end = effect.ErrRelease
	}
	return fmt.Errorf("%w: %w", end, err)
}

// decide asks the loop for the effect that follows an event; nil is the end of the turn.
func (t *turn) decide(ev loop.Event) (next loop.Effect) {
	t.w.executor.Run(func() {
		d := t.loop.Step(t.s, ev)
		t.s, next = d.Next, d.Effect
	})
	return next
}

// perform carries out an effect, and lets the loop decide what follows. It flushes a result that the
// effect has left to the commit, unless the commit is the next call of a port. It journals a response
// that hooks wait for.
func (t *turn) perform(ctx context.Context, e loop.Effect) (loop.Effect, error) {
	ev, err := t.act(ctx, e)
	if err != nil {
		return nil, err
	}
	before := t.s
	next := t.decide(ev)
	if next != nil || !t.commitsNext() {
		held, err := t.journal.Flush(ctx, before.Log)
		if err != nil {
			return nil, err
		}
		if held {
			t.s = before
			next = t.decide(ev) // again: the store may have had no capacity for the result
		}
	}
	switch next.(type) {
	case loop.RunTools, loop.RunHooks: // they journal the response themselves
		return next, nil
	default:
		return next, t.recordResponse(ctx)
	}
}

// commitsNext reports whether a turn that the loop has ended commits without a wait for notes of
// hooks, and without the abort of child runs before it.
func (t *turn) commitsNext() bool { return !t.s.Status.Terminal() && !t.effects.AwaitsNotes() }

// act carries out an effect and returns the event that continues the loop. Nothing starts after an
// abort was seen (I7).
func (t *turn) act(ctx context.Context, e loop.Effect) (loop.Event, error) {
	if ctx.Err() != nil {
		return t.interrupted(ctx, loop.Aborted{})
	}
	ev, err := t.w.effects.Do(ctx, &t.effects, e)
	if unloaded, ok := errors.AsType[*effect.NotLoadedError](err); ok {
		return nil, t.notLoaded(ctx, unloaded)
	}
	cut, ok := ev.(loop.Aborted)
	if !ok || err != nil {
		return ev, err
	}
	ev, err = t.interrupted(ctx, cut)
	if _, called := e.(loop.CallModel); called && errors.Is(err, effect.ErrRelease) {
		t.recordSpent(ctx, cut)
	}
	return ev, err
}

// began returns the event with which a turn begins, from its claim.
func (t *turn) began() loop.TurnBegan {
	began := loop.TurnBegan{
		At: t.w.clock.Now(), Worker: t.w.cfg.ID, Attempt: t.claim.Attempt, Signals: t.claim.Signals, Abort: t.claim.Abort,
		Poisoned: t.claim.Attempt-t.claim.Paused > t.w.cfg.MaxAttempts,
	}
	for _, id := range slices.Sorted(maps.Keys(t.claim.Journal.Results)) {
		e := t.claim.Journal.Results[id]
		began.Results = append(began.Results, loop.ToolResult{
			CallID: id, Name: e.Name, Content: contentOf(e), Images: e.Message.Parts[0].Images, IsError: e.IsError, Reused: e.Type == state.EntryReused,
			Duration: time.Duration(e.DurationMS) * time.Millisecond, At: e.At,
		})
	}
	for _, id := range slices.Sorted(maps.Keys(t.claim.Journal.Started)) {
		if _, done := t.claim.Journal.Results[id]; !done {
			began.Started = append(began.Started, id)
		}
	}
	return began
}

func contentOf(e state.Entry) string {
	if e.Message == nil || len(e.Message.Parts) == 0 {
		return ""
	}
	return e.Message.Parts[0].Content
}

// interrupted returns the event for the loop if an abort or the deadline has cut an effect short, or
// the error with which the turn is given up.
func (t *turn) interrupted(ctx context.Context, ev loop.Aborted) (_ loop.Event, err error) {
	cause := context.Cause(ctx)
	var abort *upkeep.AbortError
	switch {
	case errors.As(cause, &abort):
		said := abort.Abort
		if ev.Signals, err = t.lateSignals(ctx, &said); err != nil {
			return nil, err
		}
		ev.Cause, ev.Reason, ev.By = loop.ByUser, said.Reason, said.By
	case errors.Is(cause, effect.ErrDeadline):
		ev.Cause, ev.Reason = loop.ByDeadline, "limit deadline"
	case errors.Is(cause, effect.ErrShutdown):
		return nil, effect.ErrRelease
	default:
		return nil, fmt.Errorf("%w: %w", effect.ErrDrop, cause)
	}
	ev.At = t.w.clock.Now()
	return ev, nil
}

// lateSignals returns the signals that arrived during the turn, before the abort that ends it. The abort
// in the store replaces the one that arrived on the bus.
func (t *turn) lateSignals(ctx context.Context, abort *state.Abort) ([]state.Signal, error) {
	c, err := t.claimAgain(ctx)
	if err != nil {
		return nil, err
	}
	if c.Abort != nil {
		*abort = *c.Abort
	}
	late := c.Signals[min(len(t.claim.Signals), len(c.Signals)):]
	t.claim.Signals = c.Signals
	return late, nil
}

// claimAgain repeats the claim of the turn, even if ctx has ended.
func (t *turn) claimAgain(ctx context.Context) (state.Claim, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.w.cfg.LeaseDuration/2)
	defer cancel()
	ask := state.ClaimRequest{
		Run: t.s.ID, Version: t.lease.Version, Token: t.lease.Token, Worker: t.w.cfg.ID, Lease: t.w.cfg.LeaseDuration, RedeliveryDelay: t.w.cfg.RedeliveryDelay,
	}
	for {
		c, err := t.w.store.Claim(ctx, ask)
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
	return full || gap || upkeep.LeaseOver(err)
}

// recordResponse journals a response that post_sampling hooks wait for.
func (t *turn) recordResponse(ctx context.Context) error {
	if !t.effects.WaitsForRecord() {
		return nil
	}
	if ctx.Err() != nil {
		t.effects.Unwatch() // the turn was cut short
		return nil
	}
	found, err := t.journal.Facts(ctx, t.s.Log)
	if !found {
		t.effects.Unwatch()
	}
	return err
}

// logGrown implements readers: it notifies those of the bus, and the hooks that wait for the response.
func (t *turn) logGrown(ctx context.Context, from, length int64) {
	if from != length {
		t.w.bus.NotifyAppended(t.s.Tenant, t.s.ID, from, length)
		if t.w.feed != nil {
			t.w.feed.Grown(t.s.Tenant, t.s.ID, length)
		}
	}
	t.w.effects.Recorded(ctx, &t.effects, t.s.Log[:length])
}
