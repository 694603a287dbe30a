package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// smallTurn is how many bytes of results a turn may have for the last of them to
	// be held for the commit. With more, the journal says whether they fit.
	smallTurn = 32 << 10
)

// outcome is what became of one call. Without a result it was cut short.
type outcome struct {
	call     state.OpenCall
	result   *loop.ToolResult
	panicked *timelimit.Panic // outside the tool itself: one of the turn
}

// runTools makes the calls of a turn: in batches, journaled, and each at most
// once unless its tool says that once more does no harm, or a probe that it came
// to nothing (I3, I4, A14).
func (t *turn) runTools(ctx context.Context, effect loop.RunTools) (loop.Event, error) {
	a, err := t.agent(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(effect.Calls))
	for i, c := range effect.Calls {
		names[i] = c.Name
	}
	batches := tool.Batches(names, func(name string) bool {
		spec := a.Tool(name)
		return spec != nil && spec.Concurrency == "serial"
	})

	if batches, err = t.reserveAnswers(ctx, a, effect.Calls, batches); err != nil {
		if ctx.Err() != nil {
			return t.interrupted(ctx, loop.Aborted{})
		}
		return nil, err
	}

	// The response and the start marks of the first batch are one write, and the
	// response is on its way to the watchers before its first tool starts.
	if err := t.journal.Starts(ctx, t.s.Log, t.marks(a, effect.Calls, batches[0])); err != nil {
		return nil, err
	}
	t.journal.results = nil
	var failed error
	started := false
	for b, batch := range batches {
		if ctx.Err() != nil {
			return t.interrupted(ctx, loop.Aborted{Started: started, Results: t.journal.results})
		}
		started = true
		results := make(chan outcome, len(batch))
		for _, i := range batch {
			c := effect.Calls[i]
			go func() { results <- t.runTool(ctx, a, c) }()
		}
		for n := range batch {
			o := <-results
			if o.panicked != nil {
				panic(o.panicked)
			}
			if o.result == nil {
				continue
			}
			t.keepResult(o.result, a.Tool(o.call.Name))
			t.journal.results = append(t.journal.results, *o.result)
			last := n == len(batch)-1
			var marks state.Record
			switch {
			case failed != nil && !errors.Is(failed, state.ErrFenced):
				continue // the store does not answer: the results are handed in together
			case failed == nil && last && b < len(batches)-1:
				marks = t.marks(a, effect.Calls, batches[b+1])
			case failed == nil && len(t.journal.results) == len(effect.Calls) && bytesOf(t.journal.results) <= smallTurn:
				t.journal.Hold()
				continue
			}
			over, err := t.journal.Result(ctx, t.s.Log, marks)
			if t.warnOver(over); err != nil && failed == nil {
				// The other calls of the batch may have returned, or do so soon.
				failed = err
				t.w.leases.Fence(t.lease)
			}
		}
		if failed != nil {
			return nil, failed
		}
	}
	if len(t.journal.results) < len(effect.Calls) {
		if ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %d of %d calls came back", errDrop, len(t.journal.results), len(effect.Calls))
		}
		return t.interrupted(ctx, loop.Aborted{Started: true, Results: t.journal.results})
	}
	return loop.ToolsFinished{At: t.w.clock.Now(), Results: t.journal.results}, nil
}

// marks returns what must be written before the calls of a batch start: the marks
// of those that may be started once only, what their probes need, and the waits of those whose result may
// come as a signal before the turn has ended.
func (t *turn) marks(a *agent.Agent, calls []state.OpenCall, batch []int) state.Record {
	var r state.Record
	for _, i := range batch {
		c := calls[i]
		spec := a.Tool(c.Name)
		if spec == nil {
			continue
		}
		if !spec.Idempotent {
			r.Started = append(r.Started, c.ID)
		}
		if s, ok := t.startOf(spec, c); ok {
			r.Starts = append(r.Starts, s)
		}
		if spec.Async {
			r.Awaits = append(r.Awaits, state.AwaitCall(state.NeedAsync, c.ID))
		}
	}
	return r
}

// warnOver logs that a result has become an error because the store had no capacity for it.
func (t *turn) warnOver(over error) {
	if over != nil {
		t.w.runLog(t.s.ID).Warn("result over the limit", "error", over, "hint", "make the tool return less at once; the model gets an error")
	}
}

// runTool makes one call and turns whatever happens into a result for the model
// (A7). The result is nil only if the turn was cut short.
func (t *turn) runTool(ctx context.Context, a *agent.Agent, c state.OpenCall) (o outcome) {
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			o = outcome{call: c, panicked: p}
		}
	}()
	ctx, traced := t.traceTool(ctx, a, c)
	defer func() { t.endTool(traced, o) }()
	began := time.Now()
	r, ok := t.call(ctx, a, c)
	if !ok {
		return outcome{call: c}
	}
	spec := a.Tool(c.Name)
	if spec != nil && r.Pending && !spec.Async {
		r = tool.Error(fmt.Sprintf("Tool %q answered that its result comes later, but it is not declared async", c.Name))
	}
	result := t.resultOf(spec, c, r, time.Since(began))
	return outcome{call: c, result: &result}
}

// resultOf is what a call has come to, within the bounds that results have. spec is nil if
// the agent does not have the tool.
func (t *turn) resultOf(spec *agent.CompiledTool, c state.OpenCall, r tool.Result, took time.Duration) loop.ToolResult {
	t.w.metrics.toolCalls.WithLabelValues(strconv.FormatBool(r.IsError)).Inc()
	images, omitted := tool.CheckImages(r.Images)
	return loop.ToolResult{
		CallID: c.ID, Name: c.Name, Content: tool.TruncateOf(r.Content, t.w.maxResult(spec), r.Bytes) + omitted, Images: images, IsError: r.IsError, Pending: r.Pending, Ask: r.Ask,
		Duration: took, At: t.w.clock.Now(),
	}
}

func (t *turn) call(ctx context.Context, a *agent.Agent, c state.OpenCall) (r tool.Result, made bool) {
	spec := a.Tool(c.Name)
	if spec == nil {
		return tool.Error("Unknown tool: " + c.Name), true
	}
	if err := spec.Validate(c.Arguments); err != nil {
		return tool.Error(err.Error()), true
	}
	if err := t.w.agents.Permitted(ctx, t.s.Tenant, spec.Needs); err != nil {
		return tool.Error(fmt.Sprintf("Tool %q was not called: %v", c.Name, err)), ctx.Err() == nil
	}
	timeout := spec.TimeLimit()
	started, probed := t.starts[c.ID]
	if !probed {
		started.ends, started.Key = time.Now().Add(timeout), t.keyOf(c, false)
	}
	callCtx, cancel := context.WithDeadline(ctx, started.ends)
	defer cancel()
	if probed && callCtx.Err() != nil && ctx.Err() == nil {
		return notCalled(c.Name, timeout), true // from its deadline on, probes are believed
	}

	live := t.liveEvent(state.LiveToolStarted)
	live.CallID, live.Name = c.ID, c.Name
	t.live(live)

	defer func() {
		switch p := recover().(type) {
		case nil:
		case *timelimit.Panic:
			t.w.runLog(t.s.ID).Error("tool panicked", "panic", p.Value, "tool", c.Name, "stack", string(p.Stack), "hint", "fix the tool; the model gets an error as its result")
			r, made = tool.Error(fmt.Sprintf("Tool %q failed: it panicked", c.Name)), true
		default:
			panic(p)
		}
	}()
	type outcome struct {
		result tool.Result
		err    error
	}
	kind, settings := t.w.cfg.Kinds[spec.Kind], spec.Bound(t.s.Tenant, t.w.agents.SecretOf(t.s.Tenant))
	call := tool.Call{
		Run: t.s.ID, ID: c.ID, Name: c.Name, Tenant: t.s.Tenant, Arguments: json.RawMessage(c.Arguments), Deadline: started.ends, TraceParent: span.Parent(ctx),
		IdempotencyKey: started.Key, Idempotent: spec.Idempotent, MaxResult: t.w.maxResult(spec), Grow: t.answers.Grow,
		Resume: resumeOf(c.AskState, c.Answer), Progress: t.progress(c),
	}
	if !spec.Idempotent {
		t.lease.Calls.Add(1)
		defer t.lease.Calls.Add(-1)
	}
	o, ok := timelimit.Call(callCtx, t.w.calls, timelimit.Straggle, func() (o outcome) {
		o.result, o.err = kind.Call(callCtx, settings, call)
		return o
	})
	switch {
	case ok && o.err == nil:
		return o.result, true
	case ctx.Err() != nil:
		return tool.Result{}, false
	case !ok || errors.Is(o.err, context.DeadlineExceeded):
		return tool.Error(fmt.Sprintf("Tool %q timed out after %s", c.Name, timeout)), true
	default:
		return tool.Error(o.err.Error()), true
	}
}

// resumeOf returns the answer with which a call goes on; nil if it is a new one.
func resumeOf(asked json.RawMessage, answer *string) *tool.Resume {
	if asked == nil || answer == nil {
		return nil
	}
	return &tool.Resume{State: asked, Answer: *answer}
}
