package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxNamed bounds the turn messages of a stream, and the waiting runs, that doctor reads.
	maxNamed = 1000

	// maxPages bounds the pages in which doctor reads runs, and pageBytes the size of one: a run has up to 8 MiB.
	maxPages  = 10
	pageBytes = 64 << 20

	// shownLost is the number of lost runs that a finding names.
	shownLost = 10

	// newFor is the time within which the child runs of a run may not be created yet.
	newFor = time.Minute

	// batchNewFor is the time within which a batch may lack runs that are not created yet, the same
	// as for gateways: a client may retry it with its key.
	batchNewFor = 5 * time.Minute
)

// namedRuns are the runs that turn messages name. All says that doctor has read all messages.
type namedRuns struct {
	runs []state.RunID
	all  bool
}

// lostStore is what doctor asks of a store about lost runs.
type lostStore interface {
	state.Runs
	state.Deletions
}

// withLostRuns returns the findings about a store with one about lost runs, unless the store cannot
// be used.
func withLostRuns(ctx context.Context, findings []state.Finding, named namedRuns, store lostStore) []state.Finding {
	if check.Err(findings) != nil {
		return findings
	}
	return append(findings, lostRuns(ctx, named, store))
}

// lostRuns lists the runs that turn messages, parents and batches name and that the store does not
// have, without those that were deleted.
func lostRuns(ctx context.Context, named namedRuns, store lostStore) state.Finding {
	f := state.Finding{Name: "store: lost runs", OK: true, Detail: "the store has all runs that turn messages, parents and batches name"}
	l := &lostSearch{store: store, all: named.all, looked: map[state.RunID]bool{}}
	err := l.search(ctx, named.runs)
	if err != nil {
		return state.Finding{Name: f.Name, Detail: err.Error(), Remedy: "check that the store answers and permits this user to read it, and retry"}
	}
	if n := len(l.lost); n > 0 {
		f.OK = false
		f.Detail = fmt.Sprintf("the store lacks %d runs: %s", n, strings.Join(l.lost[:min(n, shownLost)], ", "))
		if n > shownLost {
			f.Detail += ", …"
		}
		if !l.all {
			f.Detail += "; " + l.part(len(named.runs))
		}
		f.Remedy = "submit them again, and check why the store lost them: docs/how-to/troubleshoot.md#lost-runs. A worker, or a gateway when their batch is read, marks them as failed with the reason lost"
	}
	if f.OK && !l.all {
		f.Detail = "the store has all these runs; " + l.part(len(named.runs))
	}
	return f
}

// part says how much doctor has looked at, of more.
func (l *lostSearch) part(messages int) string {
	return fmt.Sprintf("doctor checked the oldest turn messages, of %d runs, the newest %d runs that wait for other runs and the newest %d that wait for a time, not all of them", messages, l.parents, l.pending)
}

// lostSearch finds runs that the store lacks.
type lostSearch struct {
	store  lostStore
	looked map[state.RunID]bool
	lost   []string

	all              bool // nothing was left out
	parents, pending int  // how many waiting runs were looked at
}

func (l *lostSearch) search(ctx context.Context, named []state.RunID) error {
	loaded := make([]error, len(named))
	each(named, func(i int, id state.RunID) { _, loaded[i] = l.store.Load(ctx, id) })
	for i, id := range named {
		if err := l.note(id, "a turn message", loaded[i]); err != nil {
			return err
		}
	}
	if err := l.waiting(ctx, state.WaitingChild, &l.parents, l.children); err != nil {
		return err
	}
	if err := l.waiting(ctx, state.WaitingSchedule, &l.pending, l.batch); err != nil {
		return err
	}
	return l.batches(ctx)
}

// look notes a run that the store lacks.
func (l *lostSearch) look(ctx context.Context, id state.RunID, by string) error {
	if l.looked[id] {
		return nil
	}
	_, err := l.store.Load(ctx, id)
	return l.note(id, by, err)
}

// note notes a run that the store lacks; err is that of Load.
func (l *lostSearch) note(id state.RunID, by string, err error) error {
	if l.looked[id] {
		return nil
	}
	l.looked[id] = true
	switch {
	case errors.Is(err, state.ErrDeleted):
		return nil
	case errors.Is(err, state.ErrNotFound):
		l.lost = append(l.lost, fmt.Sprintf("%s (of %s)", id, by))
		return nil
	case errors.Is(err, state.ErrFormat):
		return nil
	default:
		return err
	}
}

// waiting calls fn for runs that wait for a reason, and have for some time. It counts all that it
// looks at.
func (l *lostSearch) waiting(ctx context.Context, reason state.Reason, looked *int, fn func(context.Context, state.State) error) error {
	more, err := l.newest(ctx, state.Filter{Waiting: reason}, func(st state.State) error {
		*looked++
		if time.Since(st.UpdatedAt.Time) < newFor {
			return nil
		}
		return fn(ctx, st)
	})
	if more {
		l.all = false
	}
	return err
}

// newest calls fn for the newest runs that a filter selects, and reports whether there may be more. It reads at most
// maxNamed runs in at most maxPages pages: a page of all tenants may cost several round trips for each tenant.
func (l *lostSearch) newest(ctx context.Context, f state.Filter, fn func(state.State) error) (more bool, err error) {
	f.Limit, f.Bytes = maxNamed, pageBytes
	for range maxPages {
		page, err := l.store.List(ctx, f)
		if err != nil {
			return false, err
		}
		for _, st := range page.Runs {
			if err := fn(st); err != nil {
				return false, err
			}
		}
		f.Cursor, f.Limit = page.Next, f.Limit-len(page.Runs)
		if f.Cursor == "" || f.Limit == 0 {
			break
		}
	}
	return f.Cursor != "", nil
}

// children looks for the child runs that a run waits for.
func (l *lostSearch) children(ctx context.Context, st state.State) error {
	for _, o := range st.Open {
		if o.Needs != state.NeedChild {
			continue
		}
		if err := l.look(ctx, o.Child, "its parent "+string(st.ID)); err != nil {
			return err
		}
	}
	return nil
}

// batch looks for the runs before a pending run in its lane: each was stored before it.
func (l *lostSearch) batch(ctx context.Context, st state.State) error {
	if !st.PendingInBatch() {
		return nil
	}
	first, _, _ := st.BatchOrigin()
	deleted, err := l.store.DeletedOfBatch(ctx, first)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	gone := make([]state.RunID, 0, len(deleted.Deleted))
	for index := range deleted.Deleted {
		gone = append(gone, first.Plus(index))
	}
	for step := -1; ; step-- {
		id, ok := st.InLane(step)
		if !ok || l.looked[id] {
			return nil
		}
		if slices.Contains(gone, id) {
			continue
		}
		if err := l.look(ctx, id, "its batch "+st.BatchID()); err != nil {
			return err
		}
	}
}

// batches looks for the runs of the newest batches.
func (l *lostSearch) batches(ctx context.Context) error {
	seen := map[state.RunID]bool{}
	_, err := l.newest(ctx, state.Filter{}, func(st state.State) error {
		first, origin, ok := st.BatchOrigin()
		if !ok || seen[first] || time.Since(origin.CreatedAt.Time) < batchNewFor {
			return nil
		}
		seen[first] = true
		return l.wholeBatch(ctx, st.BatchID(), first, origin)
	})
	return err
}

// wholeBatch looks for the runs of a batch that are missing but not deleted.
func (l *lostSearch) wholeBatch(ctx context.Context, id string, first state.RunID, origin state.BatchOrigin) error {
	page, err := l.store.List(ctx, state.Filter{Tenant: origin.Tenant, Batch: id, Limit: state.MaxBatch})
	if err != nil {
		return err
	}
	known := map[int]bool{}
	for _, st := range page.Runs {
		known[st.Batch.Index] = true
	}
	deleted, err := l.store.DeletedOfBatch(ctx, first)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	for index := range deleted.Deleted {
		known[index] = true
	}
	for index := range origin.Size {
		if known[index] {
			continue
		}
		if err := l.look(ctx, first.Plus(index), "its batch "+id); err != nil {
			return err
		}
	}
	return nil
}
