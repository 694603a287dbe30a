package standard_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/standard"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// With tools, the provider enforces a schema if it can; otherwise the schema becomes that of a tool.
func TestSchemaBesideTools(t *testing.T) {
	t.Parallel()
	providers, err := standard.Providers("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	const closed, open = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`, `{"type":"object"}`
	for _, tt := range []struct {
		provider, model string
		api             model.API
		schema          string
		choice          model.ToolMode
		effort          model.Effort
		want            string // a part of the body
	}{
		{"anthropic", "claude-sonnet-4-5", "", closed, "", "", `"output_config":{"format":`},
		{"anthropic", "claude-sonnet-4-5", "", closed, model.ToolsNone, "", `"output_config":{"format":`},
		{"anthropic", "claude-sonnet-4-5", "", open, "", "", `"tool_choice":{"type":"any"}`},
		{"anthropic", "claude-sonnet-4-5", "", open, model.ToolsNone, "", `"tool_choice":{"name":"turnpike_final_answer","type":"tool"}`},
		{"anthropic", "claude-sonnet-4", "", closed, "", model.EffortHigh, `"name":"turnpike_final_answer"`},
		{"anthropic", "claude-sonnet-4", "", closed, model.ToolsNone, model.EffortHigh, `Answer with one JSON value`},
		{"openai", "gpt-5", model.APIResponses, open, "", "", `"text":{"format":{`},
		{"openai", "qwen3", model.APIChat, open, "", "", `"name":"turnpike_final_answer"`},
		{"openai", "qwen3", model.APIChat, open, model.ToolsNone, "", `"response_format":{`},
		{"gemini", "gemini-3-pro-preview", "", open, "", "", `"responseJsonSchema":`},
		{"gemini", "gemini-2.5-pro", "", open, "", "", `"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}`},
		{"gemini", "gemini-2.5-pro", "", open, model.ToolsNone, "", `"allowedFunctionNames":["turnpike_final_answer"]`},
	} {
		r := model.Request{
			Model: tt.model, API: tt.api, Messages: []state.Message{state.UserText("hi")}, Tools: []model.ToolSpec{{Name: "f", Schema: json.RawMessage(open)}},
			OutputSchema: json.RawMessage(tt.schema), Reasoning: tt.effort, Settings: model.Settings{ToolChoice: model.ToolChoice{Mode: tt.choice}},
		}
		body, err := json.Marshal(asked(t, providers[tt.provider], r))
		if err != nil {
			t.Fatal(err)
		}
		tool := strings.Contains(string(body), model.FinalAnswer)
		native := strings.Contains(string(body), `"format":`) || strings.Contains(string(body), "response_format") || strings.Contains(string(body), "responseJsonSchema") || strings.Contains(string(body), "Answer with one JSON value")
		if !strings.Contains(string(body), tt.want) || tool == native {
			t.Errorf("%s %q with %q: no %s, or the schema appears twice:\n%s", tt.model, tt.schema, tt.choice, tt.want, body)
		}
	}
}
