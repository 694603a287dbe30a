package turn

import (
	"context"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// recordSpent journals the cost of a model call that was cut short. The turn is about to be released, and the
// next attempt calls the model again.
func (t *turn) recordSpent(ctx context.Context, cut loop.Aborted) {
	next := loop.RecordFailedCalls(*t.s, t.taker.cfg.Clock.Now(), append(slices.Clip(cut.Lost), loop.Lost{Text: cut.Partial, Spent: cut.Spent}))
	t.become(&next)
	if t.s.LogLen() > t.journal.length {
		t.taker.debug(t.journal.Spent(ctx, t.s.Log), "note what a model call has cost")
	}
}

// spentBefore estimates the cost of model calls that earlier attempts may have made without journaling an answer,
// because their workers died or lost their leases. It counts one call for each earlier attempt. If one of them has
// journaled something, it counts only the last such attempt and those after it: that attempt has counted those before
// it. Each call has the size of the one with which this attempt would begin without the signals, the abort and the
// deadline that may have come since; if it would not begin with a model call, none counts.
func (t *turn) spentBefore(a *agent.Agent, began loop.TurnBegan) state.Usage {
	attempts := t.claim.Attempt
	known := 1 // the last attempt that has journaled something: it counted those before it
	for _, e := range state.After(t.s.Log, t.claim.Base) {
		known = max(known, e.Attempt)
	}
	if attempts <= known {
		return state.Usage{}
	}
	// Signals that arrived since those attempts began change what the loop does; so does the time.
	before, then := *t.s, loop.TurnBegan{At: began.At, Worker: began.Worker, Attempt: 1, Results: began.Results, Started: began.Started}
	before.Limits.DeadlineAt = state.Time{}
	then.Signals = slices.DeleteFunc(slices.Clone(began.Signals), func(s state.Signal) bool { return !s.Start })
	call, ok := t.loop.Step(before, then).Effect.(loop.CallModel)
	if !ok {
		return state.Usage{}
	}
	return t.taker.cfg.Effects.Lost(&t.effects, a, &call, int64(attempts-known))
}
