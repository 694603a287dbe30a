package turn

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// open asks the loop of the run for the first effect of the turn. If it returns neither an effect nor an error, the
// turn's transition is decided: by the loop, or because the agent is invalid and the run fails. acting is ctx until
// the run's deadline. The deadline does not end the loading of the agent, because only the agent's loop can end the
// run.
func (t *turn) open(ctx, acting context.Context) (first loop.Effect, err error) {
	k := t.taker
	if t.claim.Abort, err = k.orphaned(ctx, t.s, &t.claim); err != nil {
		return nil, err
	}
	began := t.claim.began(k.cfg.Clock.Now(), k.cfg.Worker, k.cfg.MaxAttempts)
	if t.s.Status == state.Queued || t.s.Status == state.Waiting {
		k.cfg.Effects.ShowStarted(&t.effects)
	}
	a, err := k.cfg.Agents.Of(ctx, t.s)
	if err == nil {
		t.loop, err = k.cfg.Agents.Loop(ctx, t.s)
	}
	if invalid, ok := errors.AsType[*definition.InvalidError](err); ok {
		t.failInvalid(invalid)
		return nil, nil
	}
	if err != nil {
		return nil, t.notLoaded(ctx, &effect.NotLoadedError{Err: err})
	}
	if err := t.checkpoint(ctx, a); err != nil {
		return nil, err
	}
	if began.Attempt > 1 {
		began.Spent = t.spentBefore(a, began)
	}
	if err := k.cfg.Effects.Probe(acting, &t.effects, a, &began); err != nil {
		return nil, err
	}
	return t.decide(began), nil
}

// failInvalid ends a run whose definition is invalid.
func (t *turn) failInvalid(err *definition.InvalidError) {
	t.become(loop.Fail(*t.s, t.taker.cfg.Clock.Now(), state.EndInvalidAgent, err.Error()).Next)
}

// decide asks the loop for the effect that follows an event; nil is the end of the turn.
func (t *turn) decide(ev loop.Event) loop.Effect {
	d := t.loop.Step(*t.s, ev)
	if d.Next == nil {
		panic(fmt.Sprintf("the loop's decision about %T has no next state: set Decision.Next", ev))
	}
	t.become(d.Next)
	return d.Effect
}

// perform carries out an effect, and lets the loop decide what follows. If the effect has left a result to the commit,
// perform journals that result, unless the turn commits next. If tools or hooks follow, it reserves memory for a large
// view; if not, it journals a response that post_sampling hooks wait for.
func (t *turn) perform(ctx context.Context, e loop.Effect) (loop.Effect, error) {
	ev, err := t.act(ctx, e)
	if err != nil {
		return nil, err
	}
	before := t.s
	next := t.decide(ev)
	if t.journal.held && (next != nil || !t.commitsNext()) {
		held, err := t.journal.Flush(ctx, before.Log)
		if err != nil {
			return nil, err
		}
		if held {
			t.become(before)
			next = t.decide(ev) // again: the store may have had no capacity for the result
		}
	}
	switch next.(type) {
	case loop.RunTools, loop.RunHooks: // they journal the response themselves
		return next, t.growView(ctx)
	default:
		return next, t.recordResponse(ctx)
	}
}

// commitsNext reports whether a turn that the loop has ended can commit at once: it does not end or
// interrupt the run, which may have child runs to abort, it has no notes of hooks to wait for and,
// if it is from a queue for noisy tenants, it may work now. If so, the turn counts as working.
func (t *turn) commitsNext() bool {
	return !t.dropsCalls() && !t.effects.AwaitsNotes() && t.load.TryWork()
}

// act carries out an effect and returns the event that continues the loop. Nothing starts after an
// abort was seen (I7). Its frame is small because turns wait in it: see cutShort for the rest.
func (t *turn) act(ctx context.Context, e loop.Effect) (loop.Event, error) {
	if ctx.Err() != nil {
		return t.cutShort(ctx, nil, loop.Aborted{}, nil)
	}
	ev, err := t.taker.cfg.Effects.Do(ctx, &t.effects, e)
	if _, cut := ev.(loop.Aborted); cut || err != nil {
		return t.cutShort(ctx, e, ev, err)
	}
	return ev, nil
}

// cutShort completes the event of an effect that was cut short; e is nil if it was not started. If the turn is
// about to be released, cutShort journals the cost of its model call. err is the error of the effect.
func (t *turn) cutShort(ctx context.Context, e loop.Effect, ev loop.Event, err error) (loop.Event, error) {
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

// LogGrown implements readers: it notifies the run's watchers and the event feed, and starts the hooks that
// wait for the response.
func (t *turn) LogGrown(ctx context.Context, from, length int64) {
	if from != length {
		t.taker.bus.NotifyAppended(t.s.Tenant, t.s.ID, from, length)
		if t.taker.cfg.Upkeep.Feed != nil {
			t.taker.cfg.Upkeep.Feed.Grown(t.s.Tenant, t.s.ID, length)
		}
	}
	t.taker.cfg.Effects.Recorded(ctx, &t.effects, state.Through(t.s.Log, length))
}
