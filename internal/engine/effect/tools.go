package effect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Tools configures the calls of tools and probes.
type Tools struct {
	Kinds     tool.Kinds
	Output    int                // maximum bytes of a result of a tool without a max_result
	MaxResult int                // bounds the max_result of tools
	Answers   *admission.Answers // the memory for answers of all turns
	Files     Files              // nil: no result has a file

	// ProbeMargin after the deadline of a call, the answer "not done" of a probe is final. Until then the
	// worker postpones the turn, by at least ProbeRetry.
	ProbeMargin, ProbeRetry time.Duration

	Log logs
}

// logs is the part of a store that has the entries before the checkpoint of a log.
type logs interface {
	Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error)
}

// maxResults bounds the results of calls that only this worker has: if it dies, other workers make the calls of
// idempotent tools again.
const maxResults = 64

// tools calls tools.
type tools struct {
	*shared

	cfg     Tools
	leases  fencer
	unsaved *admission.Unsaved // results
}

// smallTurn is the maximum bytes of the results of a turn whose last result the commit may write. With more the
// journal writes it, which shows whether the results fit into the store.
const smallTurn = 32 << 10

// outcome is the outcome of one call. Without a result the call was cut short.
type outcome struct {
	call     state.OpenCall
	result   *loop.ToolResult
	panicked *timelimit.Panic // outside the tool itself: a mistake of this package
}

// run makes the calls of a turn in batches. It journals the start marks of each batch before the first call of the
// batch starts, and each result when it arrives; it may leave a small last result to the commit (Journal.Hold). In all
// attempts together each call starts at most once, unless its tool is idempotent or only reads the history, a probe has
// found that the call was not executed, or the call has only asked a person a question (I3, I4).
func (ts *tools) run(ctx context.Context, t *Turn, effect loop.RunTools) (loop.Event, error) {
	a, err := ts.agent(ctx, t)
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

	if batches, err = ts.reserve(ctx, t, a, effect.Calls, batches); err != nil {
		if ctx.Err() != nil {
			return loop.Aborted{}, nil
		}
		return nil, err
	}

	// One write has the response and the start marks of the first batch, so that the watchers of
	// the run get the response before its first tool starts.
	if err := t.Journal.Starts(ctx, t.Run.Log, ts.marks(t, a, effect.Calls, batches[0])); err != nil {
		return nil, err
	}
	var results []loop.ToolResult
	var failed error
	started := false
	for b, batch := range batches {
		t.results.Saved()
		t.results = ts.unsaved.Start(ctx, len(batch))
		if ctx.Err() != nil {
			return loop.Aborted{Started: started, Results: results}, nil
		}
		started = true
		returned := make(chan outcome, len(batch))
		for _, i := range batch {
			c := effect.Calls[i]
			go func() { returned <- ts.makeCall(ctx, t, a, c) }()
		}
		for n := range batch {
			o := <-returned
			if n == len(batch)-1 {
				t.results.Returned()
			}
			if o.panicked != nil {
				panic(o.panicked)
			}
			if o.result == nil {
				continue
			}
			results = ts.keep(t, results, *o.result, a.Tool(o.call.Name))
			last := n == len(batch)-1
			var marks state.Record
			switch {
			case failed != nil && !errors.Is(failed, state.ErrFenced):
				t.Journal.Keep(results) // the store does not answer
				continue
			case failed == nil && last && b < len(batches)-1:
				marks = ts.marks(t, a, effect.Calls, batches[b+1])
			case failed == nil && len(results) == len(effect.Calls) && BytesOf(results...) <= smallTurn:
				t.Journal.Hold(results)
				continue
			}
			if err := t.Journal.Result(ctx, t.Run.Log, results, marks); err != nil && failed == nil {
				// The other calls of the batch may have returned, or do so soon.
				failed = err
				ts.leases.Fence(t.Lease)
			}
		}
		if failed != nil {
			return nil, failed
		}
	}
	if len(results) < len(effect.Calls) {
		if ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %d of %d tool calls returned", ErrDrop, len(results), len(effect.Calls))
		}
		return loop.Aborted{Started: true, Results: results}, nil
	}
	return loop.ToolsFinished{At: ts.clock.Now(), Results: results}, nil
}

// marks returns what the journal must have before the calls of a batch start: the start marks of calls that may start
// only once, the data that probes need, and the waits of calls whose result may arrive as a signal before the turn has
// ended. The time limits of calls with probes begin with marks.
func (ts *tools) marks(t *Turn, a *agent.Agent, calls []state.OpenCall, batch []int) state.Record {
	var r state.Record
	for _, i := range batch {
		c := calls[i]
		spec := a.Tool(c.Name)
		if spec == nil {
			continue
		}
		if !spec.Idempotent && spec.By != tool.ByHistory {
			r.Started = append(r.Started, c.ID)
		}
		if s, ok := ts.startOf(t, spec, c); ok {
			r.Starts = append(r.Starts, s)
		}
		if spec.Async {
			r.Awaits = append(r.Awaits, state.AwaitCall(state.NeedAsync, c.ID))
		}
	}
	return r
}

// makeCall makes one call. Any outcome becomes a result for the model (A7); the result is nil only if
// the turn was cut short.
func (ts *tools) makeCall(ctx context.Context, t *Turn, a *agent.Agent, c state.OpenCall) (o outcome) {
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			o = outcome{call: c, panicked: p}
		}
	}()
	ctx, traced := ts.spans.tool(ctx, t, a, c)
	defer func() { ts.spans.endTool(traced, o) }()
	began := time.Now()
	spec := a.Tool(c.Name)
	if spec != nil && spec.By == tool.ByHistory {
		return ts.readAgain(ctx, t, spec, c)
	}
	r, ok := ts.call(ctx, t, a, c)
	if !ok {
		return outcome{call: c}
	}
	if spec != nil && r.Pending && !spec.Async {
		r = tool.Error(fmt.Sprintf("Tool %q deferred its result, but it is not declared async, so the result is lost and the call may have had an effect. Continue without it; the author of the agent must declare the tool async (async: true; for a tool in Go turnpike.Async), or make it return the result", c.Name))
	}
	result := ts.resultOf(ctx, t, spec, c, r, time.Since(began))
	return outcome{call: c, result: &result}
}

// readAgain answers a call that reads a result which is before the checkpoint of the log.
func (ts *tools) readAgain(ctx context.Context, t *Turn, spec *agent.CompiledTool, c state.OpenCall) outcome {
	began := time.Now()
	r, err := loop.ReadResult(t.Run.Log, c.Arguments, spec.MaxResult)
	if at, earlier := errors.AsType[*loop.EarlierError](err); earlier {
		var entries []state.Entry
		if entries, err = ts.cfg.Log.Log(ctx, t.Run.ID, at.Seq-1, 1); ctx.Err() != nil {
			return outcome{call: c}
		}
		if err == nil {
			r, err = loop.ReadResult(entries, c.Arguments, spec.MaxResult)
		} else {
			err = fmt.Errorf("the store did not return the earlier result (%w): call this tool again later", err)
		}
	}
	if err != nil {
		r = loop.ToolResult{Content: err.Error(), IsError: true}
	}
	r.CallID, r.Name, r.Duration, r.At = c.ID, c.Name, time.Since(began), ts.clock.Now()
	return outcome{call: c, result: &r}
}

// resultOf returns the result of a call, cut to the maximum size of a result. It makes the run refer to the
// files of the result. spec is nil if the agent does not have the tool.
func (ts *tools) resultOf(ctx context.Context, t *Turn, spec *agent.CompiledTool, c state.OpenCall, r tool.Result, took time.Duration) loop.ToolResult {
	ts.metrics.toolCalls.WithLabelValues(strconv.FormatBool(r.IsError)).Inc()
	images, omitted := tool.CheckImages(r.Images)
	var files []state.Part
	if len(r.Files) > 0 && !r.Pending && r.Ask == nil {
		var remark string
		files, remark = ts.settle(ctx, t, c.Name, r.Files)
		omitted += remark
	}
	return loop.ToolResult{
		CallID: c.ID, Name: c.Name, Content: tool.TruncateOf(r.Content, ts.maxResult(spec), r.Bytes) + omitted, Images: images, Files: files, IsError: r.IsError, Pending: r.Pending, Ask: r.Ask,
		Duration: took, At: ts.clock.Now(),
	}
}

// call makes one call within its time limit. made is false if the end of ctx cut the call short.
func (ts *tools) call(ctx context.Context, t *Turn, a *agent.Agent, c state.OpenCall) (r tool.Result, made bool) {
	spec := a.Tool(c.Name)
	if spec == nil {
		return tool.Error(fmt.Sprintf("Unknown tool: %s. Available tools: %s", c.Name, cmp.Or(strings.Join(a.ToolNames(), ", "), "none"))), true
	}
	if err := spec.Validate(c.Arguments); err != nil {
		return tool.Error(err.Error()), true
	}
	if err := ts.agents.Permitted(ctx, t.Run.Tenant, spec.Needs); err != nil {
		return tool.Error(fmt.Sprintf("Tool %q was not called: %v", c.Name, err)), ctx.Err() == nil
	}
	timeout := spec.TimeLimit()
	started, probed := t.starts[c.ID]
	if !probed {
		started.ends, started.Key = time.Now().Add(timeout), keyOf(t.Run, c, false)
	}
	callCtx, cancel := context.WithDeadline(ctx, started.ends)
	defer cancel()
	// From its deadline on, probes are believed. While a virtual machine is suspended, timers do not advance, but the
	// store's clock does.
	if over := callCtx.Err() != nil || !ts.clock.Now().Before(started.Until.Time); probed && over && ctx.Err() == nil {
		return notCalled(c.Name, timeout), true
	}

	live := ts.live.event(t, state.LiveToolStarted)
	live.CallID, live.Name = c.ID, c.Name
	ts.live.publish(t.Run.ID, live)

	defer func() {
		switch p := recover().(type) {
		case nil:
		case *timelimit.Panic:
			ts.log.Error("tool panicked", "run_id", t.Run.ID, "panic", p.Value, "tool", c.Name, "stack", string(p.Stack), "hint", "fix the tool's code; the model gets an error as its result")
			r, made = tool.Error(fmt.Sprintf("Tool %q failed: it panicked, and the call may have had an effect. Continue without its result; the worker's log has the stack", c.Name)), true
		default:
			panic(p)
		}
	}()
	type outcome struct {
		result tool.Result
		err    error
	}
	kind, settings := ts.cfg.Kinds[spec.Kind], spec.Bound(t.Run.Tenant, ts.agents.SecretOf(t.Run.Tenant))
	call := tool.Call{
		Run: t.Run.ID, ID: c.ID, Name: c.Name, Tenant: t.Run.Tenant, Agent: t.Run.Definition().Name, Metadata: t.Run.Metadata,
		Log: t.Run.Log, Arguments: json.RawMessage(c.Arguments), Deadline: started.ends, TraceParent: span.Parent(ctx),
		IdempotencyKey: started.Key, Idempotent: spec.Idempotent, MaxResult: ts.maxResult(spec), Grow: t.answers.Grow,
		Resume: resumeOf(c.AskState, c.Answer), Progress: ts.live.progress(t, c),
	}
	if !spec.Idempotent {
		t.Lease.Calls.Add(1)
		defer t.Lease.Calls.Add(-1)
	}
	o, ok := timelimit.Call(callCtx, ts.calls, timelimit.Straggle, func() (o outcome) {
		o.result, o.err = kind.Call(callCtx, settings, call)
		return o
	})
	switch {
	case ok && o.err == nil:
		return o.result, true
	case ctx.Err() != nil:
		return tool.Result{}, false
	case !ok || errors.Is(o.err, context.DeadlineExceeded) && !time.Now().Before(started.ends):
		return tool.Error(fmt.Sprintf("Tool %q timed out after %s, and the call may still have an effect. Check that before you repeat it", c.Name, timeout)), true
	default:
		return tool.Error(o.err.Error()), true
	}
}

// resumeOf returns the answer that a tool has asked for; nil for a new call.
func resumeOf(asked json.RawMessage, answer *string) *tool.Resume {
	if asked == nil || answer == nil {
		return nil
	}
	return &tool.Resume{State: asked, Answer: *answer}
}

// keyOf returns the idempotency key of a call: another one if a probe has refused the first.
func keyOf(s *state.State, c state.OpenCall, refused bool) string {
	id := c.ID
	if refused {
		id += " again"
	}
	return tool.IdempotencyKey(s.ID, s.Turn, id, c.Name, json.RawMessage(c.Arguments))
}

// notCalled is the result of a call that could not start within its time limit.
func notCalled(name string, limit time.Duration) tool.Result {
	return tool.Error(fmt.Sprintf("Tool %q was not called: its worker could not start the call within the timeout of %s. Call it again", name, limit))
}
