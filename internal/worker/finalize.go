package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// finalize does what follows when the turn has brought its run to rest.
func (t *turn) finalize(ctx context.Context) error {
	// Again: a worker that was only paused may have started a child meanwhile.
	if err := t.abortChildren(ctx); err != nil {
		return err
	}
	return t.w.finalize(ctx, t.s, t.s.LogLen(), t.startedBefore())
}

// startedBefore returns the calls whose child runs an earlier rest of the run has started: all
// that were open then, if it was finalized. A turn that begins with one result of many leaves
// the other children alone. If the store loses them, the sweeper finds that.
func (t *turn) startedBefore() []state.OpenCall {
	if t.claim.FinalizedSeq < t.claim.Base {
		return nil
	}
	return t.claim.Open
}

// finalizeRun finalizes a run on behalf of the worker that has brought it to rest. done
// is how many entries of its log are known to be finalized.
func (w *Worker) finalizeRun(ctx context.Context, id state.RunID, done int64) error {
	// The log first: what the run adds between the two reads must not be noted as
	// finalized.
	entries, err := w.store.Log(ctx, id, done, 0)
	if errors.Is(err, state.ErrDeleted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	s, err := w.store.Load(ctx, id)
	if errors.Is(err, state.ErrDeleted) {
		return nil // since its log was read
	}
	if err != nil {
		return fmt.Errorf("load run: %w", err)
	}
	if s.Status != state.Waiting && !s.Status.Terminal() {
		return nil // it was woken meanwhile
	}
	var started []state.OpenCall
	if s.Status == state.Waiting && done > 0 && len(entries) == 0 {
		started = s.Open // this rest was finalized before, so all its children were created
		if err := w.findChildren(ctx, s); err != nil {
			return fmt.Errorf("find child runs: %w", err)
		}
	}
	return w.finalize(ctx, s, done+int64(len(entries)), started)
}

// finalize does what follows when a run comes to rest with so many entries in its log:
// the runs that it waits for are started, whoever waits for it gets its answer, and the feed
// gets the rest of its events. Every step may be repeated. The schedule lets go of the run when
// all are done, so a sweeper finishes what a crash interrupts.
// started are the calls whose child runs were started before.
func (w *Worker) finalize(ctx context.Context, s state.State, entries int64, started []state.OpenCall) error {
	if s.Status == state.Waiting {
		if err := w.startChildren(ctx, s, started); err != nil {
			return fmt.Errorf("start child runs: %w", err)
		}
	}
	if s.Status.Terminal() {
		if err := w.bury(ctx, s, entries); err != nil {
			return fmt.Errorf("dead letter: %w", err)
		}
		if err := w.answerParent(ctx, s); err != nil {
			return fmt.Errorf("answer parent run: %w", err)
		}
		if err := w.reply(ctx, s); err != nil {
			return fmt.Errorf("reply: %w", err)
		}
	}
	if err := w.startNext(ctx, s); err != nil {
		return fmt.Errorf("start next of batch: %w", err)
	}
	if w.feed != nil { // the last: runs get on whatever becomes of the feed
		if err := w.feed.flush(ctx, s.Tenant, s.ID, entries); err != nil {
			return fmt.Errorf("event feed: %w", err)
		}
	}
	if err := w.store.MarkFinalized(ctx, s.ID, entries); err != nil && !errors.Is(err, state.ErrDeleted) {
		return fmt.Errorf("note that the run is finalized: %w", err)
	}
	return nil
}

// reply sends the finished run to the subject that its submitter named.
func (w *Worker) reply(ctx context.Context, s state.State) error {
	if s.ReplyTo == "" || !s.Status.Terminal() {
		return nil
	}
	data, err := json.Marshal(api.RunOf(s, w.clock.now().Time))
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	return w.bus.Reply(ctx, s.Tenant, s.ReplyTo, data)
}

// bury dead-letters the last turn of a run that only a replay can continue, with the cause.
func (w *Worker) bury(ctx context.Context, s state.State, events int64) error {
	if s.Poison == nil {
		return nil
	}
	kind := bus.DeadPoisoned
	if s.Transition.Reason == state.EndStopHookFailed {
		kind = bus.DeadStopHook
	}
	if err := w.bus.DeadLetter(ctx, bus.DeadLetter{
		Kind: kind, Tenant: s.Tenant, Lane: s.Priority, Run: s.ID, Version: s.Version, Events: events, Attempts: s.Poison.Attempts,
		Cause: string(s.Transition.Reason) + ": " + s.Transition.Detail, At: s.UpdatedAt,
		Data: fmt.Sprintf(`{"run_id":%q,"version":%d}`, s.ID, s.Version-1),
	}); err != nil {
		return err
	}
	if _, err := w.store.Load(ctx, s.ID); errors.Is(err, state.ErrDeleted) {
		return w.bus.PurgeRun(ctx, s.Tenant, s.ID, true) // the deletion has removed dead letters before
	}
	return nil
}

// root returns the run at the top of a run's tree, as far as the store has it.
func (w *Worker) root(ctx context.Context, s state.State) (state.State, error) {
	for s.Parent != nil {
		parent, err := w.store.Load(ctx, s.Parent.RunID)
		if errors.Is(err, state.ErrNotFound) {
			break
		}
		if err != nil {
			return state.State{}, fmt.Errorf("load run above %s: %w", s.ID, err)
		}
		s = parent
	}
	return s, nil
}

// parentEnded is why the children of a run are aborted that ends.
const parentEnded = "the run that waited for it has ended"

// orphaned returns the abort of a run that begins although the one which waited for it
// has ended. Whoever ended that found nothing to abort if the worker that was to start
// this one slept meanwhile.
func (t *turn) orphaned(ctx context.Context) (*state.Abort, error) {
	if t.s.Parent == nil || t.claim.Version != 1 || t.claim.Abort != nil {
		return t.claim.Abort, nil
	}
	parent, err := t.w.store.Load(ctx, t.s.Parent.RunID)
	switch {
	case errors.Is(err, state.ErrDeleted):
		return &state.Abort{Reason: parentEnded}, nil // it had ended
	case errors.Is(err, state.ErrNotFound):
		return nil, nil //nolint:nilnil // the store has lost it, and may have it again
	case err != nil:
		return nil, fmt.Errorf("%w: load parent run: %w", errRelease, err)
	case parent.Status.Terminal():
		return &state.Abort{Reason: parentEnded}, nil
	default:
		return nil, nil //nolint:nilnil // it goes on
	}
}

// startChild starts one run, unless it exists.
func (w *Worker) startChild(ctx context.Context, s state.State, o state.OpenCall, latest *latestAgents) error {
	parent, err := w.agents.get(ctx, s.Tenant, s.Agent, s.AgentVersion)
	if err != nil {
		return err // a worker of the build that has run the turn can read it
	}
	spec := parent.Tool(o.Name)
	if spec == nil {
		return w.signalParent(ctx, s.ID, failedChild(o, "No run was started: agent %s has no tool %q", s.Agent, o.Name))
	}
	version, err := latest.version(ctx, w.store, s.Tenant, spec.Agent)
	if errors.Is(err, state.ErrNotFound) {
		return w.signalParent(ctx, s.ID, failedChild(o, "There is no agent %q", spec.Agent))
	}
	if err != nil {
		return err
	}
	a, err := w.agents.get(ctx, s.Tenant, spec.Agent, version)
	var invalid *invalidAgentError
	if errors.As(err, &invalid) {
		return w.signalParent(ctx, s.ID, failedChild(o, "The agent %q cannot be started: %v", spec.Agent, invalid))
	}
	if err != nil {
		return err
	}
	if a.Name != spec.Agent {
		// A draft is kept under a name of its own, which tells nobody what it is.
		return w.signalParent(ctx, s.ID, failedChild(o, "%q is a draft of the agent %q: only agents that are saved can be called", spec.Agent, a.Name))
	}
	run, err := loop.ChildRun(s, o, a)
	if err != nil {
		return err
	}
	ctx, submit := w.traceChild(ctx, run, o)
	defer submit.End()
	if parent := span.Parent(ctx); parent != "" {
		run.TraceSpan = parent
	}
	made, err := w.store.Create(ctx, state.NewRun{State: run, RedeliveryDelay: w.cfg.RedeliveryDelay})
	if full, ok := errors.AsType[*state.TooLargeError](err); ok {
		return w.signalParent(ctx, s.ID, failedChild(o, "The agent %q cannot be started: %v", spec.Agent, full))
	}
	if errors.Is(err, state.ErrDeleted) {
		return nil // with the run that waited for it
	}
	if err != nil {
		return err
	}
	child := made.State
	if child.Status.Terminal() {
		return w.answerFor(ctx, s, o, child) // again: a failover may have lost it
	}
	if child.Status == state.Queued && child.Version == run.Version {
		first := dispatch.Turn{
			Run: child.ID, Version: child.Version, Priority: child.Priority, Tenant: child.Tenant, Noisy: made.Noisy, TraceParent: traceParent(ctx, child),
		}
		if err := w.dispatch.Publish(ctx, first); err != nil {
			return err
		}
	}
	return nil
}

// failedChild is what a run is told of a child that cannot be started.
func failedChild(o state.OpenCall, format string, args ...any) state.Signal {
	return state.Signal{
		ID:    "child:" + string(o.Child),
		Child: &state.ChildResult{CallID: o.ID, RunID: o.Child, Content: fmt.Sprintf(format, args...), IsError: true},
	}
}

// answerParent gives the outcome of a child run to the run that waits for it.
func (w *Worker) answerParent(ctx context.Context, s state.State) error {
	if s.Parent == nil {
		return nil
	}
	result := loop.ChildResult(s)
	asked, err := w.askers(ctx, s.ID)
	if err != nil {
		return err
	}
	result.Requesters = asked
	result.Content = tool.Truncate(result.Content, w.cfg.ToolOutput)
	return w.signalParent(ctx, s.Parent.RunID, state.Signal{ID: "child:" + string(s.ID), Child: &result})
}

// askers returns who has asked for something in a run: its parent must know, as nobody may
// approve there what they had a child say.
func (w *Worker) askers(ctx context.Context, id state.RunID) (all []string, err error) {
	const page = 256
	for after := int64(0); ; after += page {
		log, err := w.store.Log(ctx, id, after, page)
		if err != nil {
			return nil, fmt.Errorf("read who asked: %w", err)
		}
		if all = state.Askers(all, log); len(log) < page {
			return all, nil
		}
	}
}

func (w *Worker) signalParent(ctx context.Context, parent state.RunID, sig state.Signal) error {
	sig.At = w.clock.now()
	wake, err := w.store.Signal(ctx, parent, sig, w.cfg.RedeliveryDelay)
	if _, closed := errors.AsType[*state.NotWaitingError](err); closed || errors.Is(err, state.ErrNotFound) {
		return nil // it ended, or was answered by an earlier end of this child
	}
	if err != nil {
		return err
	}
	return w.dispatch.Wake(ctx, parent, wake, span.Parent(ctx))
}
