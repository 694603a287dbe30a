package loop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// tool returns the definition of a tool, or nil.
func (t *Turn) tool(name string) *agent.CompiledTool {
	if t.agent == nil {
		return nil
	}
	return t.agent.Tool(name)
}

// change replaces one open call.
func (t *Turn) change(id string, edit func(*state.OpenCall)) {
	t.s.Open = slices.Clone(t.s.Open)
	for i := range t.s.Open {
		if t.s.Open[i].ID == id {
			edit(&t.s.Open[i])
		}
	}
}

// refuse gives a call an error as its result instead of calling its tool.
func (t *Turn) refuse(o state.OpenCall, format string, args ...any) {
	t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: fmt.Sprintf(format, args...), IsError: true}, true)
}

// work advances the open calls of the last response as far as possible: first hooks, then
// the external needs of each call, then the calls that may run.
func (l *ruled) work(t *Turn) Decision {
	if !t.s.NeedsDetermined || slices.ContainsFunc(t.s.Open, func(o state.OpenCall) bool { return o.Recheck }) {
		l.screen(t)
		if gated := t.gated(); len(gated) > 0 {
			return Decision{Next: &t.s, Effect: RunHooks{Point: hook.PreTool, Calls: gated}}
		}
		l.classify(t)
	}
	return l.dispatch(t)
}

// unchecked reports whether a call still needs checks: it comes from a new response, or
// an approver has edited it.
func (t *Turn) unchecked(o state.OpenCall) bool {
	return o.Needs == "" && (!t.s.NeedsDetermined || o.Recheck)
}

// screen refuses the calls that can never run: of a tool that the agent does not have, with arguments that its
// schema does not admit, too many (A7), or delegated too deep.
func (l *ruled) screen(t *Turn) {
	counted, steps := map[string]int{}, agent.TurnSteps()
	for _, o := range t.s.Open {
		spec := t.tool(o.Name)
		if t.s.NeedsDetermined && !o.Recheck {
			continue
		}
		if spec == nil {
			if o.Name != agent.AskUser {
				t.refuse(o, "Unknown tool: %s. Available tools: %s", o.Name, cmp.Or(strings.Join(t.agent.ToolNames(), ", "), "none"))
			}
			continue
		}
		if err := spec.ValidateWithin(o.Arguments, steps); err != nil {
			t.refuse(o, "%s", err)
			continue
		}
		if spec.MaxCalls > 0 {
			if _, known := counted[o.Name]; !known {
				counted[o.Name] = made(t.s.Log, o.Name)
			}
			if counted[o.Name] >= spec.MaxCalls {
				t.refuse(o, "Tool %q has reached its maximum of %d calls for this run. Continue without it", o.Name, spec.MaxCalls)
				continue
			}
			counted[o.Name]++
		}
		if spec.By == tool.ByChild && t.depth() >= spec.DepthLimit() {
			t.refuse(o, "Delegation depth limit reached: this run is %d levels deep, and only runs less than %d levels deep may start another. Do the task without it", t.depth(), spec.DepthLimit())
		}
	}
}

// gated returns the open calls that need a decision of hooks.
func (t *Turn) gated() []state.OpenCall {
	var calls []state.OpenCall
	for _, o := range t.s.Open {
		if t.unchecked(o) && t.agent.Gated(o.Name) {
			calls = append(calls, o)
		}
	}
	return calls
}

// depth is the number of ancestors of this run (D11).
func (t *Turn) depth() int {
	if t.s.Parent == nil {
		return 0
	}
	return t.s.Parent.Depth
}

// made returns the number of calls of a tool that were made, by the results in the log.
func made(log []state.Entry, name string) int {
	n := 0
	if c := state.CheckpointOf(log); c != nil {
		n = c.Calls[name]
	}
	for i := range log {
		if e := &log[i]; e.Type == state.EntryTool && e.Name == name && !e.Message.Synthetic {
			n++
		}
	}
	return n
}

// permitted applies the decisions of the pre_tool hooks, and continues.
func (l *ruled) permitted(t *Turn, ev HooksAnswered) Decision {
	for i, o := range ev.Asked.Calls {
		if i >= len(ev.Answers) {
			break
		}
		a := ev.Answers[i]
		if a.Deny != nil {
			t.refuse(o, "Denied: %s", *a.Deny)
			continue
		}
		t.change(o.ID, func(o *state.OpenCall) {
			if args, ok := state.CompactObject(string(a.Arguments)); ok {
				o.Arguments, o.Edited = args, true
			}
			if a.Approval {
				o.Needs = state.NeedApproval
			}
		})
	}
	l.classify(t)
	return l.dispatch(t)
}

// classify decides what each open call of a new response needs before it can run. Later it decides again only about
// calls that an approver has edited. Such a call needs another approval with four eyes, or if a hook or a rule over
// arguments requires it for the new arguments. If the tool always requires approval, the edit counts as that approval.
func (l *ruled) classify(t *Turn) {
	open, left := slices.Clone(t.s.Open), agent.TurnSteps()
	for i, o := range open {
		open[i].Recheck = false
		if !t.unchecked(o) {
			if o.Recheck && o.Needs == state.NeedApproval {
				open[i].Again = state.AgainHook
				if o.SecondApprover {
					open[i].Again = state.AgainFourEyes
				}
			}
			continue
		}
		spec := t.tool(o.Name)
		switch {
		case o.SecondApprover:
			open[i].Needs, open[i].Again = state.NeedApproval, state.AgainFourEyes
		case o.Name == agent.AskUser || spec != nil && spec.By == tool.ByPerson:
			open[i].Needs, open[i].Question = state.NeedAnswer, question(o.Arguments)
		case spec == nil:
		case o.Recheck && spec.Approval == tool.ApprovalAlways:
		case spec.NeedsApprovalWithin(o.Arguments, t.s.Log, left):
			open[i].Needs = state.NeedApproval
			if o.Recheck {
				open[i].Again = state.AgainRule
			}
		}
	}
	t.s.Open, t.s.NeedsDetermined = open, true
}

func question(arguments string) string {
	var args struct {
		Question string `json:"question"`
	}
	if json.Unmarshal([]byte(arguments), &args) != nil || args.Question == "" {
		return arguments
	}
	return args.Question
}

// dispatch reuses known results, runs the calls that may run now, and otherwise waits for
// the others.
func (l *ruled) dispatch(t *Turn) Decision {
	t.reuse()
	t.readResults()
	l.handOver(t)
	var run []state.OpenCall
	for _, o := range t.s.Open {
		if o.Needs == "" && !t.isHandoff(o) && !slices.ContainsFunc(run, func(r state.OpenCall) bool { return t.twins(r, o) }) {
			run = append(run, o)
		}
	}
	if len(run) > 0 {
		return Decision{Next: &t.s, Effect: RunTools{Calls: run}}
	}
	if effect, ok := t.handoff(); ok {
		return Decision{Next: &t.s, Effect: effect}
	}
	return l.afterTools(t)
}

// handOver marks calls that no worker executes as waiting for their result: those of the client, and those that
// child runs answer. It refuses delegations if too little of the budget is left, and those beyond agent.MaxChildren.
func (l *ruled) handOver(t *Turn) {
	children := 0
	for _, o := range t.s.Open {
		spec := t.tool(o.Name)
		if o.Needs == state.NeedChild {
			children++
		}
		if o.Needs != "" || spec == nil {
			continue
		}
		switch spec.By {
		case tool.ByClient:
			t.change(o.ID, func(o *state.OpenCall) { o.Needs = state.NeedResult })
		case tool.ByChild:
			_, _, over := budget.Exhausted(t.s.Limits, t.s.Usage, 0, t.at.Time)
			left, limited := budget.CallsLeft(t.s.Limits, t.s.Usage, largestCall(t.s.Log))
			if limited && t.s.Parent == nil {
				left = max(1, left) // the one call that may pass the limit
			}
			if over || limited && children >= left {
				t.refuse(o, "Too little is left of the run's budget to delegate with. Answer without another run")
				continue
			}
			if children >= agent.MaxChildren {
				t.refuse(o, "Too many delegations at once: at most %d run side by side. Call again when some have answered", agent.MaxChildren)
				continue
			}
			children++
			t.change(o.ID, func(o *state.OpenCall) {
				o.Needs, o.Child = state.NeedChild, state.ChildID(t.s.ID, t.s.Turn, o.ID, t.at)
			})
		default: // a worker makes it, or a person answers
		}
	}
}

// worked applies the results of tools.
func (l *ruled) worked(t *Turn, results []ToolResult) Decision {
	for _, r := range results {
		switch {
		case r.Pending:
			t.change(r.CallID, func(o *state.OpenCall) { o.Needs = state.NeedAsync })
		case r.Ask != nil:
			t.change(r.CallID, func(o *state.OpenCall) {
				o.Needs, o.Question, o.AskState, o.Answer = state.NeedAnswer, r.Ask.Question, r.Ask.State, nil
			})
		}
	}
	t.results(results)
	return l.dispatch(t)
}

// afterTools decides when no call may run any more: for the next turn if all are
// answered, and for a pause if not.
func (l *ruled) afterTools(t *Turn) Decision {
	if len(t.s.Open) > 0 {
		reason, ask := waitFor(t.s.Open)
		return t.wait(reason, ask)
	}
	t.s.Recoveries = 0
	if d, over := t.exhausted(); over {
		return d
	}
	if d, ok := l.route(t, Execute); ok {
		return d
	}
	if t.Looping() && !l.rules.breaksLoops {
		return t.looped()
	}
	if l.rules.AfterTools != nil {
		return l.rules.AfterTools(t)
	}
	return t.Next(state.NextTurn, "")
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// waitFor returns the reason why a run with these open calls waits, and the question of the call that gives
// the reason: the call with the most pressing need.
func waitFor(open []state.OpenCall) (state.Reason, string) {
	byNeed := []struct {
		need   state.Need
		reason state.Reason
	}{
		{state.NeedApproval, state.WaitingApproval},
		{state.NeedAnswer, state.WaitingHumanInput},
		{state.NeedResult, state.WaitingClientTool},
		{state.NeedChild, state.WaitingChild},
		{state.NeedAsync, state.WaitingTool},
	}
	for _, b := range byNeed {
		for _, o := range open {
			if o.Needs == b.need {
				return b.reason, o.Question
			}
		}
	}
	panic("loop: waits for nothing")
}
