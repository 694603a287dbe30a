package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// probeTries is how often a probe is asked that cannot say, and probePause the time
	// before the second question; it doubles.
	probeTries = 3
	probePause = 250 * time.Millisecond

	// maxKept bounds the arguments that are kept with the start of a call. Of a call with
	// more that a hook has changed, nobody could tell the probe which they were.
	maxKept = 64 << 10
)

// start is the start of a call whose tool has a probe.
type start struct {
	state.Start

	ends time.Time // Until, by the clock of this process
}

// startOf notes the start of a call for whoever has to ask the probe about it; false if
// nobody can.
func (t *turn) startOf(spec *agent.CompiledTool, c state.OpenCall) (state.Start, bool) {
	if spec.ProbeTool == nil || c.Edited && len(c.Arguments) > maxKept {
		return state.Start{}, false
	}
	refused, again := t.again[c.ID]
	limit := spec.TimeLimit()
	s := start{
		Start: state.Start{CallID: c.ID, Key: t.keyOf(c, refused), Until: state.At(t.w.clock.Now().Add(limit)), Again: again},
		ends:  time.Now().Add(limit),
	}
	if c.Edited {
		s.Arguments = c.Arguments
	}
	if t.starts == nil {
		t.starts = map[string]start{}
	}
	t.starts[c.ID] = s
	return s.Start, true
}

// keyOf returns the idempotency key of a call. One whose key is refused has another.
func (t *turn) keyOf(c state.OpenCall, refused bool) string {
	id := c.ID
	if refused {
		id += " again"
	}
	return tool.IdempotencyKey(t.s.ID, t.s.Turn, id, c.Name, json.RawMessage(c.Arguments))
}

// lost is a call of which an earlier attempt has journaled the start and no result.
type lost struct {
	call  state.OpenCall
	start state.Start
	spec  *agent.CompiledTool
}

// lost returns the calls about which a probe can be asked.
func (t *turn) lost(a *agent.Agent, started []string) []lost {
	var calls []lost
	for _, c := range t.s.Open {
		s, known := t.claim.Journal.Starts[c.ID]
		spec := a.Tool(c.Name)
		if !known || !slices.Contains(started, c.ID) || spec == nil || spec.ProbeTool == nil {
			continue
		}
		if s.Arguments != "" {
			c.Arguments = s.Arguments
		}
		calls = append(calls, lost{c, s, spec})
	}
	return calls
}

// settle asks probes what became of the calls that an earlier attempt has started, before
// the loop hears of them. What was done gets its result, and what was not and cannot be any
// more is as if it had never been started, once. While it still can be, the turn is put off.
// Of all others the outcome stays unknown.
func (t *turn) settle(ctx context.Context, a *agent.Agent, began *loop.TurnBegan) error {
	if len(t.claim.Journal.Starts) == 0 || began.Abort != nil || began.Poisoned {
		return nil
	}
	calls := t.lost(a, began.Started)
	found := make([]finding, len(calls))
	var asking sync.WaitGroup
	for i, l := range calls {
		asking.Go(func() { found[i] = t.find(ctx, l) })
	}
	asking.Wait()
	if err := cutShort(ctx); err != nil {
		return err
	}
	var until state.Time
	for i, l := range calls {
		f := found[i]
		t.observeProbe(l, f)
		switch {
		case f.Outcome == tool.Done:
			r := t.resultOf(l.spec, l.call, f.Result, f.took)
			over, err := t.journal.Finding(ctx, t.s.Log, &r)
			if t.warnOver(over); err != nil {
				return err
			}
			began.Results = append(began.Results, r)
		case f.Outcome == tool.NotDone && f.counts && !l.start.Again:
			if t.again == nil {
				t.again = map[string]bool{}
			}
			t.again[l.call.ID] = f.Refused
		case f.Outcome == tool.NotDone && !f.counts && !l.start.Again:
			if at := t.over(l.start); at.After(until.Time) {
				until = at
			}
			continue
		default:
			continue
		}
		began.Started = slices.DeleteFunc(began.Started, func(id string) bool { return id == l.call.ID })
	}
	if !until.IsZero() && ctx.Err() == nil {
		t.putOff = max(until.Sub(t.w.clock.Now().Time), t.w.cfg.SweepInterval)
		return fmt.Errorf("%w: a call that was not done may still be done until %s", errRelease, until.Format(time.RFC3339))
	}
	return nil
}

// cutShort returns why a turn must not go on to the loop although its context has ended; nil
// if the loop has to end the run.
func cutShort(ctx context.Context) error {
	var abort *upkeep.AbortError
	switch cause := context.Cause(ctx); {
	case cause == nil, errors.As(cause, &abort), errors.Is(cause, errDeadline):
		return nil
	case errors.Is(cause, errShutdown):
		return errRelease
	default:
		return fmt.Errorf("%w: %w", errDrop, cause)
	}
}

// over is when a request of a call can do nothing any more.
func (t *turn) over(s state.Start) state.Time {
	return state.At(s.Until.Add(t.w.cfg.ProbeMargin))
}

// finding is what a probe has said of a call.
type finding struct {
	tool.ProbeAnswer

	counts bool  // of NotDone: the call cannot be done any more
	err    error // why the last question had no answer
	took   time.Duration
}

// find asks a probe until it has an answer, a few times.
func (t *turn) find(ctx context.Context, l lost) (f finding) {
	began := time.Now()
	defer func() { f.took = time.Since(began) }()
	f.Outcome = tool.Unknown
	for try := range probeTries {
		if try > 0 && !clock.Pause(ctx, probePause<<(try-1)) || ctx.Err() != nil {
			break
		}
		asked := t.w.clock.Now()
		if f.ProbeAnswer, f.err = t.ask(ctx, l); f.Outcome != tool.Unknown {
			f.counts = f.Refused || !asked.Before(t.over(l.start).Time)
			return f
		}
	}
	return f
}

var errProbeLate = errors.New("it did not answer within the time limit of the tool")

// ask asks a probe once.
func (t *turn) ask(ctx context.Context, l lost) (answer tool.ProbeAnswer, err error) {
	unknown := tool.ProbeAnswer{Outcome: tool.Unknown}
	probe := l.spec.ProbeTool
	ctx, traced := t.traceProbe(ctx, l)
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			t.w.runLog(t.s.ID).Error("probe panicked", "panic", p.Value, "tool", l.call.Name, "stack", string(p.Stack), "hint", "fix the probe; the outcome of the call stays unknown")
			answer, err = unknown, errors.New("it panicked")
		}
		if err != nil {
			span.Fail(traced, "probe_error")
		}
		traced.End()
	}()
	ctx, cancel := context.WithTimeout(ctx, l.spec.TimeLimit())
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := t.w.agents.Permitted(ctx, t.s.Tenant, probe.Needs); err != nil {
		return unknown, err
	}
	kind, settings := t.w.cfg.Kinds[probe.Kind], probe.Bound(t.s.Tenant, t.w.agents.SecretOf(t.s.Tenant))
	call := tool.Call{
		Run: t.s.ID, ID: l.call.ID, Name: probe.Name, Tenant: t.s.Tenant, Arguments: json.RawMessage(l.call.Arguments), Deadline: deadline,
		TraceParent: span.Parent(ctx), IdempotencyKey: l.start.Key, Idempotent: true,
	}
	type answered struct {
		result tool.Result
		err    error
	}
	got, ok := timelimit.Call(ctx, t.w.calls, timelimit.Straggle, func() (a answered) {
		a.result, a.err = kind.Call(ctx, settings, call)
		return a
	})
	switch {
	case !ok || ctx.Err() != nil:
		return unknown, errProbeLate
	case got.err != nil:
		return unknown, got.err
	default:
		return tool.ReadProbe(got.result)
	}
}

// observeProbe writes the line and the figure of a call about which a probe was asked.
func (t *turn) observeProbe(l lost, f finding) {
	t.w.metrics.probes.WithLabelValues(string(f.Outcome)).Inc()
	if f.Outcome == tool.Unknown {
		t.w.runLog(t.s.ID).Warn("probe could not say what became of a call", "error", f.err, "tool", l.call.Name, "call_id", l.call.ID, "hint", "check the probe; the model learns that the outcome is unknown")
		return
	}
	t.w.runLog(t.s.ID).Info("probe said what became of a call", "tool", l.call.Name, "call_id", l.call.ID, "outcome", f.Outcome, "refused", f.Refused, "started_again_before", l.start.Again)
}

// traceProbe starts the span of a question.
func (t *turn) traceProbe(ctx context.Context, l lost) (context.Context, trace.Span) {
	if t.w.tracer == nil {
		return ctx, noop.Span{}
	}
	return t.w.tracer.Start(ctx, "execute_tool "+l.spec.ProbeTool.Name, trace.WithAttributes(
		span.OperationName.String("execute_tool"), span.ToolName.String(l.spec.ProbeTool.Name), span.ToolType.String("function"), span.ToolCallID.String(l.call.ID),
		span.ConversationID.String(string(t.s.ID)), span.AgentName.String(t.s.Agent),
	))
}

// notCalled is the result of a call that could not begin within its time.
func notCalled(name string, limit time.Duration) tool.Result {
	return tool.Error(fmt.Sprintf("Tool %q timed out after %s: its worker stood still before the call", name, limit))
}
