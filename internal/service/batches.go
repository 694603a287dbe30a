package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Batches are the batches of a tenant.
type Batches struct{ *core }

// Get returns a batch with a page of its runs that were not deleted, by index. It records runs that the store has lost.
// The problem is batch_not_found if the tenant has no such batch, or all its runs were deleted more than seven days
// ago; it is waiting_restore while only a newer copy of the store may have the batch.
func (s *Batches) Get(ctx context.Context, c access.Caller, id string, p Page) (api.Batch, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Batch{}, err
	}
	first, err := state.ParseBatchID(id)
	if err != nil {
		return api.Batch{}, problem(badRequest, api.CodeInvalidID, "%q: %v", id, err)
	}
	deleted, err := s.store.DeletedOfBatch(ctx, first)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return api.Batch{}, err
	}
	origin := deleted.BatchOrigin
	if err != nil { // none was deleted
		if origin, err = s.batchOrigin(ctx, c.Tenant, id, first); err != nil {
			return api.Batch{}, err
		}
	}
	if origin.Size == 0 || origin.Tenant != c.Tenant {
		if err := s.cfg.Restore.Err(); err != nil {
			return api.Batch{}, fmt.Errorf("batch %s is not in the store: %w", id, err)
		}
		return api.Batch{}, problem(missing, api.CodeBatchNotFound, "tenant %s has no batch %s, or all of its runs were deleted more than seven days ago: list the batches with GET /v1/batches or turnpike batch ls", c.Tenant, id)
	}
	b, runs, err := s.batchStands(ctx, id, origin, deleted.Deleted)
	if err != nil {
		return api.Batch{}, err
	}
	b.Page, err = Cut(p, runs)
	return b, err
}

// batchOrigin returns the properties that the runs of a tenant's batch share, or the zero value if
// the batch has no runs.
func (s *Batches) batchOrigin(ctx context.Context, tenant, id string, first state.RunID) (state.BatchOrigin, error) {
	head, err := s.store.Load(ctx, first) // lists may lag behind
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return state.BatchOrigin{}, err
	}
	if err != nil || head.Tenant != tenant {
		// The store may have lost the first run. This lookup also makes the answer for another
		// tenant's batch take as long as one for a missing batch.
		page, err := s.store.List(ctx, state.Filter{Tenant: tenant, Batch: id, Limit: 1})
		if err != nil || len(page.Runs) == 0 {
			return state.BatchOrigin{}, err
		}
		head = page.Runs[0]
	}
	if head.BatchID() != id {
		return state.BatchOrigin{}, nil
	}
	_, origin, _ := head.BatchOrigin()
	return origin, nil
}

// batchStands returns the progress of a batch, and those of its runs that were not deleted. It records the runs that
// the store has lost.
func (s *Batches) batchStands(ctx context.Context, id string, origin state.BatchOrigin, deleted map[int]state.Status) (b api.Batch, runs []api.BatchRun, err error) {
	b = api.Batch{
		ID: id, Total: origin.Size, MaxParallel: origin.MaxParallel, CountWaiting: origin.CountWaiting, Counts: map[string]int{}, CreatedAt: origin.CreatedAt,
	}
	ended, there := 0, map[int]bool{}
	add := func(st state.State) {
		there[st.Batch.Index] = true
		run := api.RunOf(st, time.Now())
		runs = append(runs, api.BatchRun{Index: st.Batch.Index, ID: run.ID, Status: run.Status, Reason: run.Reason})
		b.Counts[run.Status]++
		if st.Status.Terminal() {
			ended++
		}
	}
	if _, err = s.eachRun(ctx, state.Filter{Tenant: origin.Tenant, Batch: id, Limit: state.MaxBatch}, add); err != nil {
		return b, nil, err
	}
	lost, err := s.lostOfBatch(ctx, id, origin, func(index int) bool { _, gone := deleted[index]; return gone || there[index] })
	if err != nil {
		return b, nil, err
	}
	for _, st := range lost {
		add(st)
	}
	for index, status := range deleted {
		if !there[index] { // its deletion may be in progress
			b.Counts[string(status)]++
			b.Deleted++
			ended++
		}
	}
	slices.SortFunc(runs, func(a, b api.BatchRun) int { return a.Index - b.Index })
	b.Done = ended == b.Total
	return b, runs, nil
}

const (
	// maxBatches is the maximum number of batches on a page: the runs of each are counted.
	maxBatches = 20

	// batchLooks is the maximum number of pages of runs read for one page of batches, and batchLook
	// is the number of runs on each.
	batchLooks = 10
	batchLook  = 100
)

// List returns the batches of a tenant, the newest first. A page may have fewer batches than its limit, even none,
// although a cursor follows. The store has no list of batches, so List reads the list of runs. The ids of a batch's
// runs are adjacent, so the id of any run gives that of the first.
func (s *Batches) List(ctx context.Context, c access.Caller, p Page) (api.Page[api.BatchSummary], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.BatchSummary]{}, err
	}
	if _, err := state.ParseRunID(p.Cursor); p.Cursor != "" && err != nil {
		return api.Page[api.BatchSummary]{}, invalidCursor()
	}
	heads, next, err := s.batchHeads(ctx, c.Tenant, p.Cursor, min(p.Limit, maxBatches))
	if err != nil {
		return api.Page[api.BatchSummary]{}, err
	}
	list := make([]api.BatchSummary, len(heads))
	for i, run := range heads {
		first, origin, _ := run.BatchOrigin()
		deleted, err := s.store.DeletedOfBatch(ctx, first)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return api.Page[api.BatchSummary]{}, err
		}
		b, _, err := s.batchStands(ctx, run.BatchID(), origin, deleted.Deleted)
		if err != nil {
			return api.Page[api.BatchSummary]{}, err
		}
		list[i] = api.BatchSummary{
			ID: b.ID, Total: b.Total, MaxParallel: b.MaxParallel, CountWaiting: b.CountWaiting, Counts: b.Counts, Deleted: b.Deleted, Done: b.Done, CreatedAt: b.CreatedAt,
		}
	}
	return api.NewPage(list, next), nil
}

// batchHeads returns one run of each of up to limit batches of a tenant after the cursor, the newest first, and the
// next cursor. It reads a bounded number of runs, so it may return fewer, even none, although a cursor follows. It
// omits a batch if all its runs were deleted.
func (s *Batches) batchHeads(ctx context.Context, tenant, cursor string, limit int) (heads []state.State, next string, err error) {
	for range batchLooks {
		page, err := s.store.List(ctx, state.Filter{Tenant: tenant, Limit: batchLook, Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		cursor = page.Next
		for _, st := range page.Runs {
			first, _, ok := st.BatchOrigin()
			if !ok || len(heads) > 0 && heads[len(heads)-1].BatchID() == st.BatchID() {
				continue
			}
			if heads = append(heads, st); len(heads) == limit {
				if cursor == "" && page.Runs[len(page.Runs)-1].ID >= first {
					return heads, "", nil
				}
				return heads, string(first), nil
			}
			if cursor > string(first) {
				cursor = string(first) // the page ends within this batch
			}
		}
		if cursor == "" {
			break
		}
	}
	return heads, cursor, nil
}
