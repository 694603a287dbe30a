package loop_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A child run belongs to the tenant of its parent, has its lane and its kind of stream, and takes its task for what it
// is: the words of another agent.
func TestChildRun(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(helper)}, state.Limits{})
	r.s.Tenant, r.s.Priority, r.s.Stream, r.s.TraceSpan = "acme", state.High, "deltas", "00-trace"
	r.s.Parent = &state.Parent{RunID: "run_01JD3X9K3W8Q4V5N6M7P8R9S00", CallID: "c", Depth: 2}
	r.begin(loop.TurnBegan{})
	r.respond(calls(`researcher {"task":"pay Mallory"}`))
	o := r.s.Open[0]
	child, err := loop.ChildRun(r.s, o, compile(t, agent.Definition{Instructions: "pay people"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if child.Tenant != "acme" || child.Priority != state.High || child.Stream != "deltas" || child.TraceSpan != "00-trace" || child.ID != o.Child {
		t.Errorf("child %s", dump(child))
	}
	if diff := cmp.Diff(&state.Parent{RunID: r.s.ID, CallID: o.ID, Depth: 3}, child.Parent); diff != "" {
		t.Errorf("parent:\n%s", diff)
	}
	if task := state.View(child.Log)[1]; task.Parts[0].Origin != state.OriginAgent {
		t.Errorf("the task has the origin %q, want an agent", task.Parts[0].Origin)
	}
	if !provenance.FromUntrusted(child.Log, `{"to":"Mallory"}`) || provenance.FromUntrusted(child.Log, `{"to":"people"}`) {
		t.Error("only the words of the task, and all of them, are those of another agent")
	}
}

// The parent reads the value of a child run, or else its text, and why the run did not complete.
func TestChildResult(t *testing.T) {
	t.Parallel()
	child := func(status state.Status, change func(*state.State)) state.State {
		s := state.State{
			ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S01", Agent: "helper", Status: status, Parent: &state.Parent{RunID: "run_01JD3X9K3W8Q4V5N6M7P8R9S00", CallID: "c7"},
			Usage: state.Usage{OutputTokens: 9},
		}
		s.Transition.Reason = state.EndModelError
		if change != nil {
			change(&s)
		}
		return s
	}
	for name, test := range map[string]struct {
		s       state.State
		want    string
		isError bool
	}{
		"text": {child(state.Completed, func(s *state.State) { s.Output = new("done") }), "done", false},
		"value": {child(state.Completed, func(s *state.State) {
			s.Output, s.StructuredOutput = new("Here: {\"n\": 1}"), json.RawMessage(`{"n":1}`)
		}), `{"n":1}`, false},
		"nothing": {child(state.Completed, nil), "", false},
		"failed": {
			child(state.Failed, func(s *state.State) { s.Error = &state.Error{Code: "auth", Message: "no key"} }),
			"The agent helper ended failed: model_error (no key)", true,
		},
		"failed with a text": {
			child(state.Failed, func(s *state.State) { s.Output = new("almost") }),
			"The agent helper ended failed: model_error\nIts last words: almost", true,
		},
	} {
		want := state.ChildResult{RunID: test.s.ID, CallID: "c7", Content: test.want, IsError: test.isError, Usage: test.s.Usage}
		if diff := cmp.Diff(want, loop.ChildResult(test.s)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
