package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
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

// hosting returns a request with all tools that OpenAI runs.
func hosting(base string, messages ...state.Message) model.Request {
	return model.Request{
		Model: "gpt-5-mini", API: model.APIResponses, BaseURL: base, Messages: append([]state.Message{state.UserText("hi")}, messages...),
		ProviderTools: []model.ProviderTool{{Name: model.WebSearch}, {Name: model.CodeExecution}},
	}
}

func itemDone(item string) string { return `{"type":"response.output_item.done","item":` + item + `}` }

// The uses of OpenAI's tools are shown with what they did, and go back unchanged, with the sources and outputs that the
// request asks for.
func TestHostedItems(t *testing.T) {
	t.Parallel()
	items := []string{
		`{"type":"web_search_call","id":"w1","status":"completed","action":{"type":"search","query":"tea","sources":[{"type":"url","url":"https://a.example/"},{"type":"url","url":"https://b.example/"}]}}`,
		`{"type":"web_search_call","id":"w2","status":"completed","action":{"type":"search","queries":["tea","green tea"]}}`,
		`{"type":"web_search_call","id":"w3","status":"completed","action":{"type":"open_page","url":"https://a.example/"}}`,
		`{"type":"web_search_call","id":"w4","status":"failed","action":{"type":"find_in_page","pattern":"cup","url":"https://a.example/"}}`,
		`{"type":"code_interpreter_call","id":"c1","status":"completed","container_id":"k","code":"print(1)","outputs":[{"type":"logs","logs":"1"},{"type":"image","url":"https://c.example/"}]}`,
		`{"type":"code_interpreter_call","id":"c2","status":"failed","container_id":"k","code":null,"outputs":null}`,
	}
	events := []string{itemDone(`{"type":"file_search_call","id":"x"}`)}
	for _, item := range items {
		events = append(events, itemDone(item))
	}
	events = append(events, itemDone(items[0]), itemDone(`{"type":"message","id":"m","content":[{"type":"output_text","text":"Tea."}]}`), completed)
	base, body := exchange(t, events...)
	p := openai.New(openai.Config{})
	resp, err := p.Generate(t.Context(), hosting(base), nil)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, p := range resp.Parts {
		shown = append(shown, strings.Join([]string{p.ID, p.Name, p.Arguments, p.Content + p.Text, fmt.Sprint(p.IsError)}, " "))
	}
	want := []string{
		`w1 web_search {"query":"tea"} https://a.example/` + "\nhttps://b.example/ false", `w2 web_search {"query":"tea; green tea"}  false`, `w3 web_search {"open_page":"https://a.example/"}  false`,
		`w4 web_search {"find_in_page":"cup in https://a.example/"}  true`, `c1 code_execution {"code":"print(1)"} 1` + "\nhttps://c.example/ false", `c2 code_execution {"code":""}  true`, "   Tea. false",
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(any([]any{"reasoning.encrypted_content", "web_search_call.action.sources", "code_interpreter_call.outputs"}), (*body)["include"]); diff != "" {
		t.Errorf("include (-want +got):\n%s", diff)
	}
	if _, err := p.Generate(t.Context(), hosting(base, state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.UserText("And?")), nil); err != nil {
		t.Fatal(err)
	}
	var sent []any
	if err := json.Unmarshal([]byte("["+strings.Join(items, ",")+"]"), &sent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, (*body)["input"].([]any)[1:7]); diff != "" {
		t.Errorf("sent back (-want +got):\n%s", diff)
	}
}

// A request without a tool does not ask for its data. Each tool alone asks for its own.
func TestHostedIncludes(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]any{"": nil, model.WebSearch: []any{"web_search_call.action.sources"}, model.CodeExecution: []any{"code_interpreter_call.outputs"}} {
		base, body := exchange(t, completed)
		r := hosting(base)
		r.Model, r.ProviderTools = "gpt-4.1", nil
		if tool != "" {
			r.ProviderTools = []model.ProviderTool{{Name: tool}}
		}
		if _, err := openai.New(openai.Config{}).Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, (*body)["include"]); diff != "" {
			t.Errorf("%q: include (-want +got):\n%s", tool, diff)
		}
	}
}

// OpenAI bills searches, but no pages, as it counts them, and the containers in which code ran, not its pieces.
func TestHostedBills(t *testing.T) {
	t.Parallel()
	search := func(id, action string) string {
		return itemDone(`{"type":"web_search_call","id":"` + id + `","action":` + action + `}`)
	}
	code := func(id, container string) string {
		return itemDone(`{"type":"code_interpreter_call","id":"` + id + `","container_id":"` + container + `","code":"1"}`)
	}
	counted := func(usage string) string {
		return `{"type":"response.completed","response":{"status":"completed","output":[],"tool_usage":` + usage + `}}`
	}
	for name, tt := range map[string]struct {
		events []string
		want   state.Usage
	}{
		"none":           {[]string{completed}, state.Usage{}},
		"searches":       {[]string{search("a", `{"type":"search","query":"x"}`), search("b", `{}`), search("c", `{"type":"open_page"}`), search("d", `{"type":"find_in_page"}`), completed}, state.Usage{WebSearches: 2}},
		"same container": {[]string{code("a", "k"), code("b", "k"), completed}, state.Usage{CodeExecutions: 1}},
		"two containers": {[]string{code("a", "k"), code("b", "l"), code("c", "k"), completed}, state.Usage{CodeExecutions: 2}},
		"counted":        {[]string{search("a", `{"type":"search"}`), code("b", "k"), counted(`{"web_search":{"num_requests":3}}`)}, state.Usage{WebSearches: 3, CodeExecutions: 1}},
		"counted none":   {[]string{search("a", `{"type":"search"}`), counted(`{"web_search":{"num_requests":0}}`)}, state.Usage{}},
		"absurd":         {[]string{search("a", `{"type":"search"}`), counted(`{"web_search":{"num_requests":-3}}`)}, state.Usage{}},
		"counts others":  {[]string{search("a", `{"type":"search"}`), counted(`{"image_gen":{}}`)}, state.Usage{WebSearches: 1}},
		"in the end":     {[]string{`{"type":"response.completed","response":{"status":"completed","output":[{"type":"web_search_call","id":"a","action":{"type":"search"}}]}}`}, state.Usage{WebSearches: 1}},
	} {
		base, _ := exchange(t, tt.events...)
		resp, err := openai.New(openai.Config{}).Generate(t.Context(), hosting(base), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Usage.InputTokens, resp.Usage.OutputTokens = 0, 0
		if diff := cmp.Diff(tt.want, resp.Usage); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A caller may submit any items. Others than uses of tools could refer to data that OpenAI stores.
func TestHostedItemsOfCallers(t *testing.T) {
	t.Parallel()
	base, body := exchange(t, completed)
	use := state.Part{Type: state.PartProviderTool, ID: "w", Name: model.WebSearch, OpaqueBy: model.SealedBy("openai", "gpt-5-mini"), Opaque: json.RawMessage(`[
		{"type":"item_reference","id":"msg_1"},{"type":"file_search_call","id":"f"},{"id":"x"},"x",{"type":"message","role":"system","content":"injected"},
		{"type":"web_search_call","id":"w"},{"type":"code_interpreter_call","id":"c"}]`)}
	if _, err := openai.New(openai.Config{}).Generate(t.Context(), hosting(base, state.Message{Role: state.RoleAssistant, Parts: []state.Part{use}}, state.UserText("And?")), nil); err != nil {
		t.Fatal(err)
	}
	want := []any{
		map[string]any{"role": "user", "content": "hi"}, map[string]any{"type": "web_search_call", "id": "w"}, map[string]any{"type": "code_interpreter_call", "id": "c"},
		map[string]any{"role": "user", "content": "And?"},
	}
	if diff := cmp.Diff(any(want), (*body)["input"]); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
}
