package gateway_test

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// A complete batch is found by its key although its agent was deleted. An incomplete one is refused, and
// completed once the agent exists again.
func TestBatchIsRepeatedWithoutItsAgent(t *testing.T) {
	t.Parallel()
	l := newMemoryLot(t)
	const hello = `{model: {provider: scripted, responses: [{text: hi}]}}`
	var lost atomic.Bool // fails the connection after two runs
	var created atomic.Int64
	lost.Store(true)
	l.store.fail = func(call string, _ state.RunID) error {
		if call == "create" && lost.Load() && created.Add(1) > 2 {
			return errors.New("connection lost")
		}
		return nil
	}
	remove := func() {
		t.Helper()
		if err := l.client.DeleteAgent(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.client.SubmitBatch(t.Context(), request("hello", 4, 1), "k")
	wantCode(t, "a batch without a store", err, api.CodeStoreUnavailable)
	lost.Store(false)
	remove()
	_, err = l.client.SubmitBatch(t.Context(), request("hello", 4, 1), "k")
	wantCode(t, "half a batch without its agent", err, api.CodeAgentNotFound)
	l.put("hello", hello)
	whole := l.batch("hello", 4, 1, "k")
	l.wait(whole.BatchID)
	remove()
	if again := l.batch("hello", 4, 1, "k"); !cmp.Equal(again, whole) {
		t.Errorf("the same batch without its agent = %v, was %v", again, whole)
	}
	if err := l.client.Delete(t.Context(), whole.RunIDs[2]); err != nil {
		t.Fatal(err)
	}
	if again := l.batch("hello", 4, 1, "k"); !cmp.Equal(again, whole) {
		t.Errorf("the same batch with a deleted run = %v, was %v", again, whole)
	}
	_, err = l.client.SubmitBatch(t.Context(), request("hello", 5, 1), "k")
	wantCode(t, "another batch under the key", err, api.CodeIdempotencyConflict)
	_, err = l.client.SubmitBatch(t.Context(), request("hello", 4, 1), "new")
	wantCode(t, "the batch under another key", err, api.CodeAgentNotFound)
}

// A submitter over the bus that repeats its message gets the ended run, although its agent was deleted.
func TestReplyWithoutTheAgent(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	send := func(subject string) (run api.Run) {
		t.Helper()
		s.bus.Submit("default", "hello", []byte(`{"input":"x"}`), map[string]string{"Nats-Msg-Id": "m1", "Turnpike-Reply": subject})
		testbed.Eventually(t, "a reply", func() error {
			replies := s.bus.Replies(subject)
			if len(replies) == 0 {
				return errors.New("there is none")
			}
			return json.Unmarshal(replies[0], &run)
		})
		return run
	}
	first := send("first")
	if err := s.client.DeleteAgent(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	if again := send("again"); again.ID != first.ID || again.Status != "completed" {
		t.Errorf("reply = run %q, %s; want run %s, completed", again.ID, again.Status, first.ID)
	}
}
