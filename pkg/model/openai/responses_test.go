package openai_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const completed = `{"type":"response.completed","response":{"id":"resp_1","status":"completed","model":"m-2026","output":[],"usage":{"input_tokens":3,"output_tokens":2}}}`

// exchange answers each request with the given events and stores the requests.
func exchange(t *testing.T, events ...string) (base string, body *map[string]any) {
	t.Helper()
	body = new(map[string]any)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*body = nil
		if err := json.NewDecoder(r.Body).Decode(body); err != nil || r.URL.Path != "/responses" {
			t.Errorf("request at %s: %v", r.URL.Path, err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL, body
}

// Reasoning goes back before what followed from it, and nowhere else (A12, and the API's own rules).
func TestResponsesRequest(t *testing.T) {
	t.Parallel()
	base, body := exchange(t, completed)
	sealed := func(by, id string) state.Part {
		return state.Part{
			Type: state.PartThinking, Text: "Hm", OpaqueBy: by,
			Opaque: json.RawMessage(`{"type":"reasoning","id":"` + id + `","summary":[{"type":"summary_text","text":"Hm"}],"encrypted_content":"gAA="}`),
		}
	}
	call := func(id string) state.Part {
		return state.Part{Type: state.PartToolCall, ID: id, Name: "f", Arguments: `{"a": 1}`}
	}
	result := func(id string, p state.Part) state.Message {
		p.Type, p.CallID = state.PartToolResult, id
		return state.Message{Role: state.RoleTool, Parts: []state.Part{p}}
	}
	commentary := text("Let me see.")
	commentary.Opaque, commentary.OpaqueBy = json.RawMessage(`{"phase":"commentary"}`), "openai gpt-5.4"
	_, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{
		Model: "gpt-5.4-2026-03-05", API: model.APIResponses, BaseURL: base, MaxOutputTokens: 7, Reasoning: model.EffortHigh,
		Messages: []state.Message{
			{Role: state.RoleSystem, Parts: []state.Part{text("Be brief.")}},
			{Role: state.RoleUser, Parts: []state.Part{text("What is it?"), {Type: state.PartImage, MediaType: "image/png", Data: "AAAA"}}},
			{Role: state.RoleAssistant, Parts: []state.Part{
				sealed("openai gpt-5.4", "rs_1"), commentary, sealed("anthropic claude-opus-5", "rs_2"), sealed("openai gpt-5", "rs_3"),
				{Type: state.PartThinking, Text: "Hm", Opaque: json.RawMessage(`"reasoning_content"`), OpaqueBy: "openai gpt-5.4"},
				sealed("openai gpt-5.4", "rs_4"), call("a"), call("b"),
			}},
			result("a", state.Part{Content: "1", Images: []state.Image{{MediaType: "image/png", Data: "BBBB"}}}),
			result("b", state.Part{Content: "", IsError: true}),
			{Role: state.RoleAssistant, Parts: []state.Part{sealed("openai gpt-5.4", "rs_5"), text("")}},
			state.UserText("Go on"),
		},
		Tools:        []model.ToolSpec{{Name: "f", Description: "does f", Schema: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)}},
		OutputSchema: json.RawMessage(`{"type":"object","properties":{},"required":[],"additionalProperties":false}`),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const golden = `{
		"model": "gpt-5.4-2026-03-05", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
		"max_output_tokens": 16, "reasoning": {"effort": "high"},
		"input": [
			{"role": "system", "content": "Be brief."},
			{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"}]},
			{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "gAA="},
			{"role": "assistant", "content": "Let me see.", "phase": "commentary"},
			{"type": "reasoning", "id": "rs_4", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "gAA="},
			{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"a\": 1}"},
			{"type": "function_call", "call_id": "b", "name": "f", "arguments": "{\"a\": 1}"},
			{"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}, {"type": "input_image", "image_url": "data:image/png;base64,BBBB"}]},
			{"type": "function_call_output", "call_id": "b", "output": ""},
			{"role": "user", "content": "Go on"}
		],
		"tools": [{"type": "function", "name": "f", "description": "does f", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}, "strict": false}],
		"text": {"format": {"type": "json_schema", "name": "output", "strict": true, "schema": {"type": "object", "properties": {}, "required": [], "additionalProperties": false}}}
	}`
	var want map[string]any
	if err := json.Unmarshal([]byte(golden), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *body); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// The items of a response go back unchanged.
func TestResponsesRoundTrip(t *testing.T) {
	t.Parallel()
	stream, err := os.ReadFile("testdata/responses/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	base, body := exchange(t, strings.Split(strings.TrimSpace(string(stream)), "\n")...)
	p, r := openai.New(openai.Config{}), model.Request{Model: "gpt-test-1", API: model.APIResponses, BaseURL: base}
	r.Messages = []state.Message{state.UserText("Hi")}
	resp, err := p.Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A checkpoint lies between.
	raw, err := json.Marshal(state.Message{Role: state.RoleAssistant, Parts: resp.Parts})
	if err != nil {
		t.Fatal(err)
	}
	var said state.Message
	if err := json.Unmarshal(raw, &said); err != nil {
		t.Fatal(err)
	}
	r.Messages = append(r.Messages, said, state.ToolResult("call_1", "21", false), state.ToolResult("call_2", "noon", false))
	if _, err := p.Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	var want any
	if err := json.Unmarshal([]byte(`[
		{"role": "user", "content": "Hi"},
		{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Two cities."}, {"type": "summary_text", "text": "Two calls."}], "encrypted_content": "gAAAAAencrypted=="},
		{"role": "assistant", "content": "Grüße 🌤", "phase": "commentary"},
		{"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\": \"Köln\"}"},
		{"type": "function_call", "call_id": "call_2", "name": "now", "arguments": "{}"},
		{"type": "function_call_output", "call_id": "call_1", "output": "21"},
		{"type": "function_call_output", "call_id": "call_2", "output": "noon"}
	]`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, (*body)["input"]); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
	// Another family gets the text, and no items that it cannot read.
	r.Model = "gpt-other-2"
	if _, err := p.Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	if sent := fmt.Sprint((*body)["input"]); strings.Contains(sent, "encrypted") || strings.Contains(sent, "phase") || !strings.Contains(sent, "call_2") {
		t.Errorf("another family gets %s", sent)
	}
}

// After a change of keys the server cannot read sealed reasoning: the run continues without it.
func TestSealedElsewhere(t *testing.T) {
	t.Parallel()
	var asked []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, string(body))
		if strings.Contains(string(body), "gAA=") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"The encrypted content gAA= could not be verified. Reason: Encrypted content could not be decrypted or parsed.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", completed)
	}))
	t.Cleanup(h.Close)
	r := model.Request{Model: "m", API: model.APIResponses, BaseURL: h.URL, Messages: []state.Message{
		state.UserText("Hi"),
		{Role: state.RoleAssistant, Parts: []state.Part{
			{Type: state.PartThinking, OpaqueBy: "openai m", Opaque: json.RawMessage(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAA="}`)},
			text("Hello"),
		}},
		state.UserText("Go on"),
	}}
	if _, err := openai.New(openai.Config{}).Generate(t.Context(), r, nil); err != nil || len(asked) != 2 || !strings.Contains(asked[1], "Hello") {
		t.Errorf("%v after %q", err, asked)
	}
	if len(r.Messages[1].Parts) != 2 || len(r.Messages[1].Parts[0].Opaque) == 0 {
		t.Errorf("the run's own history changed: %+v", r.Messages[1])
	}
}

// A request without sealed reasoning is not repeated: the same error would come back.
func TestNothingSealedToLeaveOut(t *testing.T) {
	t.Parallel()
	asked := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"The encrypted content could not be verified.","type":"invalid_request_error","code":"invalid_encrypted_content"}}`)
	}))
	t.Cleanup(h.Close)
	r := model.Request{Model: "m", API: model.APIResponses, BaseURL: h.URL, Messages: []state.Message{state.UserText("Hi")}}
	if _, err := openai.New(openai.Config{}).Generate(t.Context(), r, nil); err == nil || asked != 1 {
		t.Errorf("%d requests, %v; want one, and its error", asked, err)
	}
}

func TestEffort(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		model string
		asked model.Effort
		want  string // "" is not sent
	}{
		{"gpt-5.1", "", ""}, {"gpt-5.1", model.EffortMedium, "medium"}, {"gpt-5.1-2025-11-13", model.EffortNone, "none"}, {"gpt-6", model.EffortNone, "none"},
		{"gpt-5-mini", model.EffortNone, "minimal"}, {"gpt-5-2025-08-07", model.EffortNone, "minimal"}, {"gpt-5-mini", model.EffortLow, "low"},
		{"o3", model.EffortNone, "low"}, {"o4-mini", model.EffortHigh, "high"}, {"openai/gpt-oss-120b", model.EffortNone, "low"},
		{"gpt-5.1-codex", model.EffortNone, "low"}, {"gpt-5-pro", model.EffortNone, ""}, {"gpt-5-pro", model.EffortHigh, "high"},
		{"gpt-5-pro", model.EffortMedium, ""}, {"gpt-5.4-pro-2026-03-05", model.EffortLow, "medium"}, {"gpt-5.2-pro", model.EffortNone, "medium"}, {"gpt-5.5-pro", model.EffortHigh, "high"},
		{"gpt-4.1", model.EffortHigh, ""}, {"gpt-4o-mini", model.EffortNone, ""}, {"gpt-5-chat-latest", model.EffortLow, ""}, {"gpt-5.1-chat-latest", model.EffortLow, ""},
		{"qwen3", model.EffortLow, "low"}, {"qwen3", model.EffortNone, "none"},
	} {
		base, body := exchange(t, completed)
		r := model.Request{Model: test.model, API: model.APIResponses, BaseURL: base, Reasoning: test.asked, Messages: []state.Message{state.UserText("Hi")}}
		if _, err := openai.New(openai.Config{}).Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		reasoning, _ := (*body)["reasoning"].(map[string]any)
		if got, _ := reasoning["effort"].(string); got != test.want || (test.want == "") != (reasoning == nil) {
			t.Errorf("responses: %s with %q sends %v, want %q", test.model, test.asked, (*body)["reasoning"], test.want)
		}
		// Models without reasoning reject the request for their reasoning.
		if reasons := !strings.HasPrefix(test.model, "gpt-4") && !strings.Contains(test.model, "-chat"); ((*body)["include"] != nil) != reasons {
			t.Errorf("%s: include %v", test.model, (*body)["include"])
		}
		base, body, _ = record(t)
		r.API, r.BaseURL = "", base
		if _, err := openai.New(openai.Config{}).Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		if got, _ := (*body)["reasoning_effort"].(string); got != test.want {
			t.Errorf("chat: %s with %q sends %q, want %q", test.model, test.asked, got, test.want)
		}
	}
}

// The address determines the API, unless the request names one.
func TestAPI(t *testing.T) {
	t.Parallel()
	var path string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.Host + r.URL.Path
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.HasSuffix(path, "/responses") {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", completed)
			return
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", chunk(`{"content":"ok"}`, "stop"))
	})
	h, own := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(h.Close)
	t.Cleanup(own.Close)
	// OpenAI's own address leads to the test's server.
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server is the test's own
		DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, network, own.Listener.Addr().String()) //nolint:gosec // as above
		},
	}}
	t.Cleanup(client.CloseIdleConnections)
	host := strings.TrimPrefix(h.URL, "http://")
	for _, test := range []struct {
		base, configured string
		api              model.API
		want             string
	}{
		{"", "", "", "api.openai.com/v1/responses"},
		{"", "", model.APIChat, "api.openai.com/v1/chat/completions"},
		{h.URL, "", "", host + "/chat/completions"},
		{h.URL, "", model.APIResponses, host + "/responses"},
		{"", h.URL, "", host + "/chat/completions"},
		{"", h.URL, model.APIResponses, host + "/responses"},
	} {
		r := model.Request{Model: "m", BaseURL: test.base, API: test.api, Messages: []state.Message{state.UserText("Hi")}}
		if _, err := openai.New(openai.Config{BaseURL: test.configured, Client: client}).Generate(t.Context(), r, nil); err != nil || path != test.want {
			t.Errorf("%+v went to %s: %v", test, path, err)
		}
	}
	_, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{Model: "m", API: "assistants"}, nil)
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.InvalidRequest || !strings.Contains(e.Message, "write responses or chat") {
		t.Errorf("an unknown API: %v", err)
	}
}

// Some servers omit things: ids, deltas, or items except in the last event.
func TestResponsesOfOthers(t *testing.T) {
	t.Parallel()
	callItem := `{"type":"function_call","name":"f","arguments":"{\"a\":1}","status":"completed"}`
	for name, events := range map[string][]string{
		"done only": {`{"type":"response.output_item.done","output_index":0,"item":` + callItem + `}`, completed},
		"last only": {strings.Replace(completed, `"output":[]`, `"output":[`+callItem+`]`, 1)},
	} {
		base, _ := exchange(t, events...)
		resp, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{Call: 3, Model: "m", API: model.APIResponses, BaseURL: base}, func(model.Delta) {})
		if err != nil {
			t.Fatal(err)
		}
		want := []state.Part{{Type: state.PartToolCall, ID: "call_3_0", Name: "f", Arguments: `{"a":1}`}}
		if diff := cmp.Diff(want, resp.Parts); diff != "" || resp.Stop != model.StopToolCalls || resp.Model != "m-2026" {
			t.Errorf("%s: %+v\n%s", name, resp, diff)
		}
	}
	// Item ids change during the stream, and a stop reason is unknown.
	base, _ := exchange(t,
		`{"type":"response.output_item.added","output_index":1,"item":{"id":"x1","type":"function_call","call_id":"c1","name":"f","arguments":""}}`,
		`{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"x2","delta":"{}"}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"id":"x3","type":"function_call","call_id":"c1","name":"f","arguments":"{}","status":"completed"}}`,
		`{"type":"response.output_item.added","output_index":2,"item":{"id":"x4","type":"function_call","call_id":"c2","name":"f","arguments":""}}`,
		`{"type":"response.output_item.done","output_index":2,"item":{"id":"x5","type":"function_call","call_id":"c2","name":"f","arguments":"{\"a\":","status":"incomplete"}}`,
		`{"type":"response.incomplete","response":{"status":"incomplete","model":"m","incomplete_details":{"reason":"server_timeout"},"output":[]}}`)
	var shown []model.Delta
	resp, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{Model: "m", API: model.APIResponses, BaseURL: base}, func(d model.Delta) { shown = append(shown, d) })
	want := []state.Part{{Type: state.PartToolCall, ID: "c1", Name: "f", Arguments: "{}"}}
	if diff := cmp.Diff(want, resp.Parts); err != nil || diff != "" || resp.Stop != model.StopMaxOutputTokens {
		t.Errorf("rotating ids: %+v, %v\n%s", resp, err, diff)
	}
	wantShown := []model.Delta{{CallID: "c1", Name: "f"}, {Arguments: "{}"}, {Index: 1, CallID: "c2", Name: "f"}, {Index: 1, Arguments: `{"a":`}}
	if diff := cmp.Diff(wantShown, shown); diff != "" {
		t.Errorf("rotating ids, shown (-want +got):\n%s", diff)
	}
	base, _ = exchange(t, `{"type":"response.output_text.delta","output_index":0,"delta":"So f"}`,
		`{"type":"response.incomplete","response":{"status":"incomplete","model":"m","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}`)
	resp, err = openai.New(openai.Config{}).Generate(t.Context(), model.Request{Model: "m", API: model.APIResponses, BaseURL: base}, nil)
	if err != nil || len(resp.Parts) != 1 || resp.Parts[0].Text != "So f" {
		t.Errorf("no item: %+v, %v", resp, err)
	}
	for events, want := range map[string]model.Class{
		`{"type":"response.failed","response":{"status":"failed","error":null}}`:                                        model.Transport,
		`{"type":"response.failed","response":{"status":"failed","error":{"code":"cyber_policy","message":"No."}}}`:     model.ContentFilter,
		`{"type":"error","code":"rate_limit_exceeded","message":"Rate limit reached. Please try again in 2s."}`:         model.RateLimited,
		`{"type":"error","error":{"type":"insufficient_quota","code":"insufficient_quota","message":"Quota exceeded"}}`: model.Quota,
	} {
		base, _ := exchange(t, events)
		_, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{Model: "m", API: model.APIResponses, BaseURL: base}, nil)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != want {
			t.Errorf("%s: %v, want class %s", events, err, want)
		}
	}
}
