package state_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A header counts the failures in its log, but not a person's decisions or calls that never ran.
func TestTroubleIsFolded(t *testing.T) {
	t.Parallel()
	synthetic := state.ToolResult("c2", "denied", true)
	synthetic.Synthetic = true
	var s state.State
	for _, e := range []state.Entry{
		{Type: state.EntryModel, FailedCalls: 2},
		{Type: state.EntryTool, CallID: "c1", IsError: true},
		{Type: state.EntryTool, CallID: "c2", IsError: true, Message: &synthetic},
		{Type: state.EntryTool, CallID: "c3"},
		{Type: state.EntryReused, CallID: "c1", IsError: true},
		{Type: state.EntryTransition, Reason: state.Submitted, Version: 1},
		{Type: state.EntryTransition, Reason: state.Recovered, Version: 1, Attempt: 3}, // two workers died
		{Type: state.EntryModel},
		{Type: state.EntryTransition, Reason: state.Recovered, Version: 1, Attempt: 4}, // another one, after a journaled response
		{Type: state.EntryTransition, Reason: state.Recovered, Version: 1, Attempt: 4}, // this attempt was released in between
		{Type: state.EntryTransition, Reason: state.ModelFallback},
		{Type: state.EntryTransition, Reason: state.NextTurn, Version: 2},
		{Type: state.EntryTransition, Reason: state.Recovered, Version: 2, Attempt: 2},
	} {
		s = s.Append(e)
	}
	if want := (state.Trouble{ToolErrors: 1, ModelRetries: 3, Recovered: 4}); s.Trouble != want {
		t.Errorf("trouble %+v, want %+v", s.Trouble, want)
	}
}
