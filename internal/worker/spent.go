package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// wasted is what a call has cost that failed: what the provider has told, and a guess at
// what it has not. A call that the provider refused has cost nothing.
func (c *modelCall) wasted(e *model.Error) state.Usage {
	u := c.resp.Usage
	told := u != (state.Usage{})
	if !told && !(c.sent && e.Served()) {
		return state.Usage{}
	}
	if !told || u.Estimated {
		if u.Estimated = true; u.InputTokens == 0 {
			u.InputTokens = estimateInput(c.req)
		}
		output := int64(max(e.Received, len(e.Partial)) / bytesPerToken)
		if c.blind || e.Class == model.Timeout {
			output = max(output, expectedAnswer(c.req, c.t.s.Log)) // it may have thought all the time
		}
		u.OutputTokens = max(u.OutputTokens, output) // of a total so far the rest is missing
	}
	u.ModelCalls = 1
	u.CostUSD = c.t.w.cfg.Prices.Cost(cmp.Or(c.resp.Model, c.req.Model), u)
	c.t.w.metrics.spent(u)
	return u
}

// said is the text of the last response that broke off. That of a summary nobody has seen.
func (c *modelCall) said() string {
	if c.last == nil || c.purpose != loop.ForTurn {
		return ""
	}
	return asModelError(c.last).Partial
}

// lose notes that the last call has failed and another one follows it, or the end.
func (c *modelCall) lose() {
	if l := (loop.Lost{Text: c.said(), Spent: c.spent}); l != (loop.Lost{}) {
		c.lost = append(c.lost, l)
	}
	c.last, c.spent = nil, state.Usage{}
}

// cutModel says what a model call means that was cut short. What it has cost is journaled if
// the turn is given up: whoever takes it up calls again.
func (t *turn) cutModel(ctx context.Context, ev loop.Aborted) (loop.Event, error) {
	cut, err := t.interrupted(ctx, ev)
	if !errors.Is(err, errRelease) {
		return cut, err
	}
	t.s = loop.RecordFailedCalls(t.s, t.w.clock.Now(), append(slices.Clip(ev.Lost), loop.Lost{Text: ev.Partial, Spent: ev.Spent}))
	if t.s.LogLen() > t.journal.length {
		t.w.check(t.journal.Spent(ctx, t.s.Log), "note what a model call has cost")
	}
	return nil, err
}

// spentBefore is what model calls of earlier attempts at the turn may have cost of which
// nothing was journaled: their workers died, or lost their leases, before an answer was
// written down. Each attempt counts as one call of the size that this one's would have.
func (t *turn) spentBefore(a *agent.Agent, began loop.TurnBegan) state.Usage {
	attempts := t.claim.Attempt
	known := 1 // the last attempt that has journaled something: it knew of those before it
	for _, e := range t.s.Log[t.claim.Base:] {
		known = max(known, e.Attempt)
	}
	if attempts <= known {
		return state.Usage{}
	}
	// What came in since they began changes what the loop does, and so does the time.
	before, then := t.s, loop.TurnBegan{At: began.At, Worker: began.Worker, Attempt: 1, Results: began.Results, Started: began.Started}
	before.Limits.DeadlineAt = state.Time{}
	then.Signals = slices.DeleteFunc(slices.Clone(began.Signals), func(s state.Signal) bool { return !s.Start })
	call, ok := t.loop.Step(before, then).Effect.(loop.CallModel)
	if !ok {
		return state.Usage{}
	}
	m := a.ModelAt(t.s.Fallback)
	if m == nil {
		m = &a.Model
	}
	req := model.Request{Model: m.Name, Messages: call.Messages, Tools: call.Tools, MaxOutputTokens: m.MaxOutputTokens}
	n := int64(attempts - known)
	u := state.Usage{InputTokens: n * estimateInput(req), OutputTokens: n * expectedAnswer(req, t.s.Log), ModelCalls: n, Estimated: true}
	u.CostUSD = t.w.cfg.Prices.Cost(m.Name, u)
	t.w.metrics.spent(u)
	return u
}
