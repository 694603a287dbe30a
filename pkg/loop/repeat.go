package loop

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// reuse answers calls of idempotent tools with the result that the same call got
// earlier in the run, in this response or before (L7). Errors are not reused: the
// call may succeed now.
func (t *Turn) reuse() {
	var known map[string]state.Part
	for _, o := range slices.Clone(t.s.Open) {
		spec := t.tool(o.Name)
		if o.Needs != "" || spec == nil || !spec.Reuses() {
			continue
		}
		if known == nil {
			known = answered(t.s.Log)
		}
		if r, ok := known[sign(o.Name, o.Arguments)]; ok {
			t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: r.Content, Images: r.Images, Files: r.Files, Reused: true}, false)
		}
	}
}

// answered returns the results of the calls that succeeded, by their signature;
// the latest counts.
func answered(log []state.Entry) map[string]state.Part {
	known := map[string]state.Part{}
	args := map[string]string{}
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
	var want []string
	for _, e := range slices.Backward(t.s.Log) {
		if e.Type != state.EntryModel || e.Message == nil {
			continue
		}
		var have []string
		for _, c := range e.Message.Calls() {
			have = append(have, sign(c.Name, c.Arguments))
		}
		slices.Sort(have)
		have = slices.Compact(have)
		if want == nil {
			want = have
		}
		if len(have) == 0 || !slices.Equal(have, want) {
			return false
		}
		if n--; n == 0 {
			return true
		}
	}
	return false
}

// looped ends a run that makes the same calls over and over.
func (t *Turn) looped() Decision {
	return t.move(state.EndToolLoop, state.Entry{
		Detail: fmt.Sprintf("the same calls %d times in a row", t.agent.ToolLoopThreshold()), Output: t.lastText(),
	})
}
