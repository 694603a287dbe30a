package record_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A decoded record has every field of the encoded one.
func TestEncode(t *testing.T) {
	t.Parallel()
	at := state.At(start)
	r := record.Record{
		Header: state.State{
			ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal, Status: state.Running, Version: 3, Format: state.Format,
			Limits: state.Limits{MaxTurns: 20}, CreatedAt: at, UpdatedAt: at, Transition: state.Transition{Reason: state.NextTurn, Version: 3, At: at},
		},
		Status: state.Running, Version: 3, Token: "token", EagerToken: "eager", Owner: "worker", LeaseEnd: at, Attempts: 2, Paused: 1, StartedAt: at,
		Evicted: []string{"a", "b"}, EvictedAt: at, Abort: &state.Abort{Reason: "why"}, AbortReach: 1, Awaits: []string{"w"}, Inbox: []state.Signal{{ID: "s"}}, InboxBytes: 9,
		Seen: []string{"s"}, SeenMarks: map[string]string{"s": "f"}, Started: []string{"c"}, Starts: []state.Start{{CallID: "c"}}, Results: []state.Entry{{Type: state.EntryTool, At: at}},
		CommitID: "commit", Committed: state.Committed{Status: state.Queued, Version: 3}, LogLen: 7, Base: 5, Finalized: 4, Due: at, WakeAt: at, Sweeps: 1,
		Key: "key", Indexed: []string{"n", "m"}, Sealed: "sealed", QueuedAt: at,
	}
	for i, v := 0, reflect.ValueOf(r); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the record has no %s: give it one", v.Type().Field(i).Name)
		}
	}
	encoded, err := record.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.Decode(string(encoded))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("decoded, minus is the encoded one:\n%s", diff)
	}
}
