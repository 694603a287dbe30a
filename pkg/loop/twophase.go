package loop

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// TwoPhase is the loop for models without native tool calls (K1): in the first phase the model answers with
// actions in JSON, which the run executes one at a time; in the second it writes the answer.
func TwoPhase(a *agent.Agent) Loop { return New(a, TwoPhaseRules()) }

// TwoPhaseRules returns the rules of TwoPhase, to which conditions can be added.
func TwoPhaseRules() Rules {
	return Typed[phases]{
		Prompt: twoPhasePrompt, Read: readAction, BeforeTools: publishAction, OnAnswer: afterThought,
		AfterTools: func(t *Turn, own *phases) Decision { return stepDone(t, own, "") },
	}.Rules()
}

// phases is the loop's own state.
type phases struct {
	Phase   string `json:"phase,omitempty"`
	Limited bool   `json:"limited,omitempty"` // max_steps has ended the first phase
}

// final is the second phase; the first one has no name.
const final = "final"

func (p phases) answering() bool { return p.Phase == final }

const finalPrompt = "Now provide your final response to the user."

// Action is the action that a model requests, in JSON: a tool call {"tool", "arguments"}, a
// delegation {"agent", "task"}, or {} for none (K2).
type Action struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Agent     string          `json:"agent"`
	Task      string          `json:"task"`
}

// None reports whether the action is empty.
func (a Action) None() bool { return a.Tool == "" && a.Agent == "" }

// ParseAction returns the action in a response: the whole text, or else the first line that is a JSON object.
// It ignores fields of the wrong type. It returns the zero Action without such an object.
func ParseAction(text string) Action {
	text = strings.TrimSpace(text)
	if a, ok := decodeAction(text); ok {
		return a
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "{") && strings.HasSuffix(line, "}") {
			if a, ok := decodeAction(line); ok {
				return a
			}
		}
	}
	return Action{}
}

// decodeAction accepts any JSON object, and ignores fields of the wrong type.
func decodeAction(text string) (Action, bool) {
	compact, ok := state.CompactObject(text)
	if !ok {
		return Action{}, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(compact), &fields) != nil {
		return Action{}, false
	}
	var a Action
	for name, to := range map[string]*string{"tool": &a.Tool, "agent": &a.Agent, "task": &a.Task} {
		if json.Unmarshal(fields[name], to) != nil {
			*to = ""
		}
	}
	a.Arguments = fields["arguments"]
	return a, true
}

// readAction turns the action of a response into a tool call, so that approvals,
// journal and audit are those of any other call.
func readAction(t *Turn, own phases, r model.Response) model.Response {
	m := state.Message{Parts: r.Parts}
	if own.answering() || t.lastCall() {
		// Tools are withheld in the second phase, even from a model that has its own.
		r.Parts = without(r.Parts, state.PartToolCall)
		return r
	}
	if len(m.Calls()) > 0 {
		return r
	}
	a := ParseAction(m.Text())
	call := state.Part{Type: state.PartToolCall, Name: a.Tool, Arguments: string(a.Arguments)}
	switch {
	case a.Tool != "":
		if call.Arguments == "" || call.Arguments == "null" {
			call.Arguments = "{}"
		}
	case a.Agent != "" && a.Task != "" && delegate(t.agent, a.Agent) != nil:
		call.Name = delegate(t.agent, a.Agent).Name
		task, err := json.Marshal(map[string]string{"task": a.Task})
		if err != nil {
			return r
		}
		call.Arguments = string(task)
	default:
		return r
	}
	r.Parts = append(without(r.Parts, ""), call)
	return r
}

// without returns a copy of parts without those of one type.
func without(parts []state.Part, typ state.PartType) []state.Part {
	var out []state.Part
	for _, p := range parts {
		if p.Type != typ {
			out = append(out, p)
		}
	}
	return out
}

// delegate finds an agent to delegate to, by the name of its tool or its own.
func delegate(a *agent.Agent, name string) *agent.CompiledTool {
	for _, spec := range a.Delegates() {
		if spec.Name == name || spec.Agent == name {
			return spec
		}
	}
	return nil
}

// publishAction publishes a response's actions as progress (K4).
func publishAction(t *Turn, _ phases) {
	for _, o := range t.s.Open {
		p := Progress{Step: t.Count(), Action: "tool_call", Target: o.Name}
		if spec := t.tool(o.Name); spec != nil && spec.Delegates() {
			p.Action = "delegate"
		}
		t.Emit(p)
	}
}

// afterThought decides after a response without an action that the run can execute.
func afterThought(t *Turn, own *phases, text string) Decision {
	switch {
	case own.answering() && own.Limited:
		return t.end(state.EndMaxTurns, "limit max_steps", text)
	case own.answering():
		return t.Complete(state.EndCompleted, text)
	}
	a := ParseAction(text)
	switch {
	case a.Tool == "" && a.Agent != "" && a.Task == "":
		return stepDone(t, own, t.step(t.s.Turn)+"Invalid delegation: missing 'task'")
	case a.Tool == "" && a.Agent != "":
		var names []string
		for _, spec := range t.agent.Delegates() {
			names = append(names, spec.Name)
		}
		return stepDone(t, own, fmt.Sprintf("%sDelegation failed: Sub-agent '%s' not found. Available: [%s]", t.step(t.s.Turn), a.Agent, strings.Join(names, ", ")))
	}
	own.Phase = final
	return t.Next(state.FinalResponse, fmt.Sprintf("after %d steps", t.Count()), state.UserText(finalPrompt))
}

// step names a step of the first phase.
func (t *Turn) step(turn int) string {
	return fmt.Sprintf("[Step %d/%d] ", turn-t.s.TurnBase, t.agent.MaxSteps())
}

// stepDone takes the next step. After the last one it ends the run, or requests the final answer.
func stepDone(t *Turn, own *phases, say string) Decision {
	if n := t.agent.MaxSteps(); t.Count() >= n {
		if t.agent.Loop.OnLimit == agent.OnLimitAnswer {
			own.Phase, own.Limited = final, true
			return t.Next(state.FinalResponse, "limit max_steps", state.UserText(finalPrompt))
		}
		return t.end(state.EndMaxTurns, "limit max_steps", fmt.Sprintf("Reached maximum reasoning steps (%d)", n))
	}
	if say == "" {
		return t.Next(state.NextTurn, "")
	}
	return t.Next(state.NextTurn, "", state.UserText(say))
}

// twoPhasePrompt renders the history for a model that knows no tool calls.
func twoPhasePrompt(t *Turn, own phases) CallModel {
	view := state.View(t.s.Log)
	a := t.instructed()
	var extra []string
	out := make([]state.Message, 1, len(view)+1)
	delegated := map[string]bool{}
	for _, m := range view {
		switch m.Role {
		case state.RoleSystem:
			if text := m.Text(); text != a.Instructions {
				extra = append(extra, text)
			}
		case state.RoleAssistant:
			for _, c := range m.Calls() {
				spec := t.tool(c.Name)
				delegated[c.ID] = spec != nil && spec.Delegates()
			}
			m.Parts = without(m.Parts, state.PartToolCall)
			if len(m.Parts) > 0 {
				out = append(out, m)
			}
		case state.RoleTool:
			out = append(out, t.asUserMessage(m, delegated[m.Parts[0].CallID]))
		default:
			out = append(out, m)
		}
	}
	system := SystemPrompt(a, strings.Join(extra, "\n"))
	out[0] = state.Message{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: system}}}
	if system == "" {
		out = out[1:]
	}
	if !own.answering() && t.lastCall() {
		own.Phase = final // only in this copy; the stored phase does not change
		out = append(out, state.UserText(finalPrompt))
	}
	call := CallModel{Messages: out, Shared: a.SharedInstructions(), Quiet: !own.answering()}
	if own.answering() {
		call.Schema = t.OutputSchema()
	}
	return call
}

// instructed returns the agent with the values of the run's variables in its instructions.
func (t *Turn) instructed() *agent.Agent {
	if len(t.agent.Variables) == 0 {
		return t.agent
	}
	text, err := t.agent.Instruct(t.s.Variables)
	if err != nil {
		return t.agent // the submission would have been refused
	}
	a := *t.agent
	a.Instructions = text
	return &a
}

// asUserMessage renders the result of a call as a message of the user's.
func (t *Turn) asUserMessage(m state.Message, delegated bool) state.Message {
	p := m.Parts[0]
	what := "Tool result"
	switch {
	case delegated && p.IsError:
		what = "Delegation failed"
	case delegated:
		what = "Agent response"
	case p.IsError:
		what = "Tool execution failed"
	}
	m.Role, m.Parts = state.RoleUser, []state.Part{{Type: state.PartText, Text: t.step(m.Turn) + what + ": " + p.Content}}
	return m
}

const (
	toolsInstructions = `To use a tool, answer with one line of JSON and nothing else:
{"tool": "<name>", "arguments": {"<argument>": <value>}}
You will be given the result and may then act again.`

	agentInstructions = `To delegate to an agent, answer with one line of JSON and nothing else:
{"agent": "<name>", "task": "<what it is to do>"}
You will be given its response and may then act again.`

	noActionInstructions = `When no action is needed any more, answer with {}.
You will then be asked for your final response.`
)

// SystemPrompt returns the system prompt of the two_phase loop: a.Instructions as they are, so the caller must have
// replaced variables in them, the agent's tools and the agents that it may delegate to, with the format for using them,
// and extra, the run's other system messages; each part only if it applies (K3).
func SystemPrompt(a *agent.Agent, extra string) string {
	var parts, tools, agents []string
	if a.Instructions != "" {
		parts = append(parts, a.Instructions)
	}
	for _, s := range a.ToolSpecs() {
		line := "- " + s.Name
		if s.Description != "" {
			line += ": " + s.Description
		}
		if spec := a.Tool(s.Name); spec.Delegates() {
			agents = append(agents, line)
			continue
		}
		tools = append(tools, fmt.Sprintf("%s\n  Arguments (JSON Schema): %s", line, s.Schema))
	}
	if len(tools) > 0 {
		parts = append(parts, "\n## Available Tools\n"+strings.Join(tools, "\n"), toolsInstructions)
	}
	if len(agents) > 0 {
		parts = append(parts, "\n## Available Agents for Delegation\n"+strings.Join(agents, "\n"), agentInstructions)
	}
	if len(tools)+len(agents) > 0 {
		parts = append(parts, noActionInstructions)
	}
	if extra != "" {
		parts = append(parts, "\n## User-Provided System Prompt\n"+extra)
	}
	return strings.Join(parts, "\n")
}
