package natsstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// alternating sends every other write to another store.
type alternating struct {
	state.Store

	other state.Store
	n     atomic.Int64
	runs  sync.Map // ids of the created runs
}

func newAlternating(a, b state.Store) *alternating { return &alternating{Store: a, other: b} }

func (a *alternating) next() state.Store {
	if a.n.Add(1)%2 == 0 {
		return a.other
	}
	return a.Store
}

// catchUp waits until the first store's index has the other's writes: lists and counts may lag behind other
// processes for a moment, and the suite does not wait.
func (a *alternating) catchUp(ctx context.Context, id state.RunID) { _, _ = a.Store.Load(ctx, id) }

// CatchUpAll waits until both have all runs: each determines noisy tenants itself.
func (a *alternating) CatchUpAll(ctx context.Context) {
	a.runs.Range(func(id, _ any) bool {
		_, _ = a.Store.Load(ctx, id.(state.RunID))
		_, _ = a.other.Load(ctx, id.(state.RunID))
		return true
	})
}

func (a *alternating) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	a.runs.Store(n.State.ID, true)
	return a.Store.Create(ctx, n)
}

func (a *alternating) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	defer a.catchUp(ctx, r.Run)
	return a.next().Claim(ctx, r)
}

// Record waits until both have the write, since an eager claim is served from memory: a lease belongs to one
// process, and here two share it.
func (a *alternating) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	defer func() {
		_, _ = a.Store.Load(ctx, l.Run)
		_, _ = a.other.Load(ctx, l.Run)
	}()
	return a.next().Record(ctx, l, r)
}

func (a *alternating) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	defer a.catchUp(ctx, l.Run)
	return a.next().Commit(ctx, l, c)
}

func (a *alternating) Signal(ctx context.Context, id state.RunID, s state.Signal, delay time.Duration) (state.Wake, error) {
	return a.next().Signal(ctx, id, s, delay)
}

func (a *alternating) Load(ctx context.Context, id state.RunID) (state.State, error) {
	return a.next().Load(ctx, id)
}

func (a *alternating) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	return a.next().Log(ctx, id, after, limit)
}

func (a *alternating) Take(ctx context.Context, key string, t state.Take) (state.Taken, error) {
	return a.next().Take(ctx, key, t)
}

func (a *alternating) Correct(ctx context.Context, key string, q state.Quota, tokens int64) error {
	return a.next().Correct(ctx, key, q, tokens)
}

func (a *alternating) Pause(ctx context.Context, key string, d time.Duration) error {
	return a.next().Pause(ctx, key, d)
}
