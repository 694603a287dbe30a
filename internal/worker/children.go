package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// childrenPerCheck is the number of children that a worker creates together, after one look
	// whether their tree is being cancelled.
	childrenPerCheck = 8

	// maxCreating is the number of such groups that a worker creates at the same time. With it
	// few children come after a cancel, however many were admitted before, and few are before
	// other turns at the store.
	maxCreating = 2

	// maxFinding is the number of children that a worker looks for at the same time. More of them
	// would be before other turns at the store.
	maxFinding = 64

	// maxAborting is the number of children that one run aborts at the same time.
	maxAborting = 16
)

// startChildren starts the runs that answer the open calls of a waiting run, without those that
// were started before. Their ids follow from the calls, so each is started once.
func (w *Worker) startChildren(ctx context.Context, s state.State, started []state.OpenCall) error {
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
	root, err := w.root(ctx, s)
	if err != nil {
		return err
	}
	limit := cmp.Or(root.Limits.Runs, state.DefaultTreeRuns)
	admitted, err := w.store.Admit(ctx, root.ID, runs, limit)
	if err != nil {
		return fmt.Errorf("count child runs: %w", err)
	}
	if admitted.Ended && len(admitted.Refused) > 0 {
		return w.stopGrowing(ctx, s)
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
		no := fmt.Sprintf("No run was started: the run %s has %d descendants, as many as limits.runs allows", root.ID, limit)
		refused.Refused = append(refused.Refused, state.ChildResult{CallID: o.ID, RunID: o.Child, Content: no, IsError: true})
	}
	if len(refused.Refused) > 0 {
		if err := w.signalParent(ctx, s.ID, refused); err != nil {
			return err
		}
	}
	return w.createChildren(ctx, root.ID, s, create)
}

// createChildren creates and starts the child runs of calls, some at a time, until the tree is
// to end: an abort overtakes what was admitted before it.
func (w *Worker) createChildren(ctx context.Context, root state.RunID, s state.State, calls []state.OpenCall) error {
	fresh := true // the root was asked just now
	latest := &latestAgents{}
	for group := range slices.Chunk(calls, childrenPerCheck) {
		waited, err := w.enterCreating(ctx)
		if err != nil {
			return err
		}
		over := false
		if waited || !fresh {
			over, err = w.ending(ctx, root, s.ID)
		}
		if err == nil && !over {
			err = w.createGroup(ctx, s, group, latest)
		}
		<-w.creating
		if err != nil {
			return err
		}
		if over {
			return w.stopGrowing(ctx, s)
		}
		fresh = false
	}
	return nil
}

// enterCreating waits until this worker may create a group of children, and reports whether it
// had to wait.
func (w *Worker) enterCreating(ctx context.Context) (waited bool, err error) {
	select {
	case w.creating <- struct{}{}:
		return false, nil
	default:
	}
	select {
	case w.creating <- struct{}{}:
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
func (l *latestAgents) version(ctx context.Context, store state.Store, tenant, name string) (int, error) {
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

// errPanicked stands for the outcome of a start that panicked: the run is due again.
var errPanicked = errors.New("the start of a child run panicked")

// createGroup creates and starts the child runs of a few calls at the same time.
func (w *Worker) createGroup(ctx context.Context, s state.State, calls []state.OpenCall, latest *latestAgents) error {
	var group errgroup.Group
	for _, o := range calls {
		group.Go(func() error {
			err := errPanicked
			func() {
				defer w.survive(s.ID)
				err = w.startChild(ctx, s, o, latest)
			}()
			return err
		})
	}
	return group.Wait()
}

// ending reports whether one of some runs has ended or has a pending abort.
func (w *Worker) ending(ctx context.Context, runs ...state.RunID) (bool, error) {
	for _, id := range slices.Compact(runs) {
		admitted, err := w.store.Admit(ctx, id, nil, 0)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("look whether run %s ends: %w", id, err)
		}
		if admitted.Ended {
			return true, nil
		}
	}
	return false, nil
}

// stopGrowing aborts a run that would add to a tree which ends. The abort goes down the tree
// from run to run, and the tree must not grow faster than that.
func (w *Worker) stopGrowing(ctx context.Context, s state.State) error {
	_, err := w.abort(ctx, s.ID, s.Tenant)
	return err
}

// abortChildren ends the runs that answer open calls of a run which ends: nothing waits for
// them any more (I7). A second call concerns only the runs that were missing at the first one.
func (t *turn) abortChildren(ctx context.Context) (err error) {
	if !t.s.Status.Terminal() {
		return nil
	}
	calls := t.claim.Open
	if t.aborted {
		calls = t.missing
	}
	t.missing, err = t.w.abortAll(ctx, t.s.Tenant, calls)
	t.aborted = err == nil
	return err
}

// abortAll aborts the runs that answer calls, and returns the calls whose runs do not exist.
func (w *Worker) abortAll(ctx context.Context, tenant string, calls []state.OpenCall) ([]state.OpenCall, error) {
	missing := make([]bool, len(calls))
	var group errgroup.Group
	group.SetLimit(maxAborting)
	for i, o := range calls {
		if o.Needs != state.NeedChild {
			continue
		}
		group.Go(func() (err error) {
			missing[i], err = w.abort(ctx, o.Child, tenant)
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

// abort ends a run for which no other run waits any more, and reports whether it is missing.
func (w *Worker) abort(ctx context.Context, id state.RunID, tenant string) (missing bool, err error) {
	wake, err := w.store.Abort(ctx, id, state.Abort{Reason: parentEnded}, w.cfg.RedeliveryDelay)
	if errors.Is(err, state.ErrNotFound) {
		return true, nil
	}
	if _, ended := errors.AsType[*state.TerminalError](err); ended {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("abort run %s: %w", id, err)
	}
	if err := w.dispatch.Abort(ctx, id, tenant, parentEnded, wake, ""); err != nil {
		return false, fmt.Errorf("publish abort of run %s: %w", id, err)
	}
	return false, nil
}
