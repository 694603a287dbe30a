package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// batchBodies is how many times the body of one submission a batch may have.
	batchBodies = 8

	// concurrentCreates bounds how many runs of a batch are created at once: with 50 ms to the
	// store, some 2,500 a second.
	concurrentCreates = 128

	// batchTimeout bounds the creation of a batch. It outlives the client.
	batchTimeout = time.Minute
)

// batchIn is api.BatchRequest with runs that are read one by one, so that an error
// names the run.
type batchIn struct {
	Runs        []json.RawMessage `json:"runs"`
	MaxParallel *int              `json:"max_parallel"`

	CountWaiting bool `json:"count_waiting"`
}

func (g *Gateway) postBatch(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	var in batchIn
	if err := api.Decode(body, &in); err != nil {
		return problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
	}
	key, trace := r.Header.Get("Idempotency-Key"), r.Header.Get(span.Header)
	if err := checkKey(key); err != nil {
		return err
	}
	caller := access.FromContext(r.Context())
	runs, err := g.batchOf(r.Context(), caller, in)
	if err != nil {
		return err
	}
	// A batch is not left half made because its client went away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), batchTimeout)
	defer cancel()
	made, err := g.createBatch(ctx, runs, submission{caller: caller, body: body, key: key, trace: trace})
	if err != nil {
		return err
	}
	g.metrics.submitted.WithLabelValues("http").Add(float64(len(made)))
	answer := api.BatchAccepted{BatchID: made[0].BatchID(), RunIDs: make([]string, len(made))}
	for i, st := range made {
		answer.RunIDs[i] = string(st.ID)
	}
	w.Header().Set("Location", "/v1/batches/"+answer.BatchID)
	return reply(w, http.StatusAccepted, answer)
}

// batchOf checks a batch and returns its runs, without ids. Nothing is created
// before all of them are found good.
func (g *Gateway) batchOf(ctx context.Context, caller access.Caller, in batchIn) ([]state.State, error) {
	size := len(in.Runs)
	if size < 1 || size > state.MaxBatch {
		return nil, invalid("runs has %d entries, 1 to %d are allowed", size, state.MaxBatch)
	}
	parallel := size
	if in.MaxParallel != nil {
		if parallel = min(*in.MaxParallel, size); parallel < 1 {
			return nil, invalid("max_parallel is %d, want at least 1; without it all runs start at once", *in.MaxParallel)
		}
	}
	now, err := g.clock.now(ctx)
	if err != nil {
		return nil, err
	}
	agents := map[string]*agent.Agent{} // one version for all
	runs := make([]state.State, size)
	for i, raw := range in.Runs {
		sub := submission{caller: caller}
		a, err := g.batchRun(ctx, raw, &sub, agents)
		if err != nil {
			return nil, inRun(i, err)
		}
		place := &state.Batch{Index: i, Size: size, MaxParallel: parallel, PendingInBatch: i >= parallel, CountWaiting: in.CountWaiting}
		if runs[i], err = g.runOf(sub, a, now, place); err != nil {
			return nil, inRun(i, err)
		}
	}
	return runs, nil
}

// batchRun reads one run of a batch into req and returns its agent.
func (g *Gateway) batchRun(ctx context.Context, raw json.RawMessage, sub *submission, agents map[string]*agent.Agent) (*agent.Agent, error) {
	req := &sub.req
	if int64(len(raw)) > g.cfg.MaxBody {
		return nil, problem(http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge, "it is larger than %d bytes", g.cfg.MaxBody)
	}
	if err := api.Decode(raw, req); err != nil {
		return nil, problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
	}
	if req.Agent == "" {
		return nil, invalid("agent is missing")
	}
	key := fmt.Sprintf("%s@%d", req.Agent, req.AgentVersion)
	if a := agents[key]; a != nil {
		return a, nil
	}
	a, err := g.compiled(ctx, sub.caller.Tenant, req.Agent, req.AgentVersion)
	agents[key] = a
	return a, err
}

// inRun says which run of a batch a problem is about.
func inRun(i int, err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return problem(p.Status, p.Code, "runs[%d]: %s", i, p.Detail)
	}
	return fmt.Errorf("runs[%d]: %w", i, err)
}

// createBatch stores the runs of a batch and starts those that may start. The first
// takes the key and decides the ids of all, so a batch that is submitted again under its
// key is the same one, completed if it has to be.
//
// A run is stored after the one before it in its lane, and started when its lane is
// stored, so that its end finds the next. If this gateway dies in between, what is stored
// runs: a run whose predecessor had ended by then is started by the sweeper's first look
// at it, and one whose successor is missing has nothing to start.
func (g *Gateway) createBatch(ctx context.Context, runs []state.State, sub submission) ([]state.State, error) {
	first, err := g.ids.next(runs[0].CreatedAt.Time, len(runs))
	if err != nil {
		return nil, err
	}
	made := make([]state.Created, len(runs))
	mark := fingerprint(sub)
	// The store knows a noisy tenant when most of the batch is stored, and the first runs
	// start before.
	start, wait := g.batchStarts(ctx, runs[0].Batch.MaxParallel >= state.Shards)
	defer wait()
	create := func(i int, key string) (err error) {
		run := runs[i]
		run.ID = first.Plus(i)
		ctx, submit := g.traceBatchRun(ctx, &run, sub.trace)
		defer func() { endSubmit(submit, run, made[i].State, err) }()
		c, err := g.store.Create(ctx, state.NewRun{State: run, Key: key, Fingerprint: mark, RedeliveryDelay: g.cfg.RedeliveryDelay})
		if errors.Is(err, state.ErrDeleted) {
			made[i] = state.Created{State: state.State{ID: run.ID}, Existing: true}
			return nil
		}
		if err != nil {
			return inRun(i, err)
		}
		if !c.Existing {
			g.noisy.note(c)
			g.changes.changed(run.Tenant, run.ID)
		}
		made[i] = c
		if _, waited := c.State.InLane(1); !waited {
			start(c)
		}
		return nil
	}
	if err := create(0, sub.storeKey()); err != nil {
		return nil, err
	}
	first = made[0].State.ID
	deleted := map[int]state.Status{} // of the batch that the key names: these are not created again
	if made[0].Existing {
		b, err := g.store.DeletedOfBatch(ctx, first)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return nil, err
		}
		deleted = b.Deleted
	}
	rest := make([]int, len(runs)-1)
	for i := range rest {
		rest[i] = i + 1
	}
	// Runs that are created together are of different lanes.
	for chunk := range slices.Chunk(rest, runs[0].Batch.MaxParallel) {
		var group errgroup.Group
		group.SetLimit(concurrentCreates)
		for _, i := range chunk {
			if _, gone := deleted[i]; gone {
				made[i] = state.Created{State: state.State{ID: first.Plus(i)}, Existing: true}
				continue
			}
			group.Go(g.guarded(func() error { return create(i, "") }))
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	stored := make([]state.State, len(made))
	for i, c := range made {
		stored[i] = c.State
		if _, waited := c.State.InLane(1); waited {
			start(c)
		}
	}
	return stored, nil
}

// batchStarts returns start, which publishes the first turn of a run unless the run is pending in
// its batch or was started before, and wait, which waits for the bus for a moment. Turns of a large
// batch go to the queue for noisy tenants.
func (g *Gateway) batchStarts(ctx context.Context, large bool) (start func(state.Created), wait func()) {
	var mu sync.Mutex
	var firsts []<-chan struct{}
	start = func(made state.Created) {
		st := made.State
		if st.Status != state.Queued || st.Version != 1 {
			return
		}
		t := firstTurn(made, st.TraceSpan)
		t.Noisy = t.Noisy || large
		first := g.outbox.post(func(ctx context.Context) error { return g.dispatch.Publish(ctx, t) })
		mu.Lock()
		defer mu.Unlock()
		firsts = append(firsts, first)
	}
	wait = func() { // the runs of the batch are stored, or have failed
		mu.Lock()
		defer mu.Unlock()
		g.outbox.await(ctx, firsts...)
	}
	return start, wait
}

func (g *Gateway) getBatch(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	first, err := state.ParseBatchID(id)
	if err != nil {
		return problem(http.StatusBadRequest, api.CodeInvalidID, "%q: %v", id, err)
	}
	deleted, err := g.store.DeletedOfBatch(r.Context(), first)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	origin := deleted.BatchOrigin
	if err != nil { // none was deleted
		if origin, err = g.batchOrigin(r.Context(), tenantOf(r), id, first); err != nil {
			return err
		}
	}
	if origin.Size == 0 || origin.Tenant != tenantOf(r) {
		return problem(http.StatusNotFound, api.CodeBatchNotFound, "there is no batch %s", id)
	}
	b, runs, err := g.batchStands(r.Context(), id, origin, deleted.Deleted)
	if err != nil {
		return err
	}
	if b.Page, err = cut(r, runs); err != nil {
		return err
	}
	return reply(w, http.StatusOK, b)
}

// batchOrigin returns what the runs of a batch of a tenant have in common: nothing if there are none.
func (g *Gateway) batchOrigin(ctx context.Context, tenant, id string, first state.RunID) (state.BatchOrigin, error) {
	head, err := g.store.Load(ctx, first) // lists may lag behind
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return state.BatchOrigin{}, err
	}
	if err != nil || head.Tenant != tenant {
		// The store may have lost the first. Of another tenant's batch the answer takes as long.
		page, err := g.store.List(ctx, state.Filter{Tenant: tenant, Batch: id, Limit: 1})
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

// batchStands returns how a batch stands, and those of its runs that were not deleted.
func (g *Gateway) batchStands(ctx context.Context, id string, origin state.BatchOrigin, deleted map[int]state.Status) (b api.Batch, runs []api.BatchRun, err error) {
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
	if _, err = g.eachRun(ctx, state.Filter{Tenant: origin.Tenant, Batch: id, Limit: state.MaxBatch}, add); err != nil {
		return b, nil, err
	}
	lost, err := g.lostOfBatch(ctx, id, origin, func(index int) bool { _, gone := deleted[index]; return gone || there[index] })
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
	// maxBatches is how many batches a page has at most: the runs of each are counted.
	maxBatches = 20

	// batchLooks is how many pages of runs are looked at for one page of batches, and
	// batchLook how many runs each has.
	batchLooks = 10
	batchLook  = 100
)

// listBatches lists the batches of a tenant, the newest first. Nobody keeps a list of them, so
// it goes along the runs; from a run of a batch it is one step to the first, as their ids lie
// side by side.
func (g *Gateway) listBatches(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	for name := range query {
		if name != "limit" && name != "cursor" && name != parameterTenant {
			return invalid("parameter %q is unknown: GET /v1/batches takes limit and cursor", name)
		}
	}
	limit, err := limitIn(query)
	if err != nil {
		return err
	}
	cursor := query.Get("cursor")
	if _, err := state.ParseRunID(cursor); cursor != "" && err != nil {
		return problem(http.StatusBadRequest, api.CodeInvalidCursor, "the cursor is not one that a list gave")
	}
	heads, next, err := g.batchHeads(r.Context(), tenantOf(r), cursor, min(limit, maxBatches))
	if err != nil {
		return err
	}
	list := make([]api.BatchSummary, len(heads))
	for i, run := range heads {
		first, origin, _ := run.BatchOrigin()
		deleted, err := g.store.DeletedOfBatch(r.Context(), first)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		b, _, err := g.batchStands(r.Context(), run.BatchID(), origin, deleted.Deleted)
		if err != nil {
			return err
		}
		list[i] = api.BatchSummary{
			ID: b.ID, Total: b.Total, MaxParallel: b.MaxParallel, CountWaiting: b.CountWaiting, Counts: b.Counts, Deleted: b.Deleted, Done: b.Done, CreatedAt: b.CreatedAt,
		}
	}
	return replyPage(w, api.NewPage(list, next))
}

// batchHeads returns a run of each batch of a tenant, the newest first, and where to continue.
// It looks at the runs after the cursor, within a bound, so there may be fewer than limit. A
// batch all of whose runs were deleted is not among them.
func (g *Gateway) batchHeads(ctx context.Context, tenant, cursor string, limit int) (heads []state.State, next string, err error) {
	for range batchLooks {
		page, err := g.store.List(ctx, state.Filter{Tenant: tenant, Limit: batchLook, Cursor: cursor})
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
