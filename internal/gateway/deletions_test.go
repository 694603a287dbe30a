package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A hash approves a call of its own run only, even if the calls of two runs are identical.
func TestHashOfAnotherRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var ids, hashes []string
	for range 2 {
		id := s.submit("gated")
		ids = append(ids, id)
		eventually(t, "the call waits", func() bool {
			st, err := s.store.Load(t.Context(), state.RunID(id))
			if err != nil || st.Waiting == nil || len(st.Waiting.Calls) != 1 {
				return false
			}
			hashes = append(hashes, st.Waiting.Calls[0].Hash)
			return true
		})
	}
	for i, want := range []int{409, 202} {
		code, _, p := s.call("POST", "/v1/runs/"+ids[1]+"/signals", fmt.Sprintf(`{"approvals":[{"call_id":"c1","decision":"approve","hash":%q}]}`, hashes[i]))
		if code != want || code == 409 && p["code"] != "stale_approval" {
			t.Errorf("the hash of run %d for run 2: %d %v, want %d", i+1, code, p["code"], want)
		}
	}
}

// The gateway gives the reason when it refuses a message to a run that is being deleted, the deletion of a run
// below another, or the deletion of a tree in which a run is about to be created. The client may retry.
func TestRefusalsOfDeletions(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	ended := func() state.RunID {
		t.Helper()
		id := s.submit("hello")
		if _, err := s.client.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return state.RunID(id)
	}
	refused := func(what, method, path, body, want string) {
		t.Helper()
		if code, _, p := s.call(method, path, body); code != 409 || p["code"] != want {
			t.Errorf("%s: %d %v, want %s", what, code, p, want)
		}
	}
	sealed := ended()
	if _, err := s.store.Seal(t.Context(), sealed, "of another gateway"); err != nil {
		t.Fatal(err)
	}
	refused("a message", "POST", "/v1/runs/"+string(sealed)+"/signals", `{"message":"more"}`, "run_being_deleted")

	root := s.submit("slow")
	child := state.RunID(root).Plus(1)
	if _, err := s.store.Admit(t.Context(), state.RunID(root), []state.RunID{child}, 9); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Cancel(t.Context(), root, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Wait(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	refused("a tree that grows", "DELETE", "/v1/runs/"+root, "", "run_in_flight")
	below := state.State{
		ID: child, Agent: "hello", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal, Limits: state.Limits{MaxTurns: 9},
		Parent: &state.Parent{RunID: state.RunID(root), CallID: "c", Depth: 1},
	}
	below, err := below.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
	if err == nil {
		_, err = s.store.Create(t.Context(), state.NewRun{State: below, RedeliveryDelay: time.Hour}) // the sweeper cannot end it
	}
	if err != nil {
		t.Fatal(err)
	}
	refused("a run below another", "DELETE", "/v1/runs/"+string(child), "", "run_in_flight")
	refused("a tree with a run in flight", "DELETE", "/v1/runs/"+root, "", "run_in_flight")
}

// noting is a store that has marked a run of a batch as deleted but still has the run, like Redis between two
// steps of a deletion.
type noting struct {
	state.Store

	deleted map[int]state.Status
}

func (n noting) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	head, err := n.Load(ctx, first)
	if err != nil || n.deleted == nil {
		return n.Store.DeletedOfBatch(ctx, first)
	}
	_, origin, _ := head.BatchOrigin()
	return state.DeletedBatch{BatchOrigin: origin, Deleted: n.deleted}, nil
}

// A run of a batch counts once while it is being deleted.
func TestBatchDuringADeletion(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	b, err := s.client.SubmitBatch(t.Context(), request("hello", 3, 0), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range b.RunIDs {
		if _, err := s.client.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	there := s.over(noting{s.store, map[int]state.Status{1: state.Completed}}, s.bus)
	got, err := there.client.Batch(t.Context(), b.BatchID)
	if err != nil || !maps.Equal(got.Counts, map[string]int{"completed": 3}) || got.Deleted != 0 || !got.Done {
		t.Errorf("batch = %+v, %v; want three completed runs", got, err)
	}
}

// Deleted runs of a batch stay deleted when the batch is submitted again after their markers have expired.
func TestBatchAfterTheMarkers(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var mu sync.Mutex
	var later time.Duration
	store := memstore.New(memstore.Config{Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(later)
	}})
	there := s.over(store, membus.New())
	there.put("hello", `{model: {provider: scripted, responses: [{text: hi}]}}`)
	b, err := there.client.SubmitBatch(t.Context(), request("hello", 3, 0), "key")
	if err != nil {
		t.Fatal(err)
	}
	gone := state.RunID(b.RunIDs[1])
	c, err := store.Claim(t.Context(), state.ClaimRequest{Run: gone, Version: 1, Token: "t", Worker: "w", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err == nil {
		_, err = store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen()})
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, _, p := there.call("DELETE", "/v1/runs/"+string(gone), ""); code != 204 {
		t.Fatal(code, p)
	}
	mu.Lock()
	later = state.MarkerLifetime + time.Hour
	mu.Unlock()
	again, err := there.client.SubmitBatch(t.Context(), request("hello", 3, 0), "key")
	if err != nil || again.BatchID != b.BatchID || again.RunIDs[1] != b.RunIDs[1] {
		t.Errorf("the repeated submission = %+v, %v; want %+v", again, err, b)
	}
	if code, _, p := there.call("GET", "/v1/runs/"+string(gone), ""); code != 404 {
		t.Errorf("the deleted run: %d %v", code, p)
	}
}

// A batch is visible only to its tenant, also after its runs were deleted.
func TestBatchOfAnotherTenant(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	own := s.client("acme", access.Author, access.Submitter)
	if _, err := own.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	b, err := own.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{{Agent: "a", Input: api.Text("x")}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int{"acme": 200, "other": 404} {
		if code, p := s.do("GET", "/v1/batches/"+b.BatchID, s.key(tenant, access.Operator), "", ""); code != want {
			t.Errorf("tenant %s: %d %s, want %d", tenant, code, p.Code, want)
		}
	}
}

// A batch is stored completely even if its client disconnects.
func TestBatchOutlivesItsClient(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	there := s.over(&faulty{Store: s.store, finalized: map[state.RunID]int64{}, fail: func(call string, _ state.RunID) error {
		if call == "create" {
			leave()
			<-left
		}
		return nil
	}}, s.bus)
	if _, err := there.client.SubmitBatch(ctx, request("hello", 3, 0), ""); err == nil {
		t.Fatal("the client did not disconnect")
	}
	close(left)
	eventually(t, "all runs are stored", func() bool {
		page, err := s.client.List(t.Context(), nil)
		return err == nil && len(page.Items) == 3
	})
}

// passing is a store in which some runs end, or are deleted, before their aborts arrive.
type passing struct {
	state.Store

	errs map[state.RunID]error
}

func (p passing) Abort(ctx context.Context, id state.RunID, a state.Abort, delay time.Duration) (state.Wake, error) {
	if err := p.errs[id]; err != nil {
		return state.Wake{}, err
	}
	return p.Store.Abort(ctx, id, a, delay)
}

// If a run ends or is deleted between the list and its abort, the cancellation of the others succeeds and does
// not count it.
func TestCancelRunsThatEnd(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	ids := []string{s.submit("slow"), s.submit("slow"), s.submit("slow")}
	there := s.over(passing{s.store, map[state.RunID]error{
		state.RunID(ids[0]): &state.TerminalError{ID: state.RunID(ids[0]), Status: state.Completed},
		state.RunID(ids[1]): fmt.Errorf("run %s: %w", ids[1], state.ErrDeleted),
	}}, s.bus)
	code, _, got := there.call("POST", "/v1/runs:cancel", `{"filter":{"agent":"slow"}}`)
	if code != 202 || got["matched"] != 3.0 || got["cancelled"] != 1.0 {
		t.Errorf("%d %v, want one of three cancelled", code, got)
	}
	if run, err := s.client.Wait(t.Context(), ids[2]); err != nil || run.Status != "cancelled" {
		t.Errorf("the run in flight is %s, %v", run.Status, err)
	}
}
