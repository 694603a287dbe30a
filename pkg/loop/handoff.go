package loop

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// SwitchAgent requests the latest version of the agent that continues the run, for the call of a tool
// of kind handoff. All other calls of the response have their results.
type SwitchAgent struct {
	Call  state.OpenCall
	Agent string
}

func (SwitchAgent) effect() {}

// AgentFound reports the agent that SwitchAgent named, and its instructions with the values of the run's
// variables.
type AgentFound struct {
	At           state.Time
	Asked        SwitchAgent
	Agent        state.AgentRef
	Instructions string

	// Problem is the reason why the agent cannot continue the run, for the model; empty if it can.
	Problem string
}

func (AgentFound) event() {}

// handoff returns the effect of the handoff among the open calls, once it is the only call left. It refuses all
// handoffs of a response but the first.
func (t *Turn) handoff() (SwitchAgent, bool) {
	var first *state.OpenCall
	for _, o := range t.s.Open {
		spec := t.tool(o.Name)
		switch {
		case o.Needs != "" || spec == nil || spec.By != tool.ByHandoff:
		case first != nil:
			t.refuse(o, "Not called: a response may hand the conversation over only once, and this one called %s first. If another agent must continue, call its handoff in a later response", first.Name)
		default:
			first = &o
		}
	}
	if first == nil || len(t.s.Open) > 1 {
		return SwitchAgent{}, false
	}
	return SwitchAgent{Call: *first, Agent: t.tool(first.Name).Agent}, true
}

// isHandoff reports whether no worker makes the call, because it changes the agent of the run.
func (t *Turn) isHandoff(o state.OpenCall) bool {
	spec := t.tool(o.Name)
	return spec != nil && spec.By == tool.ByHandoff
}

// handedOff makes another agent responsible for the run from the next turn on. The history stays; the new agent's
// instructions replace the old ones. Limits and usage remain those of the run. The choice of a fallback model, the
// counts of failures and recoveries and the loop's state start over, and the run may again compact after a prompt
// that is too long. If the event has a Problem, handedOff refuses the call instead, and nothing else changes.
func (l *ruled) handedOff(t *Turn, ev AgentFound) Decision {
	o := ev.Asked.Call
	if ev.Problem != "" {
		t.refuse(o, "The conversation stays here: %s", ev.Problem)
		return l.dispatch(t)
	}
	from := t.s.Definition()
	t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: fmt.Sprintf("The conversation continues with the agent %s.", ev.Agent.Name), At: ev.At}, false)
	e := state.Entry{Type: state.EntryHandoff, CallID: o.ID, Handoff: &state.Handoff{From: from, To: ev.Agent}}
	if id := instructionsOf(t.agent, t.s); id != "" {
		e.MessageIDs = []string{id}
	}
	if ev.Instructions != "" {
		m := state.Message{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: ev.Instructions}}}
		t.stamp(&m, 0)
		e.Messages = []state.Message{m}
	}
	t.append(&e)
	t.s.Fallback, t.s.FallbackBase, t.s.Failures, t.s.Recoveries = 0, 0, 0, 0
	t.s.LoopState, t.s.Compacted = state.LoopState{}, false
	return t.Next(state.HandedOff, fmt.Sprintf("from %s@%d to %s@%d", from.Name, from.Version, ev.Agent.Name, ev.Agent.Version))
}

// instructionsOf returns the id of the message with the agent's instructions in the view of a run, or
// "" if the view does not begin with them.
func instructionsOf(a *agent.Agent, s state.State) string {
	view := state.View(s.Log)
	if len(view) == 0 || view[0].Role != state.RoleSystem {
		return ""
	}
	if text, err := a.Instruct(a.OwnVariables(s.Variables)); err != nil || text != view[0].Text() {
		return ""
	}
	return view[0].ID
}
