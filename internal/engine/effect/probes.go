package effect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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
	// probeTries is the maximum number of calls of a probe that answers "unknown". probePause is the time
	// before the second call, and twice as long before the third.
	probeTries = 3
	probePause = 250 * time.Millisecond

	// maxArguments bounds the arguments that a start contains, in bytes. If a hook or an approver has edited a
	// call to more, no attempt could pass them to the probe, so the call has no start.
	maxArguments = 64 << 10
)

// PostponedError makes the worker release the turn for Delay. It wraps ErrRelease.
type PostponedError struct {
	Delay  time.Duration
	Reason string
}

func (e *PostponedError) Error() string { return fmt.Sprintf("%v: %s", ErrRelease, e.Reason) }

func (e *PostponedError) Unwrap() error { return ErrRelease }

// start is the start of a call whose tool has a probe.
type start struct {
	state.Start

	ends time.Time // Until, by the clock of this process
}

// startOf records the start of a call, for an attempt that may have to call the probe about it. It returns
// false if no attempt can.
func (ts *tools) startOf(t *Turn, spec *agent.CompiledTool, c state.OpenCall) (state.Start, bool) {
	if spec.ProbeTool == nil || c.Edited && len(c.Arguments) > maxArguments {
		return state.Start{}, false
	}
	refused, again := t.again[c.ID]
	limit := spec.TimeLimit()
	s := start{
		Start: state.Start{CallID: c.ID, Key: keyOf(t.Run, c, refused), Until: state.At(ts.clock.Now().Add(limit)), Again: again},
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

// probes finds the outcomes of calls that an earlier attempt has started.
type probes struct {
	*shared

	tools *tools
}

// lost is a call whose start an earlier attempt has journaled, but no result.
type lost struct {
	call  state.OpenCall
	start state.Start
	spec  *agent.CompiledTool
}

// lost returns the calls that have a probe.
func (ps *probes) lost(t *Turn, a *agent.Agent, started []string) []lost {
	var calls []lost
	for _, c := range t.Run.Open {
		s, known := t.Starts[c.ID]
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

// Probe calls the probes of calls that an earlier attempt has started, before the loop reads began, and updates began
// with their answers. A call that was executed gets its result. A call that was not executed, and cannot be executed
// any more, counts as never started, but only once: if it is lost again after it was started again, only the answer
// that it was executed counts. If a call was not executed, but its request may still arrive, the error is a
// *PostponedError, unless ctx has ended. All other outcomes stay unknown. Probe does nothing for a turn that is aborted
// or poisoned. Other errors wrap ErrRelease or ErrDrop.
func (p *Performer) Probe(ctx context.Context, t *Turn, a *agent.Agent, began *loop.TurnBegan) error {
	if len(t.Starts) == 0 || began.Abort != nil || began.Poisoned {
		return nil
	}
	ps := &p.probes
	calls := ps.lost(t, a, began.Started)
	found := make([]finding, len(calls))
	var asking sync.WaitGroup
	for i, l := range calls {
		asking.Go(func() { found[i] = ps.find(ctx, t, l) })
	}
	asking.Wait()
	if err := cutShort(ctx); err != nil {
		return err
	}
	var until state.Time
	for i, l := range calls {
		f := found[i]
		ps.observe(t, l, f)
		switch {
		case f.Outcome == tool.Done:
			r := ps.tools.resultOf(ctx, t, l.spec, l.call, f.Result, f.took)
			if err := t.Journal.Finding(ctx, t.Run.Log, &r); err != nil {
				return err
			}
			began.Results = append(began.Results, r)
		case f.Outcome == tool.NotDone && f.counts && !l.start.Again:
			if t.again == nil {
				t.again = map[string]bool{}
			}
			t.again[l.call.ID] = f.Refused
		case f.Outcome == tool.NotDone && !f.counts && !l.start.Again:
			if at := ps.over(l.start); at.After(until.Time) {
				until = at
			}
			continue
		default:
			continue
		}
		began.Started = slices.DeleteFunc(began.Started, func(id string) bool { return id == l.call.ID })
	}
	if !until.IsZero() && ctx.Err() == nil {
		return &PostponedError{
			max(until.Sub(ps.clock.Now().Time), ps.tools.cfg.ProbeRetry),
			fmt.Sprintf("the probe found a lost worker's call not executed, but the call may still arrive until %s; nothing to do, a worker asks the probe again then", until.Format(time.RFC3339)),
		}
	}
	return nil
}

// cutShort returns ErrRelease or an error that wraps ErrDrop if the cause that ended ctx also ends the attempt. It
// returns nil if ctx has not ended, or if an abort or the deadline has ended it: the loop then ends the run. For a
// message that interrupts the turn it returns ErrRelease: the next claim returns the message, and the worker calls
// the probes again.
func cutShort(ctx context.Context) error {
	var abort *upkeep.AbortError
	var interrupt *upkeep.InterruptError
	switch cause := context.Cause(ctx); {
	case cause == nil, errors.As(cause, &abort), errors.Is(cause, ErrDeadline):
		return nil
	case errors.Is(cause, ErrShutdown), errors.As(cause, &interrupt):
		return ErrRelease
	default:
		return fmt.Errorf("%w: %w", ErrDrop, cause)
	}
}

// over returns the earliest time, by the store's clock, at which no request of a call can take effect any more.
func (ps *probes) over(s state.Start) state.Time {
	return state.At(s.Until.Add(ps.tools.cfg.ProbeMargin))
}

// finding is the answer of a probe about a call.
type finding struct {
	tool.ProbeAnswer

	counts bool  // of NotDone: the call cannot be executed any more
	err    error // why the last call of the probe had no answer
	took   time.Duration
}

// find calls a probe until it has an answer, up to probeTries times.
func (ps *probes) find(ctx context.Context, t *Turn, l lost) (f finding) {
	began := time.Now()
	defer func() { f.took = time.Since(began) }()
	f.Outcome = tool.Unknown
	for try := range probeTries {
		if try > 0 && !clock.Pause(ctx, probePause<<(try-1)) || ctx.Err() != nil {
			break
		}
		asked := ps.clock.Now()
		if f.ProbeAnswer, f.err = ps.ask(ctx, t, l); f.Outcome != tool.Unknown {
			f.counts = f.Refused || !asked.Before(ps.over(l.start).Time)
			return f
		}
	}
	return f
}

// ask calls a probe once.
func (ps *probes) ask(ctx context.Context, t *Turn, l lost) (answer tool.ProbeAnswer, err error) {
	unknown := tool.ProbeAnswer{Outcome: tool.Unknown}
	probe := l.spec.ProbeTool
	ctx, traced := ps.spans.probe(ctx, t, l)
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			ps.log.Error("probe panicked", "run_id", t.Run.ID, "panic", p.Value, "tool", l.call.Name, "stack", string(p.Stack), "hint", "fix the probe's code; the model is informed that the call's outcome is unknown")
			answer, err = unknown, errors.New("the probe panicked: find the stack in the worker's log, and fix the probe's code")
		}
		if err != nil {
			span.Fail(traced, "probe_error")
		}
		traced.End()
	}()
	turn := ctx
	ctx, cancel := context.WithTimeout(ctx, l.spec.TimeLimit())
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := ps.agents.Permitted(ctx, t.Run.Tenant, probe.Needs); err != nil {
		return unknown, err
	}
	kind, settings := ps.tools.cfg.Kinds[probe.Kind], probe.Bound(t.Run.Tenant, ps.agents.SecretOf(t.Run.Tenant))
	call := tool.Call{
		Run: t.Run.ID, ID: l.call.ID, Name: probe.Name, Tenant: t.Run.Tenant, Arguments: json.RawMessage(l.call.Arguments), Deadline: deadline,
		TraceParent: span.Parent(ctx), IdempotencyKey: l.start.Key, Idempotent: true,
	}
	type answered struct {
		result tool.Result
		err    error
	}
	got, ok := timelimit.Call(ctx, ps.calls, timelimit.Straggle, func() (a answered) {
		a.result, a.err = kind.Call(ctx, settings, call)
		return a
	})
	switch {
	case turn.Err() != nil:
		return unknown, fmt.Errorf("the probe did not answer before the turn was cut short: %w", context.Cause(turn))
	case !ok || ctx.Err() != nil:
		return unknown, fmt.Errorf("the probe did not answer within %s, the timeout of its tool: make the probe faster, or raise that timeout", l.spec.TimeLimit())
	case got.err != nil:
		return unknown, got.err
	default:
		return tool.ReadProbe(got.result)
	}
}

// observe logs and counts the answer of a probe about a call.
func (ps *probes) observe(t *Turn, l lost, f finding) {
	ps.metrics.probes.WithLabelValues(string(f.Outcome)).Inc()
	if f.Outcome == tool.Unknown {
		ps.log.Warn("probe could not determine the outcome of a lost worker's call", "run_id", t.Run.ID, "error", f.err, "tool", l.call.Name, "call_id", l.call.ID, "hint", "find out whether the call had its effect, in the system that it changes. If there is an error, also repair the probe; without an error, the probe itself answered unknown. The model reads that the outcome is unknown")
		return
	}
	ps.log.Info("probe determined the outcome of a lost worker's call", "run_id", t.Run.ID, "tool", l.call.Name, "call_id", l.call.ID, "outcome", f.Outcome, "refused", f.Refused, "started_again_before", l.start.Again)
}
