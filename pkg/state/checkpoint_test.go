package state_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A checkpoint keeps the least trusted origin of the messages that the model does not see any more, and later
// checkpoints keep it too. It ignores messages that the model sees, those of people, and results that Turnpike wrote.
func TestUntrustedBeforeCheckpoints(t *testing.T) {
	t.Parallel()
	from := func(id string, o state.Origin) state.Entry {
		e := done(id)
		e.Message.Parts[0].Origin = o
		return e
	}
	hidden := func(ids ...string) state.Entry { return state.Entry{Type: state.EntryTombstoned, MessageIDs: ids} }
	task := input("task")
	task[0].Parts[0].Origin = state.OriginAgent
	stub, summary := from("c1", state.OriginWeb), from("c1", state.OriginWeb)
	stub.Message.Synthetic = true
	summary.Message.Synthetic, summary.Message.Parts[0].Type = true, state.PartText
	submitted, asked := state.Entry{Type: state.EntrySubmitted, Messages: input("u1")}, said("a1", "c1", "c2")
	for name, c := range map[string]struct {
		log  []state.Entry
		want state.Origin
	}{
		"nothing":                    {nil, ""},
		"of a user":                  {[]state.Entry{submitted, hidden("u1")}, ""},
		"of a person":                {[]state.Entry{submitted, asked, from("c1", state.OriginPerson), hidden("a1", "r-c1")}, ""},
		"of a tool":                  {[]state.Entry{submitted, asked, done("c1"), hidden("a1", "r-c1")}, state.OriginTool},
		"in the view":                {[]state.Entry{submitted, asked, done("c1"), from("c2", state.OriginWeb)}, ""},
		"in the view, and before":    {[]state.Entry{submitted, asked, done("c1"), from("c2", state.OriginWeb), hidden("r-c1")}, state.OriginTool},
		"of the web, then of a tool": {[]state.Entry{submitted, asked, from("c1", state.OriginWeb), done("c2"), hidden("a1", "r-c1", "r-c2")}, state.OriginWeb},
		"of another agent, as input": {[]state.Entry{{Type: state.EntrySubmitted, Messages: task}, hidden("task")}, state.OriginAgent},
		"a stub of Turnpike":         {[]state.Entry{submitted, asked, stub, hidden("a1", "r-c1")}, ""},
		"a summary by the model":     {[]state.Entry{submitted, asked, summary, hidden("a1", "r-c1")}, state.OriginWeb},
	} {
		log := c.log
		for n := range 3 {
			made := state.NewCheckpoint(&state.State{Log: log})
			if made.Untrusted != c.want {
				t.Errorf("%s: checkpoint %d keeps the origin %q, want %q", name, n+1, made.Untrusted, c.want)
			}
			log = []state.Entry{{Type: state.EntryCheckpoint, Checkpoint: made}, said("later")}
		}
	}

	// A message that leaves the view only after a checkpoint counts in the next one.
	first := state.NewCheckpoint(&state.State{Log: []state.Entry{submitted, asked, done("c1"), from("c2", state.OriginWeb), hidden("r-c1")}})
	log := []state.Entry{{Type: state.EntryCheckpoint, Checkpoint: first}, hidden("r-c2")}
	if got := state.NewCheckpoint(&state.State{Log: log}).Untrusted; got != state.OriginWeb {
		t.Errorf("after a result of the web left the view: %q, want %q", got, state.OriginWeb)
	}
}
