package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// childrenPerCheck is the number of children that a worker creates together, after one check whether their
	// tree is being cancelled.
	childrenPerCheck = 8

	// maxCreating is the number of such groups that a worker creates at the same time. So few children start
	// after a cancellation, however many were admitted before it, and few delay other turns at the store.
	maxCreating = 2

	// maxFinding is the number of concurrent searches for children by a worker. More would delay
	// other turns at the store.
	maxFinding = 64

	// maxAborting is the number of children that one run aborts at the same time.
	maxAborting = 16
)

// children starts, finds and aborts the child runs of runs.
type children struct {
	f        *Finalizer
	creating chan struct{} // has an element for each group of children that is being created
	finding  chan struct{} // has an element for each child that is being looked for
}

// start starts the runs that answer the open calls of a waiting run, except for the calls in started.
// The id of each run follows from its call, so a repeated start creates no second run. If the tree
// has no capacity under limits.runs of the root, start refuses the calls concerned with a signal to
// s; if the tree is ending, because its root has ended or has a pending abort, it aborts s instead.
func (c *children) start(ctx context.Context, s state.State, started []state.OpenCall) error {
	var calls []state.OpenCall
	var runs []state.RunID
	for _, o := range s.Open {
		if o.Needs == state.NeedChild && !slices.ContainsFunc(started, func(before state.OpenCall) bool { return before.Child == o.Child }) {
			calls, runs = append(calls, o), append(runs, o.Child)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	root, err := c.root(ctx, s)
	if err != nil {
		return err
	}
	limit := cmp.Or(root.Limits.Runs, state.DefaultTreeRuns)
	admitted, err := c.f.store.Admit(ctx, root.ID, runs, limit)
	if err != nil {
		return fmt.Errorf("count child runs: %w", err)
	}
	if admitted.Ended && len(admitted.Refused) > 0 {
		return c.stopGrowing(ctx, s)
	}
	var refused state.Signal
	create := make([]state.OpenCall, 0, len(calls))
	for _, o := range calls {
		if !slices.Contains(admitted.Refused, o.Child) {
			create = append(create, o)
			continue
		}
		if refused.ID == "" {
			refused.ID = "refused:" + string(o.Child)
		}
		no := fmt.Sprintf("No run was started: the run %s has %d descendants, the maximum set by limits.runs. Continue without another run", root.ID, limit)
		refused.Refused = append(refused.Refused, state.ChildResult{CallID: o.ID, RunID: o.Child, Content: no, IsError: true})
	}
	if len(refused.Refused) > 0 {
		if err := c.f.signalParent(ctx, s.ID, refused); err != nil {
			return err
		}
	}
	return c.create(ctx, root.ID, s, create)
}

// create creates and starts the child runs of calls, several concurrently, until the tree is ending: an abort
// overtakes runs admitted before it.
func (c *children) create(ctx context.Context, root state.RunID, s state.State, calls []state.OpenCall) error {
	fresh := true // start has just checked the root
	latest := &latestAgents{}
	for group := range slices.Chunk(calls, childrenPerCheck) {
		waited, err := c.enterCreating(ctx)
		if err != nil {
			return err
		}
		over := false
		if waited || !fresh {
			over, err = c.ending(ctx, root, s.ID)
		}
		if err == nil && !over {
			err = c.createGroup(ctx, s, group, latest)
		}
		<-c.creating
		if err != nil {
			return err
		}
		if over {
			return c.stopGrowing(ctx, s)
		}
		fresh = false
	}
	return nil
}

// enterCreating waits until this worker may create a group of children, and reports whether it
// had to wait.
func (c *children) enterCreating(ctx context.Context) (waited bool, err error) {
	select {
	case c.creating <- struct{}{}:
		return false, nil
	default:
	}
	select {
	case c.creating <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// latestAgents remembers the latest versions of agents while the children of a run are created.
type latestAgents struct {
	asking singleflight.Group

	mu       sync.Mutex // no call of the store is made under it
	versions map[string]int
}

// version returns the latest version of an agent, or state.ErrNotFound.
func (l *latestAgents) version(ctx context.Context, store finalizerStore, tenant, name string) (int, error) {
	l.mu.Lock()
	known, ok := l.versions[name]
	l.mu.Unlock()
	if ok {
		return known, nil
	}
	found, err, _ := l.asking.Do(name, func() (any, error) {
		a, err := store.Agent(ctx, tenant, name, 0)
		if err != nil {
			return 0, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.versions == nil {
			l.versions = map[string]int{}
		}
		l.versions[name] = a.Version
		return a.Version, nil
	})
	version, _ := found.(int)
	return version, err
}

// errPanicked is the outcome of a start that panicked: the run is due again.
var errPanicked = errors.New("starting a child run panicked, and a worker retries it: report this bug in Turnpike with the stack that this log has for the run")

// createGroup creates and starts the child runs of a few calls at the same time.
func (c *children) createGroup(ctx context.Context, s state.State, calls []state.OpenCall, latest *latestAgents) error {
	var group errgroup.Group
	for _, o := range calls {
		group.Go(func() error {
			err := errPanicked
			func() {
				defer Survive(c.f.cfg.Log, s.ID)
				err = c.startOne(ctx, s, o, latest)
			}()
			return err
		})
	}
	return group.Wait()
}

// ending reports whether any of the runs has ended or has a pending abort.
func (c *children) ending(ctx context.Context, runs ...state.RunID) (bool, error) {
	for _, id := range slices.Compact(runs) {
		admitted, err := c.f.store.Admit(ctx, id, nil, 0)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("check whether run %s has ended: %w", id, err)
		}
		if admitted.Ended {
			return true, nil
		}
	}
	return false, nil
}

// stopGrowing aborts s, because s would add runs to a tree that is ending. Without that the tree might grow faster
// than the abort that ends it moves down from run to run.
func (c *children) stopGrowing(ctx context.Context, s state.State) error {
	_, err := c.abort(ctx, s.ID, s.Tenant)
	return err
}

// abortAll aborts the runs that answer calls, and returns the calls whose runs do not exist.
func (c *children) abortAll(ctx context.Context, tenant string, calls []state.OpenCall) ([]state.OpenCall, error) {
	missing := make([]bool, len(calls))
	var group errgroup.Group
	group.SetLimit(maxAborting)
	for i, o := range calls {
		if o.Needs != state.NeedChild {
			continue
		}
		group.Go(func() (err error) {
			missing[i], err = c.abort(ctx, o.Child, tenant)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var rest []state.OpenCall
	for i, o := range calls {
		if missing[i] {
			rest = append(rest, o)
		}
	}
	return rest, nil
}

// abort aborts a run that no other run waits for any more, and reports whether the store lacks it.
func (c *children) abort(ctx context.Context, id state.RunID, tenant string) (missing bool, err error) {
	wake, err := c.f.store.Abort(ctx, id, state.Abort{Reason: ParentEnded}, c.f.cfg.RedeliveryDelay)
	if errors.Is(err, state.ErrNotFound) {
		return true, nil
	}
	if _, ended := errors.AsType[*state.TerminalError](err); ended {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("abort run %s: %w", id, err)
	}
	if err := c.f.cfg.Dispatch.Abort(ctx, id, tenant, ParentEnded, wake, ""); err != nil {
		return false, fmt.Errorf("publish abort of run %s: %w", id, err)
	}
	return false, nil
}

// root returns the run at the top of a run's tree, as far as the store has it.
func (c *children) root(ctx context.Context, s state.State) (state.State, error) {
	for s.Parent != nil {
		parent, err := c.f.store.Load(ctx, s.Parent.RunID)
		if errors.Is(err, state.ErrNotFound) {
			break
		}
		if err != nil {
			return state.State{}, fmt.Errorf("load the parent run of %s: %w", s.ID, err)
		}
		s = parent
	}
	return s, nil
}

// startOne creates the run that answers a call, and publishes its first turn. If the run cannot be started, or
// has ended, it sends the parent a result.
func (c *children) startOne(ctx context.Context, s state.State, o state.OpenCall, latest *latestAgents) error {
	parent, err := c.f.cfg.Agents.Of(ctx, &s)
	if err != nil {
		return err // a worker of the build that has run the turn can read it
	}
	spec := parent.Tool(o.Name)
	if spec == nil {
		return c.f.signalParent(ctx, s.ID, failedChild(o, "No run was started: agent %s has no tool %q. Call one of its tools", parent.Name, o.Name))
	}
	version, err := latest.version(ctx, c.f.store, s.Tenant, spec.Agent)
	if errors.Is(err, state.ErrNotFound) {
		return c.f.signalParent(ctx, s.ID, failedChild(o, "There is no agent %q. Continue without it; an author of agents must save it first", spec.Agent))
	}
	if err != nil {
		return err
	}
	a, err := c.f.cfg.Agents.Get(ctx, s.Tenant, spec.Agent, version)
	var invalid *definition.InvalidError
	if errors.As(err, &invalid) {
		return c.f.signalParent(ctx, s.ID, failedChild(o, "The agent %q cannot be started: %v", spec.Agent, invalid))
	}
	if err != nil {
		return err
	}
	if a.Name != spec.Agent {
		// The name of a draft's run does not identify its agent.
		return c.f.signalParent(ctx, s.ID, failedChild(o, "%q is a draft of the agent %q, and only agents can be called, not their drafts. Continue without it", spec.Agent, a.Name))
	}
	run, err := loop.ChildRun(s, o, a, spec.Variables)
	if _, ok := errors.AsType[*agent.Fault](err); ok {
		return c.f.signalParent(ctx, s.ID, failedChild(o, "The agent %q cannot be started: %v", spec.Agent, err))
	}
	if err != nil {
		return err
	}
	ctx, submit := c.traceChild(ctx, run, o)
	defer submit.End()
	if parent := span.Parent(ctx); parent != "" {
		run.TraceSpan = parent
	}
	made, err := c.f.store.Create(ctx, state.NewRun{State: run, RedeliveryDelay: c.f.cfg.RedeliveryDelay})
	if full, ok := errors.AsType[*state.TooLargeError](err); ok {
		return c.f.signalParent(ctx, s.ID, failedChild(o, "The agent %q cannot be started: %v", spec.Agent, full))
	}
	if errors.Is(err, state.ErrDeleted) {
		return nil // with the run that waited for it
	}
	if err != nil {
		return err
	}
	child := made.State
	if child.Status.Terminal() {
		return c.f.answerFor(ctx, s, o, child) // again: a failover may have lost it
	}
	if child.Status == state.Queued && child.Version == run.Version {
		first := dispatch.Turn{
			Run: child.ID, Version: child.Version, Priority: child.Priority, Tenant: child.Tenant, Noisy: made.Noisy, TraceParent: span.Carried(ctx, child.TraceSpan),
		}
		if err := c.f.cfg.Dispatch.Publish(ctx, first); err != nil {
			return err
		}
	}
	return nil
}

// failedChild returns the signal to a parent whose child run cannot be started.
func failedChild(o state.OpenCall, format string, args ...any) state.Signal {
	return state.Signal{
		ID:    "child:" + string(o.Child),
		Child: &state.ChildResult{CallID: o.ID, RunID: o.Child, Content: fmt.Sprintf(format, args...), IsError: true},
	}
}

// traceChild starts the span of the submission of a child run: below the turn that requested it, or below the
// submission of its parent if another worker executed that turn.
func (c *children) traceChild(ctx context.Context, child state.State, o state.OpenCall) (context.Context, trace.Span) {
	if c.f.cfg.Tracer == nil {
		return ctx, noop.Span{}
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = span.Under(ctx, child.TraceSpan)
	}
	ctx, submit := span.Submit(ctx, c.f.cfg.Tracer, child.Agent)
	if submit.IsRecording() {
		submit.SetAttributes(span.Run(child)...)
		submit.SetAttributes(span.ToolCallID.String(o.ID))
	}
	return ctx, submit
}
