//go:build !nosdk

package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// The block that the provider gets back for a use of code_execution, and the text that replaces it for other
// agents.
var (
	usedBlock = map[string]string{"anthropic": `"code_execution_tool_result"`, "openai": `"code_interpreter_call"`, "gemini": `"codeExecutionResult"`}
	usedText  = "code_execution, run by the model's provider"
)

func computes(calls string) mockmodel.Response {
	r := mockmodel.Response{Scripted: model.Scripted{
		Text: "I compute.", ProviderTools: []model.ScriptedUse{{Name: model.CodeExecution, Arguments: json.RawMessage(`{"code":"1+1"}`), Result: "2"}},
	}}
	if calls != "" {
		r.ToolCalls = []model.ScriptedCall{{ID: "c1", Name: calls, Arguments: json.RawMessage(`{}`)}}
	}
	return r
}

func says(text string) mockmodel.Response {
	return mockmodel.Response{Scripted: model.Scripted{Text: text}}
}

// After a handoff, uses of a provider's tool are sent unchanged to an agent with the same model and the tool,
// and as text to any other. The same holds for a fork and for a later message.
func TestProviderToolsAfterHandoff(t *testing.T) {
	t.Parallel()
	const tools = `[{"name": "code_execution", "kind": "provider"}]`
	for from, block := range usedBlock {
		targets := map[string]struct{ model, tools, want, not string }{
			"the same model":              {vendors[from], tools, block, usedText},
			"the same model, no tool":     {vendors[from], `[]`, usedText, block},
			"a newer build of the family": {strings.Replace(vendors[from], `"name": "claude-haiku-4-5`, `"name": "claude-haiku-4-5-20251001`, 1), tools, block, usedText},
		}
		for to := range usedBlock {
			if to != from {
				targets["a model of "+to] = struct{ model, tools, want, not string }{vendors[to], tools, usedText, block}
			}
		}
		for name, to := range targets {
			t.Run(from+" to "+name, func(t *testing.T) {
				t.Parallel()
				s := newWired(t, computes("over"), says("back"), says("more"))
				s.work("w1")
				s.put("back", `{"instructions": "Be exact.", "model": `+to.model+`}, "tools": `+to.tools+`}`)
				s.put("front", `{"model": `+vendors[from]+`}, "tools": [{"name": "code_execution", "kind": "provider"}, {"name": "over", "kind": "handoff", "agent": "back"}]}`)
				id := s.post("/v1/runs", `{"agent": "front", "input": "go"}`)["id"].(string)
				s.end(id, "back")
				s.post("/v1/runs/"+id+"/signals", `{"message": "And?"}`)
				s.end(id, "more")
				forked := s.post("/v1/runs/"+id+"/fork", `{"turn": 1, "input": "Otherwise."}`)["id"].(string)
				s.end(forked, "back")
				sent := s.requests()
				if len(sent) != 4 {
					t.Fatalf("%d model calls, want 4", len(sent))
				}
				for i, body := range sent[1:] {
					if !strings.Contains(body, to.want) || strings.Contains(body, to.not) {
						t.Errorf("call %d has %s or lacks %s: %s", i+1, to.not, to.want, body)
					}
				}
				run, err := s.client.Get(t.Context(), id)
				if err != nil || run.Usage.CodeExecutions != 1 {
					t.Errorf("usage %+v, %v", run.Usage, err)
				}
			})
		}
	}
}

// A fork sends the uses of a provider's tool unchanged, or as text if it switches to an agent version without
// the tool.
func TestProviderToolsInFork(t *testing.T) {
	t.Parallel()
	for vendor, block := range usedBlock {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			s := newWired(t, computes("add"), says("done"))
			s.work("w1")
			s.put("a", `{"model": `+vendors[vendor]+`}, "tools": [{"name": "add"}, {"name": "code_execution", "kind": "provider"}]}`)
			s.put("a", `{"model": `+vendors[vendor]+`}, "tools": [{"name": "add"}]}`)
			id := s.post("/v1/runs", `{"agent": "a", "agent_version": 1, "input": "go"}`)["id"].(string)
			s.end(id, "done")
			sent := s.requests()
			forked := s.post("/v1/runs/"+id+"/fork", `{"turn": 1, "input": "Otherwise."}`)["id"].(string)
			s.end(forked, "done")
			again := s.requests()
			repeats(t, "fork", sent[1], again[0])
			if !strings.Contains(again[0], block) {
				t.Errorf("the fork sends no %s: %s", block, again[0])
			}
			forked = s.post("/v1/runs/"+id+"/fork", `{"turn": 1, "agent_version": 2}`)["id"].(string)
			s.end(forked, "done")
			if other := s.requests()[0]; strings.Contains(other, block) || !strings.Contains(other, usedText) {
				t.Errorf("without the tool the fork sends %s", other)
			}
		})
	}
}

// tool_choice forces the agent's own tools, next to the provider's tools. It cannot name a provider's tool.
func TestToolChoiceWithProviderTools(t *testing.T) {
	t.Parallel()
	for vendor, choices := range map[string]struct{ forced, auto, none string }{
		"anthropic": {`"tool_choice":{"name":"add","type":"tool"}`, `"tool_choice":{"type":"auto"}`, `"tool_choice":{"type":"none"}`},
		"openai":    {`"tool_choice":{"name":"add","type":"function"}`, `"tool_choice":"auto"`, `"tool_choice":"none"`},
		"gemini":    {`"functionCallingConfig":{"allowedFunctionNames":["add"],"mode":"ANY"}`, `"functionCallingConfig":{"mode":"AUTO"}`, `"functionCallingConfig":{"mode":"NONE"}`},
	} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			s := newWired(t, computes("add"), computes("add"), says("done"))
			s.work("w1")
			const tools = `"tools": [{"name": "add"}, {"name": "code_execution", "kind": "provider"}]`
			s.put("a", `{"model": `+vendors[vendor]+`, "tool_choice": {"name": "add"}}, `+tools+`, "loop": {"max_turns": 3, "on_limit": "answer"}}`)
			s.end(s.post("/v1/runs", `{"agent": "a", "input": "go"}`)["id"].(string), "done")
			sent := s.requests()
			if len(sent) != 3 {
				t.Fatalf("%d model calls, want 3", len(sent))
			}
			for i, want := range []string{choices.forced, choices.auto, choices.none} {
				if !strings.Contains(sorted(t, sent[i]), want) || i > 0 && !strings.Contains(sent[i], usedBlock[vendor]) {
					t.Errorf("call %d has no %s, or not the use of the tool: %s", i, want, sent[i])
				}
			}
			for _, list := range []string{tools, `"tools": [{"name": "code_execution", "kind": "provider"}]`} {
				code, _, problem := s.call("PUT", "/v1/agents/b", `{"model": `+vendors[vendor]+`, "tool_choice": {"name": "code_execution"}}, `+list+`}`)
				if detail, _ := problem["detail"].(string); code != 400 || !strings.Contains(detail, "model.tool_choice: the provider runs code_execution") {
					t.Errorf("a choice of the provider's tool: %d %v", code, problem)
				}
			}
		})
	}
}

// sorted returns JSON with object members in a fixed order.
func sorted(t *testing.T, body string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
