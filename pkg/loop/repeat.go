package loop

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// reuse answers open calls of tools that reuse results, which idempotent tools do by default, with the result that the
// same call got earlier in the run, in this response or before (L7). The caller classifies the calls first: reuse
// leaves out those that wait for an approval or other input. It does not reuse errors, because the call may succeed
// now, results that no tool gave, and results that had left the view before the latest checkpoint.
func (t *Turn) reuse() {
	var known map[string]state.Part
	for _, o := range t.s.Open {
		spec := t.tool(o.Name)
		if o.Needs != "" || spec == nil || !spec.Reuses() {
			continue
		}
		if known == nil {
			known = answered(t.s.Log)
		}
		if r, ok := known[sign(o.Name, o.Arguments)]; ok {
			t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: r.Content, Images: r.Images, Files: r.Files, Origin: r.Origin, Reused: true}, false)
		}
	}
}

// answered returns the results of the calls that succeeded, by their signature;
// the latest counts.
func answered(log []state.Entry) map[string]state.Part {
	known := map[string]state.Part{}
	args := map[string]string{}
	if c := state.CheckpointOf(log); c != nil {
		answeredBefore(c, known)
	}
	for _, e := range log {
		switch {
		case e.Type == state.EntryModel && e.Message != nil:
			clear(args)
			for _, c := range e.Message.Calls() {
				args[c.ID] = c.Arguments
			}
		case e.Type == state.EntryTool && !e.IsError && !e.Message.Synthetic:
			given := args[e.CallID]
			if e.Arguments != "" {
				given = e.Arguments
			}
			known[sign(e.Name, given)] = e.Message.Parts[0]
		}
	}
	return known
}

// answeredBefore adds the results that the view had at a checkpoint. A result that had left the view is not known any
// more: the call is made again.
func answeredBefore(c *state.Checkpoint, known map[string]state.Part) {
	calls := map[string]state.Part{}
	for i := range c.Messages {
		m := &c.Messages[i]
		if m.Role == state.RoleAssistant {
			clear(calls)
			for _, call := range m.Calls() {
				calls[call.ID] = call
			}
		}
		if m.Role != state.RoleTool || m.Synthetic || len(m.Parts) == 0 || m.Parts[0].IsError {
			continue
		}
		if call, ok := calls[m.Parts[0].CallID]; ok {
			given := call.Arguments
			if edited := c.Edited[m.ID]; edited != "" {
				given = edited
			}
			known[sign(call.Name, given)] = m.Parts[0]
		}
	}
}

// sign identifies a call by its tool and its arguments, however these are formatted.
func sign(name, arguments string) string {
	return name + "\x00" + string(tool.Canonical(json.RawMessage(arguments)))
}

// twins reports whether b is the same call as a, of a tool whose results are
// reused: its result will be a's.
func (t *Turn) twins(a, b state.OpenCall) bool {
	if a.Name != b.Name {
		return false
	}
	spec := t.tool(b.Name)
	return spec != nil && spec.Reuses() && sign(a.Name, a.Arguments) == sign(b.Name, b.Arguments)
}

// Looping reports whether the model made the same calls with the same arguments in each of its last n
// responses, where n is the agent's tool_loop_threshold (L3). The order of the calls, and repetitions within a
// response, do not matter. Without a threshold it returns false.
func (t *Turn) Looping() bool {
	n := t.agent.ToolLoopThreshold()
	if n == 0 {
		return false
	}
	return sameCalls(t.s.Log, n).Times >= n
}

// sameCalls returns the calls of the last response, and the number of responses in a row up to it that have the same
// ones. It stops counting at limit, but adds the number in a checkpoint as a whole. Times is 0 if the last response has
// no calls.
func sameCalls(log []state.Entry, limit int) (same state.SameCalls) {
	var later *state.Message
	for i := range slices.Backward(log) {
		e := &log[i]
		if i == 0 && e.Checkpoint != nil {
			before := e.Checkpoint.Same
			if same.Times == 0 || slices.Equal(before.Calls, same.Calls) {
				same = state.SameCalls{Calls: before.Calls, Times: same.Times + before.Times}
			}
		}
		if e.Type != state.EntryModel || e.Message == nil {
			continue
		}
		have := same.Calls
		if later == nil || !equalCalls(e.Message, later) {
			have = signCalls(e.Message)
		}
		if later = e.Message; same.Times == 0 {
			same.Calls = have
		}
		if len(have) == 0 || !slices.Equal(have, same.Calls) {
			return same
		}
		if same.Times++; same.Times == limit {
			return same
		}
	}
	return same
}

// looped ends a run that makes the same calls over and over.
func (t *Turn) looped() Decision {
	return t.move(state.EndToolLoop, state.Entry{
		Detail: fmt.Sprintf("the same calls %d times in a row", t.agent.ToolLoopThreshold()), Output: t.lastText(),
	})
}

// signCalls returns the hashes of the calls of a response, sorted, each once.
func signCalls(m *state.Message) []string {
	var signs []string
	for i := range m.Parts {
		if c := &m.Parts[i]; c.Type == state.PartToolCall {
			h := sha256.Sum256([]byte(sign(c.Name, c.Arguments)))
			signs = append(signs, hex.EncodeToString(h[:]))
		}
	}
	slices.Sort(signs)
	return slices.Compact(signs)
}

// equalCalls reports whether two responses have the same calls, byte for byte and in the same order.
func equalCalls(a, b *state.Message) bool {
	next := 0
	for i := range a.Parts {
		c := &a.Parts[i]
		if c.Type != state.PartToolCall {
			continue
		}
		for next < len(b.Parts) && b.Parts[next].Type != state.PartToolCall {
			next++
		}
		if next == len(b.Parts) || b.Parts[next].Name != c.Name || b.Parts[next].Arguments != c.Arguments {
			return false
		}
		next++
	}
	return !slices.ContainsFunc(b.Parts[next:], func(p state.Part) bool { return p.Type == state.PartToolCall })
}
