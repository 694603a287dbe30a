package mockmodel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each provider's format carries the uses of its tools to the run and back; another provider gets them as text.
func TestProviderTools(t *testing.T) {
	t.Parallel()
	server, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{{Responses: []mockmodel.Response{
		{Scripted: model.Scripted{Text: "Tea.", ProviderTools: []model.ScriptedUse{
			{Name: model.WebSearch, Arguments: json.RawMessage(`{"query":"tea"}`), Result: "All about tea\nhttps://tea.example/"},
			{Name: model.CodeExecution, Arguments: json.RawMessage(`{"code":"1+1"}`), Result: "2"},
		}}},
		{Scripted: model.Scripted{Text: "More tea."}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	hosted := func(most int64) []model.ProviderTool {
		return []model.ProviderTool{{Name: model.WebSearch, MaxUses: most}, {Name: model.CodeExecution, MaxUses: most}}
	}
	var first []state.Part
	stranger := state.Part{Type: state.PartProviderTool, Name: model.WebSearch, Content: "T", Opaque: json.RawMessage(`[{"type":"item_reference","id":"stored","text":"stored"}]`)}
	for _, tt := range []struct {
		name, base, model string
		provider          model.Provider
		most              int64
		tools             string // of the request
		back              string // in the next request
		parts             string
		usage             state.Usage
	}{
		{
			"anthropic", h.URL, "claude-haiku-4-5", anthropic.New(anthropic.Config{}), 2, `"max_uses":2`, `"encrypted_content":"QWxsIGFib3V0IHRlYQ=="`,
			`web_search {"query":"tea"} "All about tea\nhttps://tea.example/" web|code_execution {"code":"1+1"} "2" |text  "Tea." `, state.Usage{WebSearches: 1, CodeExecutions: 1},
		},
		{
			"openai", h.URL + "/v1", "gpt-5-mini", openai.New(openai.Config{}), 2, `"max_tool_calls":4`, `"container_id":"cntr_mock-0-0"`,
			`web_search {"query":"tea"} "https://tea.example/" web|code_execution {"code":"1+1"} "2" |text  "Tea." `, state.Usage{WebSearches: 1, CodeExecutions: 1},
		},
		{
			"gemini", h.URL, "gemini-3-flash", gemini.New(gemini.Config{}), 0, `{"googleSearch":{}}`, `"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"2"}`,
			`web_search {"queries":["tea"]} "All about tea\nhttps://tea.example/" web|code_execution {"code":"1+1"} "2" |text  "Tea." `, state.Usage{WebSearches: 1, CodeExecutions: 1},
		},
	} {
		r := model.Request{Model: tt.model, BaseURL: tt.base, API: model.APIResponses, Messages: []state.Message{state.UserText("hi")}, ProviderTools: hosted(tt.most)}
		resp, err := tt.provider.Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if !strings.Contains(string(body), tt.tools) {
			t.Errorf("%s: the request lacks %s: %s", tt.name, tt.tools, body)
		}
		var parts []string
		for _, p := range resp.Parts {
			name := p.Name
			if name == "" {
				name = string(p.Type)
			}
			parts = append(parts, fmt.Sprintf("%s %s %q %s", name, p.Arguments, p.Content+p.Text, p.Origin))
		}
		if diff := cmp.Diff(tt.parts, strings.Join(parts, "|")); diff != "" {
			t.Errorf("%s: parts (-want +got):\n%s", tt.name, diff)
		}
		if u := resp.Usage; u.WebSearches != tt.usage.WebSearches || u.CodeExecutions != tt.usage.CodeExecutions {
			t.Errorf("%s: usage %+v", tt.name, u)
		}
		r.Messages = append(r.Messages, state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.UserText("And?"))
		if next, err := tt.provider.Generate(t.Context(), r, nil); err != nil || (state.Message{Parts: next.Parts}).Text() != "More tea." {
			t.Errorf("%s: %v %+v", tt.name, err, next)
		}
		if !strings.Contains(string(body), tt.back) || strings.Contains(string(body), "run by the model's provider") {
			t.Errorf("%s: the next request lacks %s: %s", tt.name, tt.back, body)
		}
		stranger.OpaqueBy = model.SealedBy(tt.name, tt.model)
		r.Messages[1].Parts = []state.Part{stranger, {Type: state.PartText, Text: "x"}}
		if _, err := tt.provider.Generate(t.Context(), r, nil); err != nil || strings.Contains(string(body), "stored") {
			t.Errorf("%s: %v: a use that a caller made up is sent: %s", tt.name, err, body)
		}
		if first == nil {
			first = resp.Parts
			continue
		}
		r.Messages[1].Parts = first
		if _, err := tt.provider.Generate(t.Context(), r, nil); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := string(body); !strings.Contains(got, "web_search, run by the model's provider") || strings.Contains(got, "encrypted_content\":\"QWxs") {
			t.Errorf("%s gets another provider's uses as %s", tt.name, got)
		}
	}
}
