package state_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A header counts what went wrong in its log, and nothing that a person decided or nobody made.
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
		{Type: state.EntryTransition, Reason: state.Recovered},
		{Type: state.EntryTransition, Reason: state.ModelFallback},
		{Type: state.EntryTransition, Reason: state.NextTurn},
	} {
		s = s.Append(e)
	}
	if want := (state.Trouble{ToolErrors: 1, ModelRetries: 3, Recovered: 1}); s.Trouble != want {
		t.Errorf("trouble %+v, want %+v", s.Trouble, want)
	}
}
