package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// settleRun announces what is left of a run that rests, and settles it.
func (w *Worker) settleRun(ctx context.Context, id state.RunID, announced int64) error {
	// The log first: what the run adds between the two reads must not be noted as
	// announced.
	entries, err := w.store.Log(ctx, id, announced, 0)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	s, err := w.store.Load(ctx, id)
	if err != nil {
		return fmt.Errorf("load run: %w", err)
	}
	if err := w.announce(ctx, id, entries); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	if s.Status != state.Waiting && !s.Status.Terminal() {
		return nil // it was woken meanwhile
	}
	return w.settle(ctx, s, announced+int64(len(entries)))
}

// settle does what follows when a run comes to rest: whoever waits for it is told,
// and the runs that it waits for are started. Every step may be repeated; the
// schedule lets go of the run when all are done, so a sweeper finishes what a
// crash interrupts.
func (w *Worker) settle(ctx context.Context, s state.State, announced int64) error {
	if s.Status == state.Waiting {
		if err := w.startChildren(ctx, s); err != nil {
			return fmt.Errorf("start child runs: %w", err)
		}
	}
	if s.Status.Terminal() {
		if err := w.park(ctx, s, announced); err != nil {
			return fmt.Errorf("dead letter: %w", err)
		}
		if err := w.tellParent(ctx, s); err != nil {
			return fmt.Errorf("tell parent run: %w", err)
		}
		if err := w.reply(ctx, s); err != nil {
			return fmt.Errorf("reply: %w", err)
		}
	}
	if err := w.releaseNext(ctx, s); err != nil {
		return fmt.Errorf("release next of batch: %w", err)
	}
	if err := w.store.Finalized(ctx, s.ID, announced); err != nil {
		return fmt.Errorf("note that the run was finalized: %w", err)
	}
	return nil
}

// park puts the message of a poisoned turn aside, with the cause.
func (w *Worker) park(ctx context.Context, s state.State, events int64) error {
	if s.Poison == nil {
		return nil
	}
	return w.bus.DeadLetter(ctx, bus.DeadLetter{
		Kind: bus.DeadPoisoned, Lane: s.Priority, Run: s.ID, Version: s.Version, Events: events, Attempts: s.Poison.Attempts,
		Cause: string(state.EndPoisoned) + ": " + s.Transition.Detail, At: s.UpdatedAt,
		Data: fmt.Sprintf(`{"run_id":%q,"version":%d}`, s.ID, s.Version-1),
	})
}

// startChildren starts the runs that answer the open calls of a waiting run. Their
// ids follow from the calls, so each is started once.
func (w *Worker) startChildren(ctx context.Context, s state.State) error {
	started := false
	for _, o := range s.Open {
		if o.Needs != state.NeedChild {
			continue
		}
		fresh, err := w.startChild(ctx, s, o)
		if err != nil {
			return err
		}
		started = started || fresh
	}
	if !started {
		return nil
	}
	// The run may have ended while this worker was paused between its commit and
	// here: then nobody else knows of these children.
	if now, err := w.store.Load(ctx, s.ID); err == nil && now.Status.Terminal() {
		return w.abortAll(ctx, s.Open)
	}
	return nil
}

// startChild starts one run, and reports whether it is new.
func (w *Worker) startChild(ctx context.Context, s state.State, o state.OpenCall) (bool, error) {
	parent, err := w.agents.get(ctx, s.Agent, s.AgentVersion)
	if err != nil {
		return false, err
	}
	spec := parent.Tool(o.Name)
	if spec == nil {
		return false, fmt.Errorf("agent %s has no tool %q", s.Agent, o.Name)
	}
	latest, err := w.store.Agent(ctx, spec.Agent, 0)
	if errors.Is(err, state.ErrNotFound) {
		return false, w.answerParent(ctx, s.ID, failedChild(o, "There is no agent %q", spec.Agent))
	}
	if err != nil {
		return false, err
	}
	a, err := w.agents.get(ctx, spec.Agent, latest.Version)
	var invalid *invalidAgentError
	if errors.As(err, &invalid) {
		return false, w.answerParent(ctx, s.ID, failedChild(o, "The agent %q cannot be started: %v", spec.Agent, invalid))
	}
	if err != nil {
		return false, err
	}
	run, err := loop.ChildRun(s, o, a)
	if err != nil {
		return false, err
	}
	ctx, submit := w.traceChild(ctx, run, o)
	defer submit.End()
	if parent := span.Parent(ctx); parent != "" {
		run.TraceSpan = parent
	}
	child, existing, err := w.store.Create(ctx, state.NewRun{State: run, Grace: w.cfg.Grace})
	if err != nil {
		return false, err
	}
	if child.Status.Terminal() {
		return false, w.tellParent(ctx, child) // again: a failover may have lost it
	}
	if child.Status == state.Queued && child.Version == run.Version {
		first := bus.Turn{Run: child.ID, Version: child.Version, Priority: child.Priority, Crowd: child.Crowded || w.tenants.crowd(child.Tenant), TraceParent: traceParent(ctx, child)}
		if err := w.bus.PublishTurn(ctx, first, turnID(first.Run, first.Version)); err != nil {
			return false, err
		}
	}
	return !existing, nil
}

// failedChild is what a run is told of a child that cannot be started.
func failedChild(o state.OpenCall, format string, args ...any) state.Signal {
	return state.Signal{
		ID:    "child:" + string(o.Child),
		Child: &state.ChildResult{CallID: o.ID, RunID: o.Child, Content: fmt.Sprintf(format, args...), IsError: true},
	}
}

// tellParent gives the outcome of a child run to the run that waits for it.
func (w *Worker) tellParent(ctx context.Context, s state.State) error {
	if s.Parent == nil {
		return nil
	}
	result := loop.ChildResult(s)
	result.Content = tool.Truncate(result.Content, w.cfg.ToolOutput)
	return w.answerParent(ctx, s.Parent.RunID, state.Signal{ID: "child:" + string(s.ID), Child: &result})
}

func (w *Worker) answerParent(ctx context.Context, parent state.RunID, sig state.Signal) error {
	sig.At = now()
	wake, err := w.store.Signal(ctx, parent, sig, w.cfg.Grace)
	var closed *state.NotWaitingError
	switch {
	case errors.As(err, &closed) || errors.Is(err, state.ErrNotFound):
		return nil // it ended, or was answered by an earlier end of this child
	case err != nil:
		return err
	case !wake.Publish:
		return nil
	}
	next := bus.Turn{Run: parent, Version: wake.Version, Priority: wake.Priority, Crowd: wake.Crowded, TraceParent: span.Parent(ctx)}
	return w.bus.PublishTurn(ctx, next, turnID(parent, wake.Version))
}

// abortChildren ends the runs that answered open calls of a run which ends: nobody
// waits for them any more (I7).
func (t *turn) abortChildren(ctx context.Context) error {
	if !t.s.Status.Terminal() {
		return nil
	}
	return t.w.abortAll(ctx, t.claim.Open)
}

func (w *Worker) abortAll(ctx context.Context, calls []state.OpenCall) error {
	for _, o := range calls {
		if o.Needs != state.NeedChild {
			continue
		}
		a := bus.Abort{Run: o.Child, Reason: "the run that waited for it has ended"}
		wake, err := w.store.Abort(ctx, a.Run, a.Reason, w.cfg.Grace)
		var ended *state.TerminalError
		switch {
		case errors.As(err, &ended) || errors.Is(err, state.ErrNotFound):
			continue
		case err != nil:
			return fmt.Errorf("abort child run %s: %w", o.Child, err)
		}
		if wake.Publish {
			msg := bus.Turn{Run: o.Child, Version: wake.Version, Priority: state.High}
			if err := w.bus.PublishTurn(ctx, msg, turnID(o.Child, wake.Version)+":abort"); err != nil {
				return fmt.Errorf("publish turn of child run: %w", err)
			}
		}
		a.Version = wake.Version
		if err := w.bus.PublishAbort(ctx, a); err != nil {
			return fmt.Errorf("publish abort of child run: %w", err)
		}
	}
	return nil
}
