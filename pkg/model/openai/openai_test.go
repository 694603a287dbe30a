package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// serve answers every request with the same events.
func serve(t *testing.T, lines ...string) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range lines {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL + "/v1"
}

func generate(t *testing.T, base string) (model.Response, error) {
	t.Helper()
	return openai.New(openai.Config{}).Generate(t.Context(), model.Request{Model: "m", BaseURL: base, Messages: []state.Message{state.UserText("hi")}}, nil)
}

func chunk(delta, finish string) string {
	if finish != "null" {
		finish = `"` + finish + `"`
	}
	return `{"id":"c","object":"chat.completion.chunk","model":"served","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

func text(s string) state.Part { return state.Part{Type: state.PartText, Text: s} }

// Deviations of compatible servers are handled.
func TestStreams(t *testing.T) {
	t.Parallel()
	call := state.Part{Type: state.PartToolCall, ID: "a", Name: "f", Arguments: `{"x":1}`}
	calls := `{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}`
	for name, test := range map[string]struct {
		lines []string
		parts []state.Part
		stop  model.Stop
		usage state.Usage
	}{
		"finish in the last delta": {[]string{chunk(`{"content":"hi"}`, "stop")}, []state.Part{text("hi")}, model.StopEnd, state.Usage{}},
		"no DONE, usage alone": {[]string{chunk(`{"content":"hi"}`, "stop"), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`},
			[]state.Part{text("hi")}, model.StopEnd, state.Usage{InputTokens: 9, OutputTokens: 2, CacheReadTokens: 4}},
		"usage each time": {[]string{`{"choices":[{"index":0,"delta":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]"},
			[]state.Part{text("hi")}, model.StopEnd, state.Usage{InputTokens: 9, OutputTokens: 2}},
		// The calls decide, not the stop reason (A3).
		"stop with calls":          {[]string{chunk(calls, "null"), chunk(`{}`, "stop"), "[DONE]"}, []state.Part{call}, model.StopToolCalls, state.Usage{}},
		"calls without any":        {[]string{chunk(`{"content":"hi"}`, "tool_calls")}, []state.Part{text("hi")}, model.StopEnd, state.Usage{}},
		"refusal":                  {[]string{chunk(`{"refusal":"No."}`, "null"), chunk(`{}`, "stop")}, []state.Part{text("No.")}, model.StopRefusal, state.Usage{}},
		"content filter":           {[]string{chunk(`{}`, "content_filter")}, []state.Part{text("")}, model.StopContentFilter, state.Usage{}},
		"window is full":           {[]string{chunk(`{"content":"hi"}`, "model_length")}, []state.Part{text("hi")}, model.StopMaxOutputTokens, state.Usage{}},
		"unknown finish":           {[]string{chunk(`{"content":"hi"}`, "eos")}, []state.Part{text("hi")}, model.StopEnd, state.Usage{}},
		"second choice":            {[]string{`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"}]}`, chunk(`{"content":"yes"}`, "stop")}, []state.Part{text("yes")}, model.StopEnd, state.Usage{}},
		"negative usage":           {[]string{chunk(`{"content":"hi"}`, "stop"), `{"choices":[],"usage":{"prompt_tokens":-9,"completion_tokens":-2}}`}, []state.Part{text("hi")}, model.StopEnd, state.Usage{}},
		"reasoning beside output":  {[]string{chunk(`{"content":"hi"}`, "stop"), `{"choices":[],"usage":{"prompt_tokens":37,"completion_tokens":1,"total_tokens":331,"completion_tokens_details":{"reasoning_tokens":293}}}`}, []state.Part{text("hi")}, model.StopEnd, state.Usage{InputTokens: 37, OutputTokens: 294}},
		"cached by another name":   {[]string{chunk(`{"content":"hi"}`, "stop"), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"cached_tokens":8}}`}, []state.Part{text("hi")}, model.StopEnd, state.Usage{InputTokens: 9, OutputTokens: 2, CacheReadTokens: 8}},
		"cached as DeepSeek says":  {[]string{chunk(`{"content":"hi"}`, "stop"), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_cache_hit_tokens":7,"prompt_cache_miss_tokens":2}}`}, []state.Part{text("hi")}, model.StopEnd, state.Usage{InputTokens: 9, OutputTokens: 2, CacheReadTokens: 7}},
		"output limit as an error": {[]string{`{"error":{"message":"Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.","type":"invalid_request_error"}}`}, []state.Part{text("")}, model.StopMaxOutputTokens, state.Usage{}},
	} {
		resp, err := generate(t, serve(t, test.lines...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.parts, resp.Parts); diff != "" || resp.Stop != test.stop {
			t.Errorf("%s: stop %q, want %q, parts (-want +got):\n%s", name, resp.Stop, test.stop, diff)
		}
		if diff := cmp.Diff(test.usage, resp.Usage); diff != "" {
			t.Errorf("%s: usage (-want +got):\n%s", name, diff)
		}
	}
	resp, err := generate(t, serve(t, chunk(`{"reasoning":"Hm."}`, "null"), chunk(`{"content":[{"type":"text","text":"hi"}]}`, "stop"), `{"choices":[]}`))
	if err != nil || len(resp.Parts) != 2 || resp.Parts[0].Text != "Hm." || string(resp.Parts[0].Opaque) != `"reasoning_content"` {
		t.Errorf("reasoning beside a list: %+v, %v; want it as a field of its own", resp.Parts, err)
	}
	if resp.Model != "served" {
		t.Errorf("the response is of %q, want the model that the server named", resp.Model)
	}
	// Google's compatible server signs its calls, and requires the signature back (A12).
	resp, err = generate(t, serve(t, chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"}}}]}`, "tool_calls")))
	signed := []state.Part{{Type: state.PartToolCall, ID: "a", Name: "f", Arguments: "{}", Opaque: json.RawMessage(`{"google":{"thought_signature":"c2ln"}}`), OpaqueBy: "openai m"}}
	if diff := cmp.Diff(signed, resp.Parts); err != nil || diff != "" {
		t.Errorf("signed call: %v (-want +got):\n%s", err, diff)
	}
	resp, err = generate(t, serve(t, chunk(`{"content":[{"type":"thinking","thinking":"Hm"},{"type":"text","text":"h"},{"type":"scent","scent":1}]}`, "null"),
		chunk(`{"content":[{"type":"thinking","thinking":7},{"type":"text","text":"i"}]}`, "null"), chunk(`{"content":[7]}`, "stop")))
	if err != nil || len(resp.Parts) != 2 || resp.Parts[0].Text != "Hm" || string(resp.Parts[0].Opaque) != `"content"` || resp.Parts[1].Text != "hi" {
		t.Errorf("lists: %+v, %v", resp.Parts, err)
	}
}

func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lines []string
		want  model.Class
	}{
		"empty":               {nil, model.Transport},
		"no finish":           {[]string{chunk(`{"content":"hi"}`, "null")}, model.Transport},
		"DONE without finish": {[]string{chunk(`{"content":"hi"}`, "null"), "[DONE]"}, model.Transport},
		"not JSON":            {[]string{"{nope"}, model.Transport},
		"server error":        {[]string{chunk(`{"content":"hi"}`, "null"), `{"error":{"message":"The server had an error","type":"server_error"}}`}, model.Overloaded},
		"gave up":             {[]string{chunk(`{"content":"hi"}`, "insufficient_system_resource")}, model.Overloaded},
		"quota":               {[]string{`{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`}, model.Quota},
	} {
		resp, err := generate(t, serve(t, test.lines...))
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != test.want || len(resp.Parts) > 0 {
			t.Errorf("%s: %+v, %v; want class %s", name, resp, err, test.want)
		}
	}
}

func TestAnswersThatAreNoStream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status      int
		header      http.Header
		body        string
		want        model.Class
		wantMessage string
	}{
		"whole answer": {200, http.Header{"Content-Type": {"application/json"}}, `{"choices":[]}`, model.Transport, "without streaming"},
		"error in 200": {200, http.Header{"Content-Type": {"application/json"}}, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, model.RateLimited, "slow down"},
		"web page":     {200, http.Header{"Content-Type": {"text/html; charset=utf-8"}}, `<html></html>`, model.Transport, "base_url"},
		"proxy page":   {502, http.Header{"Content-Type": {"text/html"}}, `<html><body>Bad gateway</body></html>`, model.Overloaded, "Bad gateway"},
		"redirect":     {307, http.Header{"Location": {"http://127.0.0.1:1/elsewhere"}}, ``, model.Transport, "Temporary Redirect"},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range test.header {
				w.Header()[k] = v
			}
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}))
		t.Cleanup(h.Close)
		_, err := generate(t, h.URL)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != test.want || !strings.Contains(e.Message, test.wantMessage) {
			t.Errorf("%s: %v; want class %s", name, err, test.want)
		}
	}
}

// record answers and stores the request.
func record(t *testing.T) (base string, body *map[string]any, header *http.Header) {
	body, header = new(map[string]any), new(http.Header)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*body = nil
		if err := json.NewDecoder(r.Body).Decode(body); err != nil {
			t.Error(err)
		}
		*header = r.Header
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", chunk(`{"content":"ok"}`, "stop"))
	}))
	t.Cleanup(h.Close)
	return h.URL, body, header
}

func TestRequest(t *testing.T) {
	t.Parallel()
	base, body, header := record(t)
	long := strings.Repeat("x", 60)
	thought := func(by, sealed string) state.Part {
		return state.Part{Type: state.PartThinking, Text: "Hm", Opaque: json.RawMessage(sealed), OpaqueBy: by}
	}
	toolCall := func(id string) state.Part {
		return state.Part{Type: state.PartToolCall, ID: id, Name: "f", Arguments: `{"a": 1}`}
	}
	_, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{
		Run: "run_x", Call: 4, Model: "m", BaseURL: base, APIKey: "key", MaxOutputTokens: 7,
		Messages: []state.Message{
			{Role: state.RoleSystem, Parts: []state.Part{text("Be brief.")}},
			{Role: state.RoleUser, Parts: []state.Part{text("What is it?"), {Type: state.PartImage, MediaType: "image/png", Data: "AAAA"}, {Type: state.PartImage, URL: "https://example.com/a.png"}}},
			{Role: state.RoleAssistant, Parts: []state.Part{
				thought("anthropic m", `"reasoning_content"`), thought("openai m2", `"reasoning_content"`),
				thought("openai m", `{"type":"reasoning","encrypted_content":"x"}`), thought("openai m", `"reasoning_content"`), toolCall("a"), toolCall(long),
			}},
			{Role: state.RoleTool, Parts: []state.Part{{Type: state.PartToolResult, CallID: "a", Content: "1", Images: []state.Image{{MediaType: "image/bmp", Data: "AAAA"}, {URL: "https://example.com/b.png"}}}}},
			state.ToolResult(long, "", true),
			{Role: state.RoleAssistant, Parts: []state.Part{thought("openai m", `"content"`), text("Now b."), toolCall("b"),
				{Type: state.PartToolCall, ID: "c", Name: "f", Arguments: "{}", Opaque: json.RawMessage(`{"google":{"thought_signature":"c2ln"}}`), OpaqueBy: "openai m"},
				{Type: state.PartToolCall, ID: "d", Name: "f", Arguments: "{}", Opaque: json.RawMessage(`{"thought_signature":"c2ln"}`), OpaqueBy: "gemini m"}}},
			{Role: state.RoleAssistant, Parts: []state.Part{text("")}},
		},
		Tools:        []model.ToolSpec{{Name: "f", Description: "does f", Schema: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)}},
		OutputSchema: json.RawMessage(`{"type":"object"}`), Settings: model.Settings{ToolChoice: model.ToolChoice{Mode: model.ToolsNone}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	short := "call_" + "%"
	golden := `{
		"model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 7,
		"messages": [
			{"role": "system", "content": "Be brief."},
			{"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
			{"role": "assistant", "reasoning_content": "Hm", "tool_calls": [
				{"type": "function", "id": "a", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
				{"type": "function", "id": "` + short + `", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
			{"role": "tool", "tool_call_id": "a", "content": "1\n[an image is left out: image/bmp is not one of image/png, image/jpeg, image/gif, image/webp]"},
			{"role": "tool", "tool_call_id": "` + short + `", "content": ""},
			{"role": "user", "content": [{"type": "text", "text": "Images in the result of tool call a:"}, {"type": "image_url", "image_url": {"url": "https://example.com/b.png"}}]},
			{"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": "Now b."}],
				"tool_calls": [{"type": "function", "id": "b", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
					{"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "c2ln"}}},
					{"type": "function", "id": "d", "function": {"name": "f", "arguments": "{}"}}]},
			{"role": "assistant", "content": ""}
		],
		"tools": [{"type": "function", "function": {"name": "f", "description": "does f", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}}], "tool_choice": "none",
		"response_format": {"type": "json_schema", "json_schema": {"name": "output", "strict": false, "schema": {"type": "object"}}}
	}`
	got, err := json.Marshal(*body)
	if err != nil {
		t.Fatal(err)
	}
	// Ids longer than OpenAI accepts are shortened in the same way in the call and its result.
	_, after, _ := strings.Cut(string(got), `"tool_call_id":"call_`)
	id, _, _ := strings.Cut(after, `"`)
	if len(id) != 32 {
		t.Errorf("shortened id %q", id)
	}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(golden, short, "call_"+id)), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *body); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if got := header.Get("Authorization") + " " + header.Get("X-Client-Request-Id"); got != "Bearer key run_x/4" {
		t.Errorf("headers %q", got)
	}
}

// The provider's key is sent to the provider's server only: an agent's definition may name any other.
func TestKeyStaysHome(t *testing.T) {
	t.Parallel()
	home, _, homeHeader := record(t)
	other, _, otherHeader := record(t)
	p := openai.New(openai.Config{BaseURL: home, APIKey: "own-key"})
	for _, base := range []string{"", home, other} {
		if _, err := p.Generate(t.Context(), model.Request{Model: "m", BaseURL: base}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if homeHeader.Get("Authorization") != "Bearer own-key" || otherHeader.Get("Authorization") != "" {
		t.Errorf("home got %q, the other %q", homeHeader.Get("Authorization"), otherHeader.Get("Authorization"))
	}
}

func TestBadAddresses(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]model.Class{
		"not a url": model.InvalidRequest, "http://%zz": model.InvalidRequest, "http://user:hunter22@127.0.0.1:1/v1?key=hunter22": model.Transport,
	} {
		_, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{Model: "m", BaseURL: base, APIKey: "sesame-open"}, nil)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Class != want || strings.Contains(fmt.Sprintf("%v %#v", err, e.Err), "hunter22") {
			t.Errorf("%s: %v; want class %s", base, err, want)
		}
	}
}
