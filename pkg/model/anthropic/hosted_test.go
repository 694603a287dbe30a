package anthropic_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// searching returns a request with tools that Anthropic runs.
func searching(messages ...state.Message) model.Request {
	return model.Request{Model: "m", Messages: append([]state.Message{state.UserText("hi")}, messages...), ProviderTools: []model.ProviderTool{
		{Name: model.WebSearch, MaxUses: 3, Settings: json.RawMessage(`{"allowed_domains":["example.com"],"user_location":{"city":"Lisbon"}}`)},
		{Name: model.WebFetch, Settings: json.RawMessage(`{"citations":true,"max_content_tokens":500}`)},
		{Name: model.CodeExecution},
	}}
}

// exchanged makes a call and returns the sent body and the response.
func exchanged(t *testing.T, r model.Request, lines ...string) (body map[string]any, resp model.Response) {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(req.Body)
		_ = json.Unmarshal(raw, &body) // nil fails the test
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range lines {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		}
	}))
	t.Cleanup(h.Close)
	r.BaseURL = h.URL
	resp, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return body, resp
}

func hostedUse(i int, id, name, input string) []string {
	return []string{begin(i, `{"type":"server_tool_use","id":"`+id+`","name":"`+name+`","input":{},"caller":{"type":"direct"}}`), delta(i, `{"type":"input_json_delta","partial_json":`+quoted(input)+`}`), end(i)}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func found(i int, id string) []string {
	return []string{begin(i, `{"type":"web_search_tool_result","tool_use_id":"`+id+`","content":[{"type":"web_search_result","title":"T","url":"https://example.com/","encrypted_content":"E==","page_age":null}]}`), end(i)}
}

func lines(lists ...[]string) []string {
	out := []string{start}
	for _, l := range lists {
		out = append(out, l...)
	}
	return append(out, stop)
}

const finished = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":30,"server_tool_use":{"web_search_requests":2,"web_fetch_requests":1}}}`

// Uses of Anthropic's own tools are shown, counted, and sent back unchanged and in order; texts have their
// citations.
func TestHostedTools(t *testing.T) {
	t.Parallel()
	body, resp := exchanged(t, searching(), lines(
		hostedUse(0, "s1", "web_search", `{"query": "tea"}`), found(1, "s1"),
		hostedUse(2, "s2", "web_search", `{"query":"a"}`), hostedUse(3, "f1", "web_fetch", `{"url":"u"}`), found(4, "s2"),
		[]string{begin(5, `{"type":"web_fetch_tool_result","tool_use_id":"f1","content":{"type":"web_fetch_tool_result_error","error_code":"url_not_accessible"}}`), end(5)},
		hostedUse(6, "c1", "bash_code_execution", `{"command":"ls"}`),
		[]string{begin(7, `{"type":"bash_code_execution_tool_result","tool_use_id":"c1","content":{"type":"bash_code_execution_result","stdout":"a.csv","stderr":"","return_code":2,"content":[]}}`), end(7)},
		[]string{begin(8, `{"type":"text","text":"","citations":[]}`), delta(8, `{"type":"citations_delta","citation":{"type":"web_search_result_location","url":"https://example.com/","title":"T","cited_text":"c","encrypted_index":"I=="}}`),
			delta(8, `{"type":"text_delta","text":"Tea."}`), end(8), finished},
	)...)
	equal := func(what string, got any, want string) {
		t.Helper()
		var w any
		if err := json.Unmarshal([]byte(want), &w); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	equal("tools", body["tools"], `[
		{"type":"web_search_20250305","name":"web_search","max_uses":3,"allowed_domains":["example.com"],"user_location":{"type":"approximate","city":"Lisbon"}},
		{"type":"web_fetch_20250910","name":"web_fetch","citations":{"enabled":true},"max_content_tokens":500},
		{"type":"code_execution_20250825","name":"code_execution","cache_control":{"type":"ephemeral"}}]`)
	var shown []string
	for _, p := range resp.Parts {
		shown = append(shown, strings.Join([]string{string(p.Type), p.ID, p.Name, p.Arguments, p.Content + p.Text, fmt.Sprint(p.IsError), string(p.Source())}, " "))
	}
	want := []string{
		`provider_tool s1 web_search {"query":"tea"} T` + "\nhttps://example.com/ false web",
		`provider_tool s2 web_search {"query":"a"}  false web`,
		`provider_tool f1 web_fetch {"url":"u"}  false web`,
		`provider_tool s2 web_search  T` + "\nhttps://example.com/ false web",
		`provider_tool f1 web_fetch  url_not_accessible true web`,
		`provider_tool c1 code_execution {"command":"ls"} a.csv` + "\nexit code 2 true tool",
		`text    Tea. false `,
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if u := resp.Usage; u.WebSearches != 2 || u.WebFetches != 1 || u.CodeExecutions != 1 {
		t.Errorf("usage %+v", u)
	}
	again, _ := exchanged(t, searching(state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.UserText("And?")), lines([]string{done("end_turn")})...)
	equal("sent back", again["messages"].([]any)[1].(map[string]any)["content"], `[
		{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"tea"},"caller":{"type":"direct"}},
		{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","title":"T","url":"https://example.com/","encrypted_content":"E==","page_age":null}]},
		{"type":"server_tool_use","id":"s2","name":"web_search","input":{"query":"a"},"caller":{"type":"direct"}},
		{"type":"server_tool_use","id":"f1","name":"web_fetch","input":{"url":"u"},"caller":{"type":"direct"}},
		{"type":"web_search_tool_result","tool_use_id":"s2","content":[{"type":"web_search_result","title":"T","url":"https://example.com/","encrypted_content":"E==","page_age":null}]},
		{"type":"web_fetch_tool_result","tool_use_id":"f1","content":{"type":"web_fetch_tool_result_error","error_code":"url_not_accessible"}},
		{"type":"server_tool_use","id":"c1","name":"bash_code_execution","input":{"command":"ls"},"caller":{"type":"direct"}},
		{"type":"bash_code_execution_tool_result","tool_use_id":"c1","content":{"type":"bash_code_execution_result","stdout":"a.csv","stderr":"","return_code":2,"content":[]}},
		{"type":"text","text":"Tea.","citations":[{"type":"web_search_result_location","url":"https://example.com/","title":"T","cited_text":"c","encrypted_index":"I=="}]}]`)

	// A model of another family, and a request without the tools, get text without citations.
	for name, r := range map[string]model.Request{"family": searching(), "tools": {Model: "m", Messages: []state.Message{state.UserText("hi")}}} {
		if name == "family" {
			r.Model = "other"
		}
		r.Messages = append(r.Messages, state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.UserText("And?"))
		body, _ := exchanged(t, r, lines([]string{done("end_turn")})...)
		sent, _ := json.Marshal(body["messages"])
		if text := string(sent); strings.Contains(text, "server_tool_use") || strings.Contains(text, "citations") || !strings.Contains(text, "run by the model's provider") {
			t.Errorf("another %s gets %s", name, text)
		}
	}
}

// Each setting of a tool that Anthropic runs is in the request.
func TestHostedSettings(t *testing.T) {
	t.Parallel()
	body, _ := exchanged(t, model.Request{Model: "m", Messages: []state.Message{state.UserText("hi")}, ProviderTools: []model.ProviderTool{
		{Name: model.WebSearch, Settings: json.RawMessage(`{"blocked_domains":["a.example"],"user_location":{"region":"R","country":"PT","timezone":"Europe/Lisbon"}}`)},
		{Name: model.WebFetch, MaxUses: 2, Settings: json.RawMessage(`{"allowed_domains":["b.example"],"citations":false}`)},
		{Name: model.WebFetch, Settings: json.RawMessage(`{"blocked_domains":["c.example","d.example"]}`)},
	}}, lines([]string{done("end_turn")})...)
	want := []any{
		map[string]any{"type": "web_search_20250305", "name": "web_search", "blocked_domains": []any{"a.example"}, "user_location": map[string]any{"type": "approximate", "region": "R", "country": "PT", "timezone": "Europe/Lisbon"}},
		map[string]any{"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 2.0, "allowed_domains": []any{"b.example"}, "citations": map[string]any{"enabled": false}},
		map[string]any{"type": "web_fetch_20250910", "name": "web_fetch", "blocked_domains": []any{"c.example", "d.example"}, "cache_control": map[string]any{"type": "ephemeral"}},
	}
	if diff := cmp.Diff(any(want), body["tools"]); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

// If Anthropic runs other tools, a structured answer comes through a tool: citations cannot be in an enforced
// answer. The model is not forced to call it before it has searched.
func TestHostedWithSchema(t *testing.T) {
	t.Parallel()
	r := searching()
	r.Model, r.OutputSchema = "claude-haiku-4-5", json.RawMessage(`{"type":"object","additionalProperties":false}`)
	body, resp := exchanged(t, r, lines(
		hostedUse(0, "s1", "web_search", `{"query":"tea"}`), found(1, "s1"),
		[]string{begin(2, `{"type":"tool_use","id":"a","name":"turnpike_final_answer","input":{}}`), delta(2, `{"type":"input_json_delta","partial_json":"{}"}`), end(2), done("tool_use")},
	)...)
	if body["output_config"] != nil || body["tool_choice"] != nil || len(body["tools"].([]any)) != 4 {
		t.Errorf("the request has %v, %v, %v", body["output_config"], body["tool_choice"], body["tools"])
	}
	if n := len(resp.Parts); n != 2 || resp.Parts[0].Type != state.PartProviderTool || resp.Parts[1].Text != "{}" || resp.Stop != model.StopEnd {
		t.Errorf("%s %+v", resp.Stop, resp.Parts)
	}
}

// A paused response is continued unchanged. Its open use cannot go back in any other place.
func TestHostedPause(t *testing.T) {
	t.Parallel()
	_, resp := exchanged(t, searching(), lines(hostedUse(0, "s1", "web_search", `{"query":"tea"}`), []string{done("pause_turn")})...)
	if resp.Stop != model.StopPause || len(resp.Parts) != 1 {
		t.Fatalf("%s %+v", resp.Stop, resp.Parts)
	}
	paused := state.Message{Role: state.RoleAssistant, Parts: resp.Parts}
	sent := func(messages ...state.Message) string {
		body, _ := exchanged(t, searching(messages...), lines([]string{done("end_turn")})...)
		raw, _ := json.Marshal(body["messages"])
		return string(raw)
	}
	if got := sent(paused); !strings.Contains(got, `"type":"server_tool_use"`) {
		t.Errorf("a continuation has %s", got)
	}
	if got := sent(paused, state.UserText("stop")); strings.Contains(got, `"type":"server_tool_use"`) {
		t.Errorf("before a message the request has %s", got)
	}
	_, rest := exchanged(t, searching(paused), lines(found(0, "s1"), []string{finished})...)
	if got := sent(paused, state.Message{Role: state.RoleAssistant, Parts: rest.Parts}, state.UserText("go on")); strings.Count(got, `"s1"`) != 2 {
		t.Errorf("both halves are %s", got)
	}
	// A response that the output limit cuts has no open use.
	_, cut := exchanged(t, searching(), lines(hostedUse(0, "s1", "web_search", `{"query":"tea"}`), []string{done("max_tokens")})...)
	if len(cut.Parts) != 1 || cut.Parts[0].Type != state.PartText {
		t.Errorf("a cut response has %+v", cut.Parts)
	}
}

// Citations go back only to the family of models that made them: another one's are of another form.
func TestCitationsOfOthers(t *testing.T) {
	t.Parallel()
	own := model.SealedBy("anthropic", "m")
	for by, want := range map[string]bool{own: true, "openai m": false, "": false} {
		said := state.Part{
			Type: state.PartText, Text: "Tea.", OpaqueBy: by,
			Opaque: json.RawMessage(`{"citations":[{"type":"web_search_result_location","url":"https://example.com/","title":"T","cited_text":"c","encrypted_index":"I=="}]}`),
		}
		r := searching(state.Message{Role: state.RoleAssistant, Parts: []state.Part{said}}, state.UserText("Go on"))
		body, _ := exchanged(t, r, start, begin(0, `{"type":"text","text":"hi"}`), end(0), done("end_turn"), stop)
		sent, err := json.Marshal(body["messages"])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(sent), "encrypted_index"); got != want {
			t.Errorf("the citations of %q are sent: %t, want %t: %s", by, got, want, sent)
		}
	}
}

// People, and models of other families, read what a tool returned. A use without code has no content.
func TestHostedResults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, tool, result, content string
		failed                      bool
	}{
		{"web_search_tool_result", "web_search", `[{"title":"A","url":"https://a.example/"},{"title":"B","url":"https://b.example/"}]`, "A\nhttps://a.example/\nB\nhttps://b.example/", false},
		{"web_search_tool_result", "web_search", `{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}`, "max_uses_exceeded", true},
		{"web_fetch_tool_result", "web_fetch", `{"type":"web_fetch_result","url":"https://a.example/","content":{"type":"document","title":"A","source":{"type":"text","media_type":"text/plain","data":"Tea."}}}`, "A\nhttps://a.example/\nTea.", false},
		{"web_fetch_tool_result", "web_fetch", `{"type":"web_fetch_result","url":"https://a.example/","content":{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}}`, "https://a.example/\n[application/pdf, 8 bytes in base64]", false},
		{"bash_code_execution_tool_result", "bash_code_execution", `{"type":"bash_code_execution_result","stdout":"out\n","stderr":"err\n","return_code":0,"content":[]}`, "out\n\nerr", false},
		{"bash_code_execution_tool_result", "bash_code_execution", `{"type":"bash_code_execution_result","stdout":"","stderr":"err","return_code":0}`, "err", false},
		{"bash_code_execution_tool_result", "bash_code_execution", `{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":1}`, "exit code 1", true},
		{"code_execution_tool_result", "code_execution", `{"type":"code_execution_result","stdout":"1","stderr":"","return_code":0}`, "1", false},
		{"text_editor_code_execution_tool_result", "text_editor_code_execution", `{"type":"text_editor_code_execution_view_result","file_type":"text","content":"line"}`, "line", false},
		{"text_editor_code_execution_tool_result", "text_editor_code_execution", `{"type":"text_editor_code_execution_create_result","is_file_update":false}`, "", false},
	} {
		_, resp := exchanged(t, searching(), lines(
			hostedUse(0, "u", tt.tool, "{}"), []string{begin(1, `{"type":"`+tt.kind+`","tool_use_id":"u","content":`+tt.result+`}`), end(1), done("end_turn")},
		)...)
		if len(resp.Parts) != 1 || resp.Parts[0].Content != tt.content || resp.Parts[0].IsError != tt.failed || resp.Parts[0].Name == "" {
			t.Errorf("%s: %+v, want %q", tt.result, resp.Parts, tt.content)
		}
	}
}

// A use of an unknown tool, or with half of its arguments, is omitted; a result counts for the use with its id only.
func TestHostedUsesThatAreOmitted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		use  []string
		want int // number of parts
	}{
		"known":         {hostedUse(0, "u", "web_search", "{}"), 1},
		"unknown":       {hostedUse(0, "u", "novel_search", "{}"), 1},
		"half":          {hostedUse(0, "u", "web_search", `{"query":`), 1},
		"other result":  {hostedUse(0, "v", "web_search", "{}"), 1},
		"distant block": {append(hostedUse(0, "u", "web_search", "{}"), begin(1, `{"type":"text","text":"hm"}`), end(1)), 3},
	} {
		_, resp := exchanged(t, searching(), lines(tt.use, found(2, "u"), []string{done("end_turn")})...)
		arguments := ""
		for _, p := range resp.Parts {
			arguments += p.Arguments
		}
		if kept := name == "known" || name == "distant block"; len(resp.Parts) != tt.want || (arguments == "{}") != kept {
			t.Errorf("%s: %+v", name, resp.Parts)
		}
	}
}

// Citations go back without the field that only responses have. Of more than 64 KiB of them, none is kept.
func TestCitationsAreBounded(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int]bool{60 << 10: true, 64 << 10: false} {
		citation := `{"type":"web_search_result_location","url":"https://example.com/","title":"T","file_id":null,"cited_text":"` + strings.Repeat("c", size) + `","encrypted_index":"I=="}`
		_, resp := exchanged(t, searching(), lines([]string{
			begin(0, `{"type":"text","text":"","citations":[]}`), delta(0, `{"type":"citations_delta","citation":`+citation+`}`), delta(0, `{"type":"text_delta","text":"Tea."}`), end(0), finished,
		})...)
		if len(resp.Parts) != 1 || resp.Parts[0].Text != "Tea." || len(resp.Parts[0].Opaque) > 0 != kept {
			t.Fatalf("%d bytes: %d parts, %d bytes are kept", size, len(resp.Parts), len(resp.Parts[0].Opaque))
		}
		body, _ := exchanged(t, searching(state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.UserText("And?")), lines([]string{done("end_turn")})...)
		sent, _ := json.Marshal(body["messages"])
		if text := string(sent); strings.Contains(text, "encrypted_index") != kept || strings.Contains(text, "file_id") {
			t.Errorf("%d bytes: the request has %.300s", size, text)
		}
	}
}

// A caller may submit any blocks: only uses of tools and their results are sent, and a result only behind its use.
func TestHostedBlocksOfCallers(t *testing.T) {
	t.Parallel()
	const (
		use    = `{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}`
		result = `{"type":"web_search_tool_result","tool_use_id":"s1","content":[]}`
		other  = `{"type":"document","source":{"type":"url","url":"https://example.com/private"}}`
	)
	cited := state.Part{
		Type: state.PartText, Text: "Tea.", OpaqueBy: model.SealedBy("anthropic", "m"),
		Opaque: json.RawMessage(`{"citations":[{"type":"web_search_result_location","url":"https://example.com/","cited_text":"c","encrypted_index":"I=="}]}`),
	}
	for blocks, want := range map[string]string{
		use + "," + result: "server_tool_use web_search_tool_result cited", use + "," + other: "server_tool_use cited", result: "text", other: "text", result + "," + use: "text",
	} {
		p := state.Part{Type: state.PartProviderTool, ID: "s1", Name: model.WebSearch, Opaque: json.RawMessage("[" + blocks + "]"), OpaqueBy: model.SealedBy("anthropic", "m")}
		body, _ := exchanged(t, searching(state.Message{Role: state.RoleAssistant, Parts: []state.Part{p, cited}}, state.UserText("And?")), lines([]string{done("end_turn")})...)
		var kinds []string
		for _, b := range body["messages"].([]any)[1].(map[string]any)["content"].([]any) {
			block := b.(map[string]any)
			switch {
			case block["citations"] != nil:
				kinds = append(kinds, "cited")
			case block["text"] != "Tea.":
				kinds = append(kinds, block["type"].(string))
			}
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("of %s the request has %q, want %q", blocks, got, want)
		}
	}
}
