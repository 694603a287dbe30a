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
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A turn that must be given up without touching anything (I8), and one that is
// released.
var (
	errDrop    = errors.New("turn dropped")
	errRelease = errors.New("turn released")
)

// errDeadline is the cause with which the run's deadline ends a turn's context.
var errDeadline = errors.New("run deadline has passed")

// untilDeadline ends ctx when the run's deadline has passed, if it has one.
func (t *turn) untilDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.s.Limits.DeadlineAt.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, t.w.clock.Local(t.s.Limits.DeadlineAt), errDeadline)
}

// open asks the loop of the run how the turn begins. Without an effect the turn has come
// to its end already.
func (t *turn) open(ctx context.Context) (first loop.Effect, err error) {
	if t.claim.Abort, err = t.orphaned(ctx); err != nil {
		return nil, err
	}
	began := t.began()
	if t.s.Status == state.Queued || t.s.Status == state.Waiting {
		t.live(t.liveEvent(state.LiveTurnStarted))
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
		return nil, t.notLoaded(ctx, err)
	}
	if began.Attempt > 1 {
		t.w.executor.Run(func() { began.Spent = t.spentBefore(a, began) })
	}
	if err := t.settle(ctx, a, &began); err != nil {
		return nil, err
	}
	return t.decide(began), nil
}

// notLoaded says what it means that the agent could not be had. A turn that was aborted
// meanwhile is released, since only the agent's loop can end it: its next claim tells of
// the abort, and nothing interrupts it then.
func (t *turn) notLoaded(ctx context.Context, err error) error {
	end := errDrop
	if _, e := t.interrupted(ctx, loop.Aborted{}); e == nil || errors.Is(e, errRelease) {
		end = errRelease
	}
	return fmt.Errorf("%w: load agent: %w", end, err)
}

// decide asks the loop what follows an event; nil is the end of the turn.
func (t *turn) decide(ev loop.Event) (effect loop.Effect) {
	t.w.executor.Run(func() {
		d := t.loop.Step(t.s, ev)
		t.s, effect = d.Next, d.Effect
	})
	return effect
}

// perform performs an effect, and lets the loop decide what follows. A result that act has left
// to the commit is flushed first, unless the commit is the next call of a port. So is a response
// that hooks wait for.
func (t *turn) perform(ctx context.Context, effect loop.Effect) (loop.Effect, error) {
	ev, err := t.act(ctx, effect)
	if err != nil {
		return nil, err
	}
	before := t.s
	next := t.decide(ev)
	if next != nil || !t.commitsNext() {
		held, over, err := t.journal.Flush(ctx, before.Log)
		if t.warnOver(over); err != nil {
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
func (t *turn) commitsNext() bool { return !t.s.Status.Terminal() && !t.awaitsNotes() }

// act performs an effect and returns what came of it. A response is journaled with the start
// marks of what follows from it, before that starts, and results as they come. The last one of
// a small turn is left to perform.
func (t *turn) act(ctx context.Context, effect loop.Effect) (ev loop.Event, err error) {
	if ctx.Err() != nil {
		// Nothing starts after the abort was seen (I7).
		return t.interrupted(ctx, loop.Aborted{})
	}
	switch effect := effect.(type) {
	case loop.CallModel:
		if ev, err = t.callModel(ctx, &effect); err == nil {
			err = t.observeModel(ctx, ev)
		}
		return ev, err
	case loop.RunTools:
		return t.runTools(ctx, effect)
	case loop.RunHooks:
		return t.runHooks(ctx, effect)
	case loop.GiveUp:
		return nil, effect.Err
	default:
		return nil, fmt.Errorf("%w: unknown effect %T", errDrop, effect)
	}
}

// began is the event with which a turn begins: what the claim has found.
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

// interrupted says what an effect that was cut short means: an event for the loop
// (an abort, the deadline), or that the turn is given up.
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
	case errors.Is(cause, errDeadline):
		ev.Cause, ev.Reason = loop.ByDeadline, "limit deadline"
	case errors.Is(cause, errShutdown):
		return nil, errRelease
	default:
		return nil, fmt.Errorf("%w: %w", errDrop, cause)
	}
	ev.At = t.w.clock.Now()
	return ev, nil
}

// lateSignals returns what came in for the run during its turn, before the abort that ends
// it. What the store knows of the abort counts more than what was said of it on the bus.
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

// claimAgain repeats the claim of the turn, whatever has become of ctx, and returns what it
// says now.
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
			return c, fmt.Errorf("%w: the run is %s", errDrop, c.Outcome)
		case !clock.Pause(ctx, storePause):
			return c, fmt.Errorf("%w: claim again: %w", errDrop, err)
		}
	}
}

// storePause is the time between attempts at a store that does not answer.
const storePause = 100 * time.Millisecond

// final reports whether the store will say the same again.
func final(err error) bool {
	_, full := errors.AsType[*state.TooLargeError](err)
	_, gap := errors.AsType[*state.GapError](err)
	return full || gap || upkeep.LeaseOver(err)
}

// recordResponse journals a response that post_sampling hooks wait for.
func (t *turn) recordResponse(ctx context.Context) error {
	if t.watchers == nil {
		return nil
	}
	if ctx.Err() != nil {
		t.watchers = nil // the turn was cut short
		return nil
	}
	found, err := t.journal.Facts(ctx, t.s.Log)
	if !found {
		t.watchers = nil
	}
	return err
}

// logGrown implements readers: it notifies those of the bus, and calls the hooks that wait for
// the response.
func (t *turn) logGrown(ctx context.Context, from, length int64) {
	if from != length {
		t.w.bus.NotifyAppended(t.s.Tenant, t.s.ID, from, length)
		if t.w.feed != nil {
			t.w.feed.Grown(t.s.Tenant, t.s.ID, length)
		}
	}
	t.showResponse(ctx)
}
