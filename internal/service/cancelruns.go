package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// cancelAtOnce is the maximum number of runs that one request cancels.
	cancelAtOnce = 1000

	// concurrentAborts is the number of runs that a request aborts concurrently.
	concurrentAborts = 16
)

// CancelMany requests the end of the newest runs in flight of the caller's tenant that match a filter: at most 1,000
// (cancelAtOnce), and often fewer. More runs may match if there is a NextCursor, which the next request passes.
// If the abort of a run fails, CancelMany still tries the others, and then returns the error. The caller may repeat the
// request: a run with a pending abort keeps it. With DryRun CancelMany only lists the runs.
func (s *Runs) CancelMany(ctx context.Context, c access.Caller, req api.CancelRunsRequest) (api.CanceledRuns, error) {
	if err := s.permit(ctx, c, CancelMany); err != nil {
		return api.CanceledRuns{}, err
	}
	if err := checkReason(req.Reason); err != nil {
		return api.CanceledRuns{}, err
	}
	f, err := cancelFilter(req)
	if err != nil {
		return api.CanceledRuns{}, err
	}
	f.Tenant = c.Tenant
	if err := s.byIndex(ctx, &f); err != nil {
		return api.CanceledRuns{}, err
	}
	page, err := s.store.List(ctx, f)
	if err != nil {
		return api.CanceledRuns{}, err
	}
	answer := api.CanceledRuns{Matched: len(page.Runs), RunIDs: make([]string, len(page.Runs)), NextCursor: text(page.Next)}
	for i, st := range page.Runs {
		answer.RunIDs[i] = string(st.ID)
	}
	if req.DryRun {
		return answer, nil
	}
	// The audit entry comes first, so that a request that fails halfway is recorded.
	filter, err := json.Marshal(req.Filter)
	if err != nil {
		return api.CanceledRuns{}, err
	}
	s.note(ctx, c, CancelMany, Clip(string(filter), MaxDetail), nil)
	answer.Cancelled, err = s.cancelAll(ctx, c, page.Runs, req.Reason)
	return answer, err
}

// cancelAll aborts runs, and returns how many it aborted. It ignores runs that have ended or were deleted.
func (s *Runs) cancelAll(ctx context.Context, c access.Caller, runs []state.State, reason string) (int, error) {
	var group errgroup.Group
	group.SetLimit(concurrentAborts)
	done := make([]bool, len(runs))
	for i, st := range runs {
		group.Go(s.guarded(func() error {
			err := s.abort(ctx, c, st, Canceling{Reason: reason})
			if _, ended := errors.AsType[*state.TerminalError](err); ended || errors.Is(err, state.ErrNotFound) {
				return nil
			}
			done[i] = err == nil
			return err
		}))
	}
	err := group.Wait()
	n := 0
	for _, ok := range done {
		if ok {
			n++
		}
	}
	return n, err
}

// cancelFilter returns the filter of a request. It refuses an empty filter, and a status of ended runs.
func cancelFilter(req api.CancelRunsRequest) (state.Filter, error) {
	in := req.Filter
	if in == nil {
		return state.Filter{}, invalid(`filter is missing: set one; {"filter": {"status": ["queued", "running", "waiting"]}} selects all runs in flight`)
	}
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("waiting_reason", in.WaitingReason)
	set("agent", in.Agent)
	set("loop", in.Loop)
	set("parent", in.Parent)
	set("batch", in.Batch)
	set("created_after", in.CreatedAfter)
	set("created_before", in.CreatedBefore)
	for k, v := range in.Metadata {
		query.Set("metadata."+k, v)
	}
	if len(in.Status) > 0 {
		query.Set("status", strings.Join(in.Status, ","))
	}
	if len(query) == 0 {
		return state.Filter{}, invalid(`filter is empty: set one of its fields; {"status": ["queued", "running", "waiting"]} selects all runs in flight`)
	}
	set("cursor", req.Cursor)
	f, err := ParseFilter(query)
	if err != nil {
		return f, err
	}
	for _, s := range f.Status {
		if s.Terminal() {
			return f, invalid("status %q: runs that have ended cannot be cancelled: write queued, running or waiting", s)
		}
	}
	if len(f.Status) == 0 {
		f.Status = []state.Status{state.Queued, state.Running, state.Waiting}
	}
	f.Limit, f.Bytes = cancelAtOnce, ListBytes
	return f, nil
}
