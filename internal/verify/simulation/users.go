package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// user submits one run and follows it to the end.
type user struct {
	s      *Deployment
	name   string
	dice   *dice
	agent  string
	tenant string

	run     string
	forks   []string
	status  string    // at the end
	aborted time.Time // when an abort was accepted, unless a message was sent after it
	seqs    int64     // events seen
	seen    [][]byte  // their data
}

// every is the interval at which a user polls.
const every = 4 * time.Second

// patience is the time that a user waits after the faults have ended.
const patience = 3 * time.Hour

func (u *user) client() *api.Client { return u.s.clients[u.tenant] }

func (u *user) live(ctx context.Context) error {
	time.Sleep(u.dice.between(0, u.s.cfg.Strike))
	if err := u.submit(ctx); err != nil {
		return err
	}
	cancelAt, sayAt := time.Time{}, time.Time{}
	if u.dice.chance(0.15) {
		cancelAt = time.Now().Add(u.dice.between(0, 3*time.Minute))
	}
	if u.dice.chance(0.15) {
		sayAt = time.Now().Add(u.dice.between(0, 4*time.Minute))
	}
	mode := []string{api.ModeEnqueue, api.ModeInterrupt, api.ModeRollback}[u.dice.n(3)]
	early := u.dice.chance(0.2)
	for {
		time.Sleep(every)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the run does not end: %w", err)
		}
		if !cancelAt.IsZero() && time.Now().After(cancelAt) {
			if u.cancel(ctx) {
				cancelAt = time.Time{}
			}
		}
		if !sayAt.IsZero() && time.Now().After(sayAt) {
			if u.signal(ctx, u.run, api.SignalRequest{SignalID: u.name + "-said", Message: json.RawMessage(`"and another thing"`), Mode: mode}) {
				sayAt = time.Time{}
			}
		}
		run, err := u.client().Get(ctx, u.run)
		if missing(err) && u.s.deleted(u.run) { // by retention, an evaluator, or u
			if u.s.settled() {
				return nil
			}
			continue
		}
		if missing(err) {
			// The store has lost it: only a failover may cause that.
			if !u.s.fellBack() {
				return fmt.Errorf("I1: run %s is gone", u.run)
			}
			if err := u.submit(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			continue
		}
		u.status = run.Status
		if u.dice.chance(0.02) {
			_ = u.reader().read(ctx, nil) // if the gateway does not answer, another time
		}
		if early && !run.Terminal() && u.dice.chance(0.1) {
			early = false
			if err := u.deleteEarly(ctx); err != nil {
				return err
			}
		}
		if run.Terminal() && cancelAt.IsZero() && sayAt.IsZero() && u.s.settled() {
			return nil
		}
		if run.Waiting != nil {
			u.answer(ctx, run)
		}
	}
}

func (u *user) reader() reader { return reader{u.s, u.dice, u.tenant, u.run} }

// submit repeats the submission under one key until it is accepted, so that it counts once.
func (u *user) submit(ctx context.Context) error {
	u.aborted = time.Time{}
	for ctx.Err() == nil {
		run, err := u.client().Submit(ctx, api.SubmitRequest{Agent: u.agent, Input: json.RawMessage(`"go"`)}, u.name)
		if err == nil {
			if u.run != "" && u.run != run.ID && !u.s.fellBack() {
				return fmt.Errorf("the key %s returned %s and %s", u.name, u.run, run.ID)
			}
			u.run = run.ID
			// Submit it twice, to check that it is one run.
			if again, err := u.client().Submit(ctx, api.SubmitRequest{Agent: u.agent, Input: json.RawMessage(`"go"`)}, u.name); err == nil && again.ID != run.ID && !u.s.fellBack() {
				return fmt.Errorf("the key %s returned %s and %s", u.name, run.ID, again.ID)
			}
			return nil
		}
		if refused(err) {
			return fmt.Errorf("submit: %w", err)
		}
		time.Sleep(time.Second)
	}
	return fmt.Errorf("no gateway accepts the run: %w", ctx.Err())
}

// cancel cancels the run, and reports whether no further attempt is needed.
func (u *user) cancel(ctx context.Context) bool {
	_, err := u.client().Cancel(ctx, u.run, "enough")
	u.s.note("", "%s: cancel %s: %v", u.name, u.run, err)
	if err == nil {
		u.aborted = time.Now()
		return true
	}
	return refused(err)
}

// signal sends a signal, and reports whether no further attempt is needed.
func (u *user) signal(ctx context.Context, run string, r api.SignalRequest) bool {
	if r.Message != nil {
		u.aborted = time.Time{}
		u.s.outside.speak(state.RunID(run))
	}
	_, err := u.client().Signal(ctx, run, r)
	u.s.note("", "%s: signal %s, %s: %v", u.name, run, r.SignalID, err)
	return err == nil || refused(err)
}

// answer answers the wait of a run.
func (u *user) answer(ctx context.Context, run api.Run) {
	id := fmt.Sprintf("%s-%s-%d", u.name, run.ID, run.Version)
	for _, c := range run.Waiting.Calls {
		switch run.Waiting.Reason {
		case "waiting_approval":
			decision := "approve"
			if u.dice.chance(0.3) {
				decision = "deny"
			}
			u.signal(ctx, run.ID, api.SignalRequest{SignalID: id + c.ID, Approvals: []api.Approval{{CallID: c.ID, Decision: decision, Hash: c.Hash}}})
		case "waiting_client_tool":
			u.signal(ctx, run.ID, api.SignalRequest{SignalID: id + c.ID, ToolResults: []api.ToolResult{{CallID: c.ID, Content: json.RawMessage(`"picked"`)}}})
		}
	}
	if run.Waiting.Reason == "waiting_human_input" {
		yes := "yes"
		u.signal(ctx, run.ID, api.SignalRequest{SignalID: id, Answer: &yes})
	}
}

// deleteEarly tries to delete a run that may be live. A request that is refused changes
// nothing.
func (u *user) deleteEarly(ctx context.Context) error {
	before, err := u.s.tree(ctx, u.client(), u.run)
	if err != nil {
		return nil //nolint:nilerr // not now
	}
	u.s.disown(before)
	err = u.client().Delete(ctx, u.run)
	u.s.note("", "%s: delete %s early: %v", u.name, u.run, err)
	if err == nil || !conflict(err) {
		return nil
	}
	for id := range before {
		if u.s.deleted(id) {
			return fmt.Errorf("the deletion of %s was refused (%w), and %s is deleted", u.run, err, id)
		}
	}
	return nil
}

// delete deletes an ended run with its descendants.
func (u *user) delete(ctx context.Context) error {
	for ctx.Err() == nil {
		all, err := u.s.tree(ctx, u.client(), u.run)
		if err == nil {
			u.s.disown(all)
			err = u.client().Delete(ctx, u.run)
			u.s.note("", "%s: delete %s with %d runs: %v", u.name, u.run, len(all), err)
		}
		if err == nil || missing(err) {
			for id := range all {
				if !u.s.deleted(id) {
					return fmt.Errorf("%s was deleted, and its descendant %s was not", u.run, id)
				}
			}
			return nil
		}
		time.Sleep(every) // a child may still work for a cancelled parent
	}
	return fmt.Errorf("%s cannot be deleted: %w", u.run, ctx.Err())
}

// fork forks an ended run, and follows the fork.
func (u *user) fork(ctx context.Context) error {
	turns, err := u.client().Turns(ctx, u.run)
	if err != nil || len(turns) == 0 {
		return nil //nolint:nilerr // not now
	}
	turn, key := u.dice.n(len(turns)), u.name+" fork"
	var id string
	for ctx.Err() == nil && id == "" {
		run, err := u.client().ForkWithKey(ctx, u.run, api.ForkRequest{Turn: &turn, Input: json.RawMessage(`"once more"`)}, key)
		u.s.note("", "%s: fork %s: %v", u.name, u.run, err)
		if err != nil && refused(err) {
			return nil // the turn cannot be forked, or the run is gone
		}
		if err == nil {
			id = run.ID
		}
		time.Sleep(time.Second)
	}
	u.forks = append(u.forks, id)
	for ctx.Err() == nil {
		time.Sleep(every)
		run, err := u.client().Get(ctx, id)
		if missing(err) && (u.s.deleted(id) || u.s.fellBack()) {
			return nil
		}
		if err != nil {
			continue
		}
		if run.Terminal() {
			return nil
		}
		if run.Waiting != nil {
			u.answer(ctx, run)
		}
	}
	return fmt.Errorf("I2: the fork %s of %s does not end: %w", id, u.run, ctx.Err())
}

// tree returns a run and its descendants.
func (s *Deployment) tree(ctx context.Context, c *api.Client, root string) (map[string]bool, error) {
	all := map[string]bool{root: true}
	for above := []string{root}; len(above) > 0; {
		page, err := c.List(ctx, url.Values{"parent": {above[0]}, "limit": {"100"}})
		if err != nil {
			return nil, err
		}
		above = above[1:]
		for _, run := range page.Items {
			all[run.ID] = true
			above = append(above, run.ID)
		}
	}
	return all, nil
}

// deleted reports whether the store has deleted a run.
func (s *Deployment) deleted(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.world.deleted[state.RunID(id)]
	return ok
}

// disown records runs that a user deletes, as opposed to retention.
func (s *Deployment) disown(all map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range all {
		s.unwanted[state.RunID(id)] = true
	}
}

func conflict(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status == http.StatusConflict
}

// watch follows the run's events from the first, and checks that there is no gap and no duplicate.
func (u *user) watch(ctx context.Context) error {
	for e, err := range u.client().Events(ctx, u.run, u.seqs) {
		switch {
		case err != nil:
			return err
		case e.Seq == 0:
		case e.Seq != u.seqs+1 && !u.s.fellBack():
			return fmt.Errorf("I9: event %d of %s comes after %d", e.Seq, u.run, u.seqs)
		default:
			u.seqs = e.Seq
			u.seen = append(u.seen, e.Data)
		}
	}
	return nil
}

// batch submits some runs at once, of which parallel may be in flight.
type batch struct {
	s        *Deployment
	name     string
	dice     *dice
	agent    string
	tenant   string
	parallel int
}

const batchSize = 6

func (b *batch) see(ctx context.Context) error {
	time.Sleep(b.dice.between(0, b.s.cfg.Strike))
	r := api.BatchRequest{MaxParallel: b.parallel}
	for range batchSize {
		r.Runs = append(r.Runs, api.SubmitRequest{Agent: b.agent, Input: json.RawMessage(`"go"`)})
	}
	id := ""
	for ctx.Err() == nil {
		time.Sleep(every)
		if id == "" {
			accepted, err := b.s.clients[b.tenant].SubmitBatch(ctx, r, b.name)
			if err == nil && len(accepted.RunIDs) != batchSize {
				return fmt.Errorf("I1: batch %s has %d runs", accepted.BatchID, len(accepted.RunIDs))
			}
			if err != nil && refused(err) {
				return fmt.Errorf("submit batch: %w", err)
			}
			id = accepted.BatchID
			b.s.batch(b.name, accepted.RunIDs)
			continue
		}
		switch got, err := b.s.clients[b.tenant].Batch(ctx, id); {
		case missing(err) && b.s.fellBack():
			id = ""
		case err != nil:
		case got.Done && b.s.settled():
			return nil
		case got.Total == batchSize && got.Counts != nil && sum(got.Counts) < batchSize:
			id = "" // a gateway died during it: its key completes it
		}
	}
	return fmt.Errorf("I2: batch %s of %s does not end: %w", id, b.name, ctx.Err())
}

// batch records the runs of a batch.
func (s *Deployment) batch(name string, runs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(runs) > 0 {
		s.batched[name] = runs
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func missing(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status == http.StatusNotFound
}

// refused reports whether an error will be the same at the next attempt.
func refused(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests
}
