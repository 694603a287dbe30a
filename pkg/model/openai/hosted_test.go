package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each setting of a tool that OpenAI runs is in the request. The bound for all uses is the sum, if each tool has one.
func TestHostedSettings(t *testing.T) {
	t.Parallel()
	base, body := exchange(t, completed)
	settings := json.RawMessage(`{"allowed_domains":["a.example"],"search_context_size":"low","external_web_access":false,"user_location":{"city":"Lisbon","region":"R","country":"PT","timezone":"Europe/Lisbon"}}`)
	for _, test := range []struct {
		code int64
		want any
	}{{2, 5.0}, {0, nil}} {
		_, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{
			Model: "gpt-5-mini", API: model.APIResponses, BaseURL: base, Messages: []state.Message{state.UserText("hi")},
			ProviderTools: []model.ProviderTool{{Name: model.WebSearch, MaxUses: 3, Settings: settings}, {Name: model.CodeExecution, MaxUses: test.code}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := []any{
			map[string]any{
				"type": "web_search", "filters": map[string]any{"allowed_domains": []any{"a.example"}}, "search_context_size": "low", "external_web_access": false,
				"user_location": map[string]any{"type": "approximate", "city": "Lisbon", "region": "R", "country": "PT", "timezone": "Europe/Lisbon"},
			},
			map[string]any{"type": "code_interpreter", "container": map[string]any{"type": "auto"}},
		}
		if diff := cmp.Diff(any(want), (*body)["tools"]); diff != "" {
			t.Errorf("tools (-want +got):\n%s", diff)
		}
		if got := (*body)["max_tool_calls"]; got != test.want {
			t.Errorf("with %d uses of code: max_tool_calls %v, want %v", test.code, got, test.want)
		}
	}
}
