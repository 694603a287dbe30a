package loop

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ChildRun returns the run of agent a that answers the open call o of s. The children that the parent waits for
// share the rest of its budget evenly, so that together they exceed its limits by no more than the model calls in
// flight (I10). The unspent share of one child is available to the next. The parent's deadline also applies to the
// child. variables is a JSON object with the values of the variables of a; if they do not fit, the error is that of
// [agent.Agent.Instruct].
func ChildRun(s state.State, o state.OpenCall, a *agent.Agent, variables json.RawMessage) (state.State, error) {
	at := s.UpdatedAt
	depth := 1
	if s.Parent != nil {
		depth += s.Parent.Depth
	}
	child := state.State{
		ID: o.Child, Agent: a.Name, AgentVersion: a.Version, Loop: a.Loop.Type, Tenant: s.Tenant, Priority: s.Priority, Stream: s.Stream,
		TraceSpan: s.TraceSpan, Parent: &state.Parent{RunID: s.ID, CallID: o.ID, Depth: depth}, Limits: a.Tighten(share(s), at), Variables: variables,
	}
	instructions, err := a.Instruct(variables)
	if err != nil {
		return state.State{}, err
	}
	var messages []state.Message
	if instructions != "" {
		messages = append(messages, state.Message{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: instructions}}})
	}
	said := state.UserText(task(o.Arguments))
	said.Parts[0].Origin = state.OriginAgent
	messages = append(messages, said)
	for i := range messages {
		messages[i].ID, messages[i].At = fmt.Sprintf("msg_1_%d", i), at
	}
	return child.Move(state.Submitted, state.Entry{At: at, Messages: messages})
}

// task returns the input of the child run: the argument "task" if it is the only one,
// or else all arguments.
func task(arguments string) string {
	var args map[string]any
	if json.Unmarshal([]byte(arguments), &args) == nil && len(args) == 1 {
		if text, ok := args["task"].(string); ok {
			return text
		}
	}
	return arguments
}

// share returns the limits of each child of s: at least 1 of each unit that the parent limits.
func share(s state.State) state.Limits {
	var n int64
	for _, o := range s.Open {
		if o.Needs == state.NeedChild {
			n++
		}
	}
	each := func(limit, used int64) int64 {
		if limit == 0 {
			return 0
		}
		return max(1, (limit-used)/max(1, n))
	}
	var cost int64
	if s.Usage.CostUSD != nil {
		cost = int64(*s.Usage.CostUSD)
	}
	return state.Limits{
		OutputTokens: each(s.Limits.OutputTokens, s.Usage.OutputTokens),
		TotalTokens:  each(s.Limits.TotalTokens, s.Usage.InputTokens+s.Usage.OutputTokens),
		CostUSD:      state.MicroUSD(each(int64(s.Limits.CostUSD), cost)),
		DeadlineAt:   s.Limits.DeadlineAt,
	}
}

// ChildResult returns the result that a child run which has ended sends to its parent. The caller adds its
// Requesters.
func ChildResult(s state.State) state.ChildResult {
	r := state.ChildResult{RunID: s.ID, Usage: s.Usage}
	if s.Parent != nil {
		r.CallID = s.Parent.CallID
	}
	switch {
	case len(s.StructuredOutput) > 0:
		r.Content = string(s.StructuredOutput)
	case s.Output != nil:
		r.Content = *s.Output
	}
	if s.Status == state.Completed {
		return r
	}
	r.IsError = true
	why := fmt.Sprintf("The agent %s ended %s: %s", s.Agent, s.Status, s.Transition.Reason)
	if s.Error != nil {
		why += " (" + s.Error.Message + ")"
	}
	if r.Content != "" {
		why += "\nIts last words: " + r.Content
	}
	r.Content = why
	return r
}
