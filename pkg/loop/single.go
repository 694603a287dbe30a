package loop

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type singleCall struct{ agent *agent.Agent }

// SingleCall is the loop of one model response and no tools, with structured output if the agent or the run has
// a schema (D7, D8). A response with tool calls ends the run as failed.
func SingleCall(a *agent.Agent) Loop { return singleCall{a} }

// Step implements Loop.
func (l singleCall) Step(s state.State, ev Event) Decision {
	switch ev := ev.(type) {
	case TurnBegan:
		t := &Turn{s: s, at: ev.At, agent: l.agent}
		if d, over := t.begin(ev); over {
			return d
		}
		return l.ask(t)
	case HooksAnswered:
		t := &Turn{s: s, at: ev.At, agent: l.agent}
		t.countHookErrors(ev)
		if d, over := t.inputChecked(ev); over {
			return d
		}
		return l.ask(t)
	case ModelResponded:
		return l.responded(&Turn{s: s, at: ev.At, agent: l.agent}, ev)
	case ModelFailed:
		return (&Turn{s: s, at: ev.At, agent: l.agent}).failed(ev)
	case ModelDelayed:
		return (&Turn{s: s, at: ev.At, agent: l.agent}).delayed(ev)
	case Aborted:
		return (&Turn{s: s, at: ev.At, agent: l.agent}).cutShort(ev)
	default:
		panic(fmt.Sprintf("loop: unexpected event %T", ev))
	}
}

// ask makes the call, once the input hooks have seen the input, or ends the run if a limit allows no call.
func (l singleCall) ask(t *Turn) Decision {
	if d, over := t.exhausted(); over {
		return d
	}
	if d, asks := t.checkInput(); asks {
		return d
	}
	return Decision{Next: &t.s, Effect: CallModel{Messages: state.View(t.s.Log), Shared: t.agent.SharedInstructions(), Schema: t.OutputSchema()}}
}

func (l singleCall) responded(t *Turn, ev ModelResponded) Decision {
	t.lose(ev.Lost)
	m := t.respond(&ev.Response, ev.Attempt, ev.Failed, ev.Duration)
	text := m.Text()
	if n := len(m.Calls()); n > 0 {
		return t.finish(state.EndModelError, "single_call runs no tools", state.Entry{
			Detail: "unexpected_tool_calls",
			Error: &state.Error{
				Code:    "unexpected_tool_calls",
				Message: fmt.Sprintf("the model requested %d tool calls, but an agent with the loop single_call has no tools: use the loop react", n),
			},
		})
	}
	switch ev.Response.Stop {
	case model.StopRefusal, model.StopContentFilter:
		return t.move(state.EndRefused, state.Entry{Output: &text, Detail: string(ev.Response.Stop)})
	case model.StopMaxOutputTokens:
		return t.move(state.EndMaxOutputTokens, state.Entry{Output: &text})
	default:
	}
	return t.move(state.EndCompleted, state.Entry{Output: &text})
}
