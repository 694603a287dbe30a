package loop_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
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

// The calls that child runs answer share the rest of the parent's budget evenly; calls that wait for something else get
// nothing. A child has at least one unit of each limit, and the smaller of its share and its agent's own limit.
func TestShareOfChild(t *testing.T) {
	t.Parallel()
	child, others := state.OpenCall{ID: "c1", Name: "researcher", Needs: state.NeedChild, Child: "run_01JD3X9K3W8Q4V5N6M7P8R9S01"}, []state.OpenCall{{ID: "o0"}}
	for _, n := range []state.Need{state.NeedApproval, state.NeedResult, state.NeedAnswer, state.NeedAsync} {
		others = append(others, state.OpenCall{ID: "o-" + string(n), Needs: n})
	}
	deadline := state.At(epoch.Add(time.Hour))
	all := state.Limits{OutputTokens: 100, TotalTokens: 1000, CostUSD: 5000, DeadlineAt: deadline}
	spent := state.Usage{InputTokens: 200, OutputTokens: 40, CostUSD: new(state.MicroUSD(2000))}
	for name, c := range map[string]struct {
		limits state.Limits // of the parent
		usage  state.Usage
		open   []state.OpenCall
		agent  agent.Limits
		want   state.Limits
	}{
		"one child":            {all, spent, []state.OpenCall{child}, agent.Limits{}, state.Limits{OutputTokens: 60, TotalTokens: 760, CostUSD: 3000, DeadlineAt: deadline}},
		"one and other calls":  {all, spent, append(others, child), agent.Limits{}, state.Limits{OutputTokens: 60, TotalTokens: 760, CostUSD: 3000, DeadlineAt: deadline}},
		"two and other calls":  {all, spent, append(others, child, child), agent.Limits{}, state.Limits{OutputTokens: 30, TotalTokens: 380, CostUSD: 1500, DeadlineAt: deadline}},
		"nothing spent":        {all, state.Usage{}, []state.OpenCall{child, child}, agent.Limits{}, state.Limits{OutputTokens: 50, TotalTokens: 500, CostUSD: 2500, DeadlineAt: deadline}},
		"less than a unit":     {all, state.Usage{InputTokens: 1000, OutputTokens: 99, CostUSD: new(state.MicroUSD(4999))}, []state.OpenCall{child, child}, agent.Limits{}, state.Limits{OutputTokens: 1, TotalTokens: 1, CostUSD: 1, DeadlineAt: deadline}},
		"no limits":            {state.Limits{}, spent, []state.OpenCall{child}, agent.Limits{}, state.Limits{}},
		"limits of its agent":  {all, spent, []state.OpenCall{child}, agent.Limits{OutputTokens: 59, TotalTokens: 761, CostUSD: 2999}, state.Limits{OutputTokens: 59, TotalTokens: 760, CostUSD: 2999, DeadlineAt: deadline}},
		"only those":           {state.Limits{}, spent, []state.OpenCall{child}, agent.Limits{CostUSD: 7}, state.Limits{CostUSD: 7}},
		"an earlier deadline":  {all, state.Usage{}, []state.OpenCall{child}, agent.Limits{Deadline: model.Duration(time.Minute)}, state.Limits{OutputTokens: 100, TotalTokens: 1000, CostUSD: 5000, DeadlineAt: state.At(epoch.Add(time.Minute))}},
		"turns, waits, trees":  {state.Limits{MaxTurns: 3, WaitMS: 4, Runs: 5}, spent, []state.OpenCall{child}, agent.Limits{}, state.Limits{}},
		"a limit that is over": {all, state.Usage{OutputTokens: 170}, []state.OpenCall{child}, agent.Limits{}, state.Limits{OutputTokens: 1, TotalTokens: 830, CostUSD: 5000, DeadlineAt: deadline}},
	} {
		parent := state.State{ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S00", Limits: c.limits, Usage: c.usage, Open: c.open, UpdatedAt: state.At(epoch)}
		got, err := loop.ChildRun(parent, child, compile(t, agent.Definition{Limits: c.agent}), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.want.MaxTurns, c.want.WarnAt = agent.DefaultMaxTurns, got.Limits.WarnAt
		if diff := cmp.Diff(c.want, got.Limits); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
