package gateway_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run that has ended can be deleted, one in flight cannot. A deleted run is not found.
func TestDeleteRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	done, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: []byte(`"hi"`)}, "")
	if err == nil {
		_, err = s.client.Wait(t.Context(), done.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	going, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "slow", Input: []byte(`"hi"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, p := s.call("DELETE", "/v1/runs/"+going.ID, ""); code != 409 || p["code"] != "run_in_flight" || !strings.Contains(p["detail"].(string), "cancellation") { //nolint:forcetypeassert // a problem has one
		t.Errorf("a run in flight = %d %v", code, p)
	}
	if code, _, p := s.call("DELETE", "/v1/runs/"+done.ID, ""); code != 204 {
		t.Errorf("a run that has ended = %d %v", code, p)
	}
	for _, path := range []string{"", "/messages", "/turns", "/events"} {
		if code, _, p := s.call("GET", "/v1/runs/"+done.ID+path, ""); code != 404 || p["code"] != "run_not_found" {
			t.Errorf("%s of a deleted run = %d %v", path, code, p)
		}
	}
	if code, _, p := s.call("DELETE", "/v1/runs/"+done.ID, ""); code != 404 {
		t.Errorf("again = %d %v", code, p)
	}
}

// partDeletion is a store whose first two deletions fail after they have marked the run as deleted, as can
// happen on JetStream.
type partDeletion struct {
	state.Store

	deletions atomic.Int32
}

func (h *partDeletion) Delete(ctx context.Context, id state.RunID) error {
	err := h.Store.Delete(ctx, id)
	if h.deletions.Add(1) <= 2 {
		return errors.New("nats: no responders available for request")
	}
	return err
}

// After a deletion that failed halfway, DELETE answers 503 until the store has removed the rest of the run.
func TestDeleteAfterAFailedDeletion(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit("hello")
	if _, err := s.client.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	store := &partDeletion{Store: s.store}
	there := s.over(store, s.bus)
	for i, want := range []int{503, 503, 404, 404} {
		if code, _, p := there.call("DELETE", "/v1/runs/"+id, ""); code != want {
			t.Errorf("request %d = %d %v, want %d", i+1, code, p, want)
		}
	}
	if n := store.deletions.Load(); n != 4 {
		t.Errorf("the gateway called Delete of the store %d times, want 4", n)
	}
}

// A batch with deleted runs ends and stays readable, also without its first run and, for a while, without any.
// Another tenant cannot see it.
func TestBatchWithDeletedRuns(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	submit := func() map[string]any {
		code, _, p := s.call("POST", "/v1/runs:batch", `{"runs": [{"agent": "hello", "input": "a"}, {"agent": "hello", "input": "b"}, {"agent": "slow", "input": "c"}]}`, "Idempotency-Key", "the batch")
		if code != 202 {
			t.Fatal(code, p)
		}
		return p
	}
	p := submit()
	batch, ids := p["batch_id"].(string), p["run_ids"].([]any) //nolint:forcetypeassert // of a batch
	remove := func(i int) {
		t.Helper()
		if code, _, p := s.call("DELETE", "/v1/runs/"+ids[i].(string), ""); code != 204 { //nolint:forcetypeassert // ids are texts
			t.Fatal(code, p)
		}
	}
	stands := func(done bool, deleted, completed, cancelled, items int) {
		t.Helper()
		code, _, b := s.call("GET", "/v1/batches/"+batch, "")
		counts, _ := b["counts"].(map[string]any)
		list, _ := b["items"].([]any)
		number := func(v any) int { n, _ := v.(float64); return int(n) }
		if code != 200 || b["done"] != done || number(b["deleted"]) != deleted || number(counts["completed"]) != completed || number(counts["cancelled"]) != cancelled || len(list) != items || number(b["total"]) != 3 {
			t.Errorf("batch: %d %v", code, b)
		}
	}
	for _, id := range ids[:2] {
		if _, err := s.client.Wait(t.Context(), id.(string)); err != nil { //nolint:forcetypeassert // ids are texts
			t.Fatal(err)
		}
	}
	remove(1)
	stands(false, 1, 2, 0, 2)
	if code, _, b := s.call("GET", "/v1/batches/"+batch, "", "Turnpike-Tenant", "other"); code != 404 {
		t.Errorf("another tenant reads the batch: %d %v", code, b)
	}
	if again := submit(); again["batch_id"] != batch {
		t.Errorf("the key gives batch %v, want %s", again["batch_id"], batch)
	}
	if code, _, p := s.call("GET", "/v1/runs/"+ids[1].(string), ""); code != 404 { //nolint:forcetypeassert // ids are texts
		t.Errorf("the batch was submitted again, and its deleted run is: %d %v", code, p)
	}
	remove(0)
	stands(false, 2, 2, 0, 1)
	if list, err := s.client.Batches(t.Context(), "", 10); err != nil || len(list.Items) != 1 || list.Items[0].ID != batch || list.Items[0].Deleted != 2 {
		t.Errorf("batches: %+v, %v", list, err)
	}
	s.call("POST", "/v1/runs/"+ids[2].(string)+"/cancel", "")              //nolint:forcetypeassert // ids are texts
	if _, err := s.client.Wait(t.Context(), ids[2].(string)); err != nil { //nolint:forcetypeassert // ids are texts
		t.Fatal(err)
	}
	stands(true, 2, 2, 1, 1)
	remove(2)
	stands(true, 3, 2, 1, 0)
	if again := submit(); again["batch_id"] == batch {
		t.Errorf("the key of a batch whose first run was deleted returns the same batch")
	}
}

// A fork outlives the deletion of its original.
func TestDeleteForkedRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: []byte(`"hi"`)}, "key")
	if err == nil {
		_, err = s.client.Wait(t.Context(), run.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, _, fork := s.call("POST", "/v1/runs/"+run.ID+"/fork", `{"turn": 0}`)
	if code >= 300 {
		t.Fatal(code, fork)
	}
	id, _ := fork["id"].(string)
	if _, err := s.client.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if code, _, p := s.call("DELETE", "/v1/runs/"+run.ID, ""); code != 204 {
		t.Fatal(code, p)
	}
	if code, _, p := s.call("GET", "/v1/runs/"+id+"/messages", ""); code != 200 {
		t.Errorf("the fork of a deleted run: %d %v", code, p)
	}
	if code, _, p := s.call("POST", "/v1/runs/"+run.ID+"/signals", `{"message": "more"}`); code != 404 || p["code"] != "run_not_found" {
		t.Errorf("a message to a deleted run: %d %v", code, p)
	}
	again, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: []byte(`"hi"`)}, "key")
	if err != nil || again.ID == run.ID {
		t.Errorf("the key of a deleted run returns %s, %v", again.ID, err)
	}
}
