package service

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A fork request is refused with a short error, or yields a history that a model accepts: unnamed parts are
// unchanged, and parts that a person wrote are marked.
func FuzzFork(f *testing.F) {
	for _, seed := range []string{
		`{"turn":1,"input":"And then?"}`,
		`{"turn":1,"messages":[{"id":"m1","parts":[{"type":"text","text":"Other."}]}],"input":"x"}`,
		`{"turn":1,"messages":[{"id":"m2","parts":[{"type":"tool_call","id":"a","name":"t","arguments":{}}]}]}`,
		`{"turn":1,"messages":[{"id":"m2","parts":[{"type":"tool_call","id":"b","name":"t","arguments":{}},{"type":"tool_call","id":"a","name":"t","arguments":{}}]}]}`,
		`{"turn":1,"messages":[{"id":"m3","parts":[{"type":"tool_result","call_id":"a","content":"x"}]}]}`,
		`{"turn":1,"tool_results":[{"call_id":"a","content":{"n":1}},{"call_id":"b","turn":1,"content":"x","is_error":true}]}`,
		`{"turn":1,"tool_results":[{"call_id":"a","content":"x"},{"call_id":"a","content":"y"}]}`,
		`{"turn":1,"input":[{"role":"assistant","parts":[{"type":"tool_call","id":"a","name":"t","arguments":{}}]},{"role":"tool","parts":[{"type":"tool_result","call_id":"a","content":""}]}]}`,
	} {
		f.Add([]byte(seed))
	}
	call := func(id string) state.Part {
		return state.Part{Type: state.PartToolCall, ID: id, Name: "t", Arguments: `{}`}
	}
	result := func(id string) state.Part {
		return state.Part{Type: state.PartToolResult, CallID: id, Content: "r", Origin: state.OriginWeb}
	}
	text := func(s string) []state.Part { return []state.Part{{Type: state.PartText, Text: s}} }
	before := []state.Message{
		{ID: "m0", Role: state.RoleSystem, Parts: text("Be kind.")},
		{ID: "m1", Role: state.RoleUser, Parts: text("Go.")},
		{ID: "m2", Role: state.RoleAssistant, Turn: 1, Model: "scripted", Parts: []state.Part{call("a"), call("b")}},
		{ID: "m3", Role: state.RoleTool, Turn: 1, Synthetic: true, Parts: []state.Part{result("a")}},
		{ID: "m4", Role: state.RoleTool, Turn: 1, Parts: []state.Part{result("b")}},
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req api.ForkRequest
		if api.Decode(body, &req) != nil {
			return
		}
		forked := fork{source: "run_1", History: state.History{Messages: slices.Clone(before), Turn: 1}}
		forked.change(req, "Be kind.")
		if err := forked.err(); err != nil {
			if p := ProblemOf(err); len(p.Detail) > MaxDetail+64 || len(p.Errors) > maxNamed {
				t.Fatalf("%d bytes, %d faults", len(p.Detail), len(p.Errors))
			}
			return
		}
		if err := paired(forked.Messages); err != nil {
			t.Fatal(err)
		}
		for i, was := range before {
			now := forked.Messages[i]
			if !slices.Contains(forked.edited, i) {
				if diff := cmp.Diff(was, now); diff != "" {
					t.Fatalf("message %d was not named:\n%s", i, diff)
				}
				continue
			}
			if now.ID != was.ID || now.Role != was.Role || now.Turn != was.Turn {
				t.Fatalf("message %d differs: %+v", i, now)
			}
			if now.Model != "" || now.Synthetic {
				t.Fatalf("message %d counts as written by a model or by Turnpike: %+v", i, now)
			}
			for _, p := range now.Parts {
				if now.Role == state.RoleTool && p.Origin != state.OriginPerson {
					t.Fatalf("message %d is not marked as written by a person: %+v", i, p)
				}
			}
		}
	})
}
