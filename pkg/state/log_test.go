package state_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func said(id string, calls ...string) state.Entry {
	m := state.Message{ID: id, Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: id}}}
	for _, c := range calls {
		m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: c, Name: "t", Arguments: "{}"})
	}
	return state.Entry{Type: state.EntryModel, Message: &m, Usage: &state.Usage{ModelCalls: 1, OutputTokens: 10}}
}

func done(call string) state.Entry {
	m := state.ToolResult(call, "result of "+call, false)
	m.ID = "r-" + call
	return state.Entry{Type: state.EntryTool, CallID: call, Name: "t", Message: &m, DurationMS: 3}
}

func input(ids ...string) []state.Message {
	var ms []state.Message
	for _, id := range ids {
		m := state.UserText(id)
		m.ID = id
		ms = append(ms, m)
	}
	return ms
}

func ids(ms []state.Message) string {
	var out []string
	for _, m := range ms {
		id := m.ID
		if m.Tombstoned {
			id += "(dead)"
		}
		if m.Compacted {
			id += "(compacted)"
		}
		out = append(out, id)
	}
	return strings.Join(out, " ")
}

// Results follow the message that called, in the order of the calls, wherever they are in the log (A14, I5).
func TestViewOrder(t *testing.T) {
	t.Parallel()
	log := []state.Entry{
		{Type: state.EntrySubmitted, Messages: input("u1", "u2")},
		said("a1", "c1", "c2", "c3"),
		done("c3"),
		{Type: state.EntryTransition, Messages: input("steer")},
		done("c1"),
		{Type: state.EntryProgress},
		done("c2"),
		{Type: state.EntryTransition},
		said("a2", "c4"),
		{Type: state.EntryWaiting, Waiting: &state.Wait{}},
	}
	if got, want := ids(state.View(log)), "u1 u2 a1 r-c1 r-c2 r-c3 steer a2"; got != want {
		t.Errorf("View = %s, want %s", got, want)
	}
	log = append(log, done("c4"), said("a3"))
	if got, want := ids(state.View(log)), "u1 u2 a1 r-c1 r-c2 r-c3 steer a2 r-c4 a3"; got != want {
		t.Errorf("View = %s, want %s", got, want)
	}
	if got := state.View(nil); len(got) != 0 {
		t.Errorf("View of an empty log = %s", ids(got))
	}
}

// Providers repeat call ids: a result belongs to the response before it.
func TestViewRepeatedCallIDs(t *testing.T) {
	t.Parallel()
	again := done("c1")
	m := *again.Message
	m.ID = "r-c1-again"
	again.Message = &m
	log := []state.Entry{{Type: state.EntrySubmitted, Messages: input("u1")}, said("a1", "c1"), done("c1"), said("a2", "c1"), again}
	if got, want := ids(state.View(log)), "u1 a1 r-c1 a2 r-c1-again"; got != want {
		t.Errorf("View = %s, want %s", got, want)
	}
}

// A withdrawn message takes the results of its calls with it; the full view shows and marks it.
func TestViewTombstones(t *testing.T) {
	t.Parallel()
	log := []state.Entry{
		{Type: state.EntrySubmitted, Messages: input("u1")},
		said("a1", "c1"),
		done("c1"),
		{Type: state.EntryTombstoned, MessageIDs: []string{"a1"}},
		said("a2"),
	}
	if got, want := ids(state.View(log)), "u1 a2"; got != want {
		t.Errorf("View = %s, want %s", got, want)
	}
	if got, want := ids(state.FullView(log)), "u1 a1(dead) r-c1 a2"; got != want {
		t.Errorf("FullView = %s, want %s", got, want)
	}
	if log[1].Message.Tombstoned {
		t.Error("FullView wrote into the log")
	}
}

// The view grows by appending: a later view begins with the earlier one, until something is withdrawn.
func TestViewGrows(t *testing.T) {
	t.Parallel()
	log := []state.Entry{
		{Type: state.EntrySubmitted, Messages: input("u1")}, said("a1", "c1", "c2"), done("c2"), done("c1"), said("a2", "c3"), done("c3"), said("a3"),
	}
	whole := ids(state.View(log))
	for _, n := range []int{0, 1, 4, 6, 7} { // without open calls
		if got := ids(state.View(log[:n])); !strings.HasPrefix(whole, got) {
			t.Errorf("View of %d entries = %s, which does not begin %s", n, got, whole)
		}
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	s := must(t, state.State{}, state.Submitted, state.Entry{})
	s = s.Append(said("a1", "c1", "c2")).Append(done("c1"))
	reused := done("c2")
	reused.Type, reused.IsError = state.EntryReused, true
	s = must(t, s.Append(reused), state.NextTurn, state.Entry{Worker: "w", Attempt: 2, DurationMS: 9, Detail: "x"})
	// A recovery marks a turn and is not a transition.
	s = s.Append(state.Entry{Type: state.EntryTransition, Reason: state.Recovered})
	s = must(t, s.Append(said("a2")), state.EndCompleted, state.Entry{})
	rows := state.Audit(s.Log)
	if len(rows) != 3 {
		t.Fatalf("%d rows, want 3: %+v", len(rows), rows)
	}
	want := state.AuditRow{
		Version: 2, Turn: 0, Reason: state.NextTurn, Detail: "x", Status: state.Queued, At: noon, DurationMS: 9, Attempt: 2, Worker: "w",
		Usage: state.Usage{ModelCalls: 1, OutputTokens: 10, ToolCalls: 1},
		ToolCalls: []state.AuditCall{
			{ID: "c1", Name: "t", DurationMS: 3}, {ID: "c2", Name: "t", IsError: true, Reused: true, DurationMS: 3},
		},
	}
	if diff := equal(want, rows[1]); diff != "" {
		t.Errorf("row of the turn:\n%s", diff)
	}
	var reasons []state.Reason
	for _, r := range rows {
		reasons = append(reasons, r.Reason)
		if r.ToolCalls == nil {
			t.Errorf("row %d has null for its tool calls", r.Version)
		}
	}
	if diff := cmp.Diff([]state.Reason{state.Submitted, state.NextTurn, state.EndCompleted}, reasons); diff != "" {
		t.Errorf("reasons:\n%s", diff)
	}
}

// A replay withdraws the synthetic result of a poisoned end: the model reads the later result, and the full
// view has both (I5).
func TestViewReplayed(t *testing.T) {
	t.Parallel()
	again := done("c1")
	m := *again.Message
	m.ID = "r-c1-again"
	again.Message = &m
	log := []state.Entry{
		{Type: state.EntrySubmitted, Messages: input("u1")}, said("a1", "c1", "c2"), done("c2"), done("c1"),
		{Type: state.EntryFinished}, {Type: state.EntryTombstoned, MessageIDs: []string{"r-c1"}},
	}
	if got, want := ids(state.View(log)), "u1 a1 r-c2"; got != want {
		t.Errorf("View = %s, want %s", got, want)
	}
	log = append(log, again)
	if got, want := ids(state.View(log)), "u1 a1 r-c1-again r-c2"; got != want {
		t.Errorf("View = %s, want %s", got, want)
	}
	if got, want := ids(state.FullView(log)), "u1 a1 r-c1(dead) r-c1-again r-c2"; got != want {
		t.Errorf("FullView = %s, want %s", got, want)
	}
	if _, err := state.HistoryThrough(log, 0); err != nil {
		t.Errorf("HistoryThrough: %v", err)
	}
	log[5].MessageIDs = append(log[5].MessageIDs, "r-c2")
	if _, err := state.HistoryThrough(log, 0); err == nil {
		t.Error("a fork may begin where a call has no result")
	}
}

// The run of a replayed dead letter has an id derived from the letter.
func TestReplayID(t *testing.T) {
	t.Parallel()
	at := state.At(time.Now())
	id := state.ReplayID("acme", 7, at)
	if _, err := state.ParseRunID(string(id)); err != nil {
		t.Errorf("%s: %v", id, err)
	}
	if id != state.ReplayID("acme", 7, at) || id == state.ReplayID("acme", 8, at) || id == state.ReplayID("other", 7, at) || id == state.ReplayID("acme", 7, state.At(at.Add(time.Second))) {
		t.Error("equal letters give different ids, or different ones the same")
	}
}
