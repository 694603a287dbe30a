package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// BatchBodies is the maximum size of a batch, as a multiple of the maximum body of one
	// submission.
	BatchBodies = 8

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

// SubmitBatch starts the runs of a batch. It checks all of them before it creates the first. If it fails later, for
// example because the store fails, some of the runs may exist: a repetition with the same key and content completes the
// batch, if the runs still pass the checks. It reads the runs from in.Body, not from in.Request. Once the checks are
// made it continues even if its caller disconnects, for at most a minute (batchTimeout).
func (s *Submissions) SubmitBatch(ctx context.Context, c access.Caller, in Submission) (api.BatchAccepted, error) {
	if err := s.permit(ctx, c, SubmitBatch); err != nil {
		return api.BatchAccepted{}, err
	}
	made, err := s.submitBatch(ctx, c, in)
	s.note(ctx, c, SubmitBatch, made.BatchID, err)
	return made, err
}

func (s *Submissions) submitBatch(ctx context.Context, c access.Caller, in Submission) (api.BatchAccepted, error) {
	var req batchIn
	if err := api.Decode(in.Body, &req); err != nil {
		return api.BatchAccepted{}, problem(badRequest, api.CodeInvalidJSON, "%v", err)
	}
	if err := checkKey(in.Key); err != nil {
		return api.BatchAccepted{}, err
	}
	sub := submission{caller: c, body: in.Body, key: in.Key, trace: in.Trace}
	var first state.RunID
	runs, err := s.batchOf(ctx, c, req)
	if err != nil {
		first, err = s.earlierBatch(ctx, sub, len(req.Runs), err)
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
		defer cancel()
		if first, err = s.createBatch(ctx, runs, sub); err != nil {
			first, err = s.earlierBatch(ctx, sub, len(req.Runs), err)
		}
	}
	if err != nil {
		return api.BatchAccepted{}, err
	}
	s.submitted.WithLabelValues(in.Source).Add(float64(len(req.Runs)))
	answer := api.BatchAccepted{BatchID: (&state.State{ID: first, Batch: &state.Batch{}}).BatchID(), RunIDs: make([]string, len(req.Runs))}
	for i := range answer.RunIDs {
		answer.RunIDs[i] = string(first.Plus(i))
	}
	return answer, nil
}

// earlierBatch returns the first of the size runs that an earlier request with the key and the content of sub has
// created, although sub is refused now. It returns the refusal if there was no such request, or if one of its runs is
// missing and was not deleted: that run cannot be created now.
func (s *Submissions) earlierBatch(ctx context.Context, sub submission, size int, refusal error) (state.RunID, error) {
	first, err := s.earlier(ctx, sub, refusal)
	if err != nil {
		return "", err
	}
	missing := make([]bool, size)
	var group errgroup.Group
	group.SetLimit(concurrentCreates)
	for i := range missing {
		group.Go(s.guarded(func() error {
			_, err := s.store.Load(ctx, first.ID.Plus(i))
			if missing[i] = errors.Is(err, state.ErrNotFound); missing[i] {
				err = nil
			}
			return err
		}))
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	if !slices.Contains(missing, true) {
		return first.ID, nil
	}
	// A store records the deletion of a run of a batch before it removes the run.
	b, err := s.store.DeletedOfBatch(ctx, first.ID)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return "", err
	}
	for i, gone := range missing {
		if _, deleted := b.Deleted[i]; gone && !deleted {
			return "", refusal
		}
	}
	return first.ID, nil
}

// batchOf checks a batch and returns its runs, without ids. It creates nothing.
func (s *Submissions) batchOf(ctx context.Context, caller access.Caller, in batchIn) ([]state.State, error) {
	size := len(in.Runs)
	if size < 1 || size > state.MaxBatch {
		return nil, invalid("runs has %d entries: send 1 to %d", size, state.MaxBatch)
	}
	parallel := size
	if in.MaxParallel != nil {
		if parallel = min(*in.MaxParallel, size); parallel < 1 {
			return nil, invalid("max_parallel is %d: set 1 or more, or omit it to start all runs at once", *in.MaxParallel)
		}
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return nil, err
	}
	agents := map[string]*agent.Agent{} // one version for all
	runs := make([]state.State, size)
	var instructions batchInstructions
	files, schemas := map[string]file.File{}, jsonschema.NewBatch()
	for i, raw := range in.Runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sub := submission{caller: caller, files: files, schemas: schemas}
		a, err := s.batchRun(ctx, raw, &sub, agents)
		if err != nil {
			return nil, inRun(i, err)
		}
		place := &state.Batch{Index: i, Size: size, MaxParallel: parallel, PendingInBatch: i >= parallel, CountWaiting: in.CountWaiting}
		if runs[i], err = s.runOf(ctx, sub, a, instructions.instruct, now, place); err != nil {
			return nil, inRun(i, err)
		}
	}
	return runs, nil
}

// batchRun reads one run of a batch into sub.req and returns its agent. It stores the agent in agents, so that all runs
// of a batch that name the same agent have the same version.
func (s *Submissions) batchRun(ctx context.Context, raw json.RawMessage, sub *submission, agents map[string]*agent.Agent) (*agent.Agent, error) {
	req := &sub.req
	if int64(len(raw)) > s.cfg.MaxBody {
		return nil, problem(tooLarge, api.CodeBodyTooLarge, "the run has %d bytes, at most %d are allowed: shorten it, or upload its files first, and send their ids", len(raw), s.cfg.MaxBody)
	}
	if err := api.Decode(raw, req); err != nil {
		return nil, problem(badRequest, api.CodeInvalidJSON, "%v", err)
	}
	if req.Agent == "" {
		return nil, invalid("agent is missing: name an agent")
	}
	key := fmt.Sprintf("%s@%d", req.Agent, req.AgentVersion)
	if a := agents[key]; a != nil {
		return a, nil
	}
	a, err := s.defs.compiled(ctx, sub.caller.Tenant, req.Agent, req.AgentVersion)
	agents[key] = a
	return a, err
}

// inRun adds the index of the run in its batch to a problem.
func inRun(i int, err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		in := problem(Kind{p.Status, p.Title}, p.Code, "runs[%d]: %s", i, p.Detail)
		for _, f := range p.Errors {
			f.At = fmt.Sprintf("runs[%d].%s", i, f.At)
			in.Errors = append(in.Errors, f)
		}
		return in
	}
	return fmt.Errorf("runs[%d]: %w", i, err)
}

// createBatch stores the runs of a batch, starts those that may start, and returns the id of the first. The first run
// takes the key and determines the ids of all. So a batch that is submitted again with its key is the same batch, of
// which createBatch creates the missing runs, except deleted ones. But if the first run was deleted, that has freed the
// key, and createBatch creates another batch.
//
// MaxParallel divides a batch into that many sequences, in each of which one run starts after another (see
// state.State.InLane). createBatch stores each run after its predecessor. It starts a run that has a successor only
// when the whole batch is stored, so that the end of the run finds the successor. If createBatch fails or this gateway
// dies before that, the stored runs still execute: the sweeper starts the queued ones, and those whose predecessor
// ended before they were stored.
func (s *Submissions) createBatch(ctx context.Context, runs []state.State, sub submission) (state.RunID, error) {
	first, err := s.ids.next(runs[0].CreatedAt.Time, len(runs))
	if err != nil {
		return "", err
	}
	var messages []state.Message
	for _, run := range runs {
		messages = append(messages, messagesOf(run)...)
	}
	if err := s.bind(ctx, runs[0].Tenant, file.User{Run: first, Runs: len(runs)}, messages...); err != nil {
		return "", err
	}
	made := make([]state.Created, len(runs))
	mark := fingerprint(sub)
	// The store knows a noisy tenant when most of the batch is stored, and the first runs
	// start before.
	start, wait := s.batchStarts(ctx, runs[0].Batch.MaxParallel >= state.Shards)
	defer wait()
	create := func(i int, key string) (err error) {
		run := runs[i]
		run.ID = first.Plus(i)
		ctx, submit := s.traceBatchRun(ctx, &run, sub.trace)
		defer func() { endSubmit(submit, run, made[i].State, err) }()
		c, err := s.create(ctx, state.NewRun{State: run, Key: key, Fingerprint: mark})
		if errors.Is(err, state.ErrDeleted) {
			made[i] = state.Created{State: state.State{ID: run.ID}, Existing: true}
			return nil
		}
		if err != nil {
			return inRun(i, err)
		}
		if !c.Existing {
			s.noisy.note(c)
			s.cfg.Changed(run.Tenant, run.ID)
		}
		made[i] = c
		if _, waited := c.State.InLane(1); !waited {
			start(c)
		}
		return nil
	}
	if err := create(0, sub.storeKey()); err != nil {
		return "", err
	}
	first = made[0].State.ID
	deleted := map[int]state.Status{} // of the batch that the key names: these are not created again
	if made[0].Existing {
		b, err := s.store.DeletedOfBatch(ctx, first)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return "", err
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
			group.Go(s.guarded(func() error { return create(i, "") }))
		}
		if err := group.Wait(); err != nil {
			return "", err
		}
	}
	for _, c := range made {
		if _, waited := c.State.InLane(1); waited {
			start(c)
		}
	}
	return first, nil
}

// batchStarts returns two functions. start posts the first turn of a run to the outbox, unless the run is pending in
// its batch or has changed since it was created; with large, the turn goes to the queue for noisy tenants in any case.
// wait waits up to outboxPatience for the first attempt to publish each of these turns; while the bus is unavailable,
// it does not wait. start may be called concurrently, but not during wait.
func (s *Submissions) batchStarts(ctx context.Context, large bool) (start func(state.Created), wait func()) {
	var mu sync.Mutex
	var firsts []<-chan struct{}
	start = func(made state.Created) {
		st := made.State
		if st.Status != state.Queued || st.Version != 1 {
			return
		}
		t := firstTurn(made, st.TraceSpan)
		t.Noisy = t.Noisy || large
		first := s.outbox.post(func(ctx context.Context) error { return s.dispatch.Publish(ctx, t) })
		mu.Lock()
		defer mu.Unlock()
		firsts = append(firsts, first)
	}
	wait = func() { // the runs of the batch are stored, or have failed
		mu.Lock()
		defer mu.Unlock()
		s.outbox.await(ctx, firsts...)
	}
	return start, wait
}
