package state_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each event of a session has the turn and the time of its entry, or of its message. Messages that no user wrote are
// left out, and calls to other agents are delegations, with their results.
func TestSession(t *testing.T) {
	t.Parallel()
	at := func(n int) state.Time { return state.At(time.UnixMilli(int64(n) * 1000)) }
	hello := input("hello", "made up")
	hello[0].At, hello[0].Turn, hello[1].Synthetic = at(1), 1, true
	asks, answers, fails := said("a1", "c1", "c2"), done("c1"), done("c2")
	asks.Turn, asks.At = 2, at(2)
	waits := state.Entry{Type: state.EntryWaiting, Turn: 2, Waiting: &state.Wait{Calls: []state.WaitCall{{ID: "c1", RunID: "run_01JD3X9K3W8Q4V5N6M7P8R9S00"}, {ID: "c2"}}}}
	answers.Turn, answers.At = 3, at(3)
	fails.Turn, fails.At, fails.Type, fails.IsError = 3, at(4), state.EntryReused, true
	log := []state.Entry{
		{Type: state.EntrySubmitted, Messages: hello}, asks, waits, answers, fails,
		{Type: state.EntryCompacted, MessageIDs: []string{"a1"}, Messages: input("hello again")},
		{Type: state.EntryFinished, Turn: 5, At: at(5), Output: new("done")},
	}
	want := []state.SessionEvent{
		{Type: "user_message", Turn: 1, At: at(1), Content: "hello"},
		{Type: "delegation_request", Turn: 2, At: at(2), Name: "t", CallID: "c1", Content: "{}"},
		{Type: "tool_call", Turn: 2, At: at(2), Name: "t", CallID: "c2", Content: "{}"},
		{Type: "delegation_response", Turn: 3, At: at(3), Name: "t", CallID: "c1", Content: "result of c1"},
		{Type: "tool_result", Turn: 3, At: at(4), Name: "t", CallID: "c2", Content: "result of c2", IsError: true},
		{Type: "agent_response", Turn: 5, At: at(5), Content: "done"},
	}
	if diff := cmp.Diff(want, state.Session(log)); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
}
