package anthropic_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// serve answers every request with the same events, named by their type.
func serve(t *testing.T, lines ...string) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range lines {
			var e struct{ Type string }
			_ = json.Unmarshal([]byte(line), &e) // an event without a type is sent as one
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, line)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL
}

func generate(t *testing.T, base string) (model.Response, error) {
	t.Helper()
	return anthropic.New(anthropic.Config{}).Generate(t.Context(), model.Request{Call: 2, Model: "m", BaseURL: base, Messages: []state.Message{state.UserText("hi")}}, nil)
}

const (
	start = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"served","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}`
	again = `{"type":"message_start","message":{"id":"msg_2","type":"message","role":"assistant","model":"served","content":[],"usage":{"input_tokens":20,"output_tokens":1}}}`
	stop  = `{"type":"message_stop"}`
)

func begin(i int, block string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, block)
}

func delta(i int, d string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i, d)
}

func end(i int) string { return fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i) }

func done(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":30}}`
}

func text(s string) state.Part { return state.Part{Type: state.PartText, Text: s} }

func call(id, name, args string) state.Part {
	return state.Part{Type: state.PartToolCall, ID: id, Name: name, Arguments: args}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	tool := func(i int, id string, json ...string) []string {
		out := []string{begin(i, `{"type":"tool_use","id":"`+id+`","name":"f","input":{}}`)}
		for _, j := range json {
			out = append(out, delta(i, `{"type":"input_json_delta","partial_json":"`+j+`"}`))
		}
		return out
	}
	join := func(lists ...[]string) []string {
		var out []string
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	signed := func(thinking, opaque string) state.Part {
		return state.Part{Type: state.PartThinking, Text: thinking, Opaque: json.RawMessage(opaque), OpaqueBy: "anthropic m"}
	}
	for name, test := range map[string]struct {
		lines []string
		parts []state.Part
		stop  model.Stop
	}{
		"thinking": {[]string{start, begin(0, `{"type":"thinking","thinking":"","signature":""}`), delta(0, `{"type":"thinking_delta","thinking":"Hm"}`),
			delta(0, `{"type":"signature_delta","signature":"s1"}`), end(0), begin(1, `{"type":"redacted_thinking","data":"r1"}`), end(1), done("end_turn"), stop},
			[]state.Part{signed("Hm", `{"signature":"s1"}`), signed("", `{"redacted":"r1"}`), text("")}, model.StopEnd},
		"input at the start": {[]string{start, begin(0, `{"type":"tool_use","id":"a","name":"f","input":{"x": 1}}`), end(0), done("tool_use"), stop}, []state.Part{call("a", "f", `{"x": 1}`)}, model.StopToolCalls},
		"no id":              {join([]string{start}, tool(0, "", `{}`), []string{end(0), done("tool_use")}), []state.Part{call("call_2_0", "f", `{}`)}, model.StopToolCalls},
		// Two streams in one response: the second is the answer.
		"begun anew":          {join([]string{start}, tool(0, "a", `{\"x\":\"Spa`), []string{again}, tool(0, "b", `{\"x\":1}`), []string{end(0), done("tool_use"), stop}), []state.Part{call("b", "f", `{"x":1}`)}, model.StopToolCalls},
		"begun anew, shorter": {[]string{start, begin(0, `{"type":"text","text":"a"}`), end(0), begin(1, `{"type":"text","text":"gone"}`), again, begin(0, `{"type":"text","text":"b"}`), end(0), done("end_turn"), stop}, []state.Part{text("b")}, model.StopEnd},
		"repeated":            {[]string{start, start, begin(0, `{"type":"text","text":"h"}`), start, delta(0, `{"type":"text_delta","text":"i"}`), end(0), done("end_turn"), stop}, []state.Part{text("hi")}, model.StopEnd},
		// The output limit stops a block like any other.
		"limit inside a call":       {join([]string{start}, tool(0, "a", `{}`), []string{end(0)}, tool(1, "b", `{\"x\":`), []string{end(1), done("max_tokens"), stop}), []state.Part{call("a", "f", `{}`)}, model.StopMaxOutputTokens},
		"limit before arguments":    {join([]string{start}, tool(0, "a"), []string{end(0), done("max_tokens"), stop}), []state.Part{text("")}, model.StopMaxOutputTokens},
		"context window":            {[]string{start, done("model_context_window_exceeded"), stop}, []state.Part{text("")}, model.StopMaxOutputTokens},
		"pause":                     {[]string{start, done("pause_turn"), stop}, []state.Part{text("")}, model.StopPause},
		"unknown reason":            {[]string{start, done("tired"), stop}, []state.Part{text("")}, model.StopEnd},
		"no stop event":             {[]string{start, done("end_turn")}, []state.Part{text("")}, model.StopEnd},
		"block that never began":    {[]string{start, delta(7, `{"type":"text_delta","text":"x"}`), end(7), done("end_turn")}, []state.Part{text("")}, model.StopEnd},
		"call that was not stopped": {join([]string{start}, tool(0, "a", `{\"x\":`), []string{done("tool_use"), stop}), []state.Part{text("")}, model.StopToolCalls},
		"unknown events":            {[]string{start, `{"type":"novelty","index":{"deep":[]}}`, begin(0, `{"type":"novel_block","text":"x"}`), delta(0, `{"type":"novel_delta"}`), end(0), done("end_turn"), stop}, []state.Part{text("")}, model.StopEnd},
	} {
		resp, err := generate(t, serve(t, test.lines...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.parts, resp.Parts); diff != "" || resp.Stop != test.stop || resp.Model != "served" {
			t.Errorf("%s: stop %q, want %q, model %q, parts (-want +got):\n%s", name, resp.Stop, test.stop, resp.Model, diff)
		}
	}
}

func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lines []string
		want  model.Class
	}{
		"empty":                        {nil, model.Transport},
		"no end":                       {[]string{start, begin(0, `{"type":"text","text":"hi"}`), end(0)}, model.Transport},
		"not JSON":                     {[]string{start, "{nope"}, model.Transport},
		"begun anew behind the reason": {[]string{start, done("end_turn"), stop, again, begin(0, `{"type":"text","text":"half"}`)}, model.Transport},
		"overloaded":                   {[]string{start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, model.Overloaded},
		"internal":                     {[]string{start, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`}, model.Overloaded},
		"invalid":                      {[]string{start, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: text content blocks must be non-empty"}}`}, model.InvalidRequest},
	} {
		resp, err := generate(t, serve(t, test.lines...))
		if e, ok := errors.AsType[*model.Error](err); !ok || (e.Class != test.want && name != "not JSON") || len(resp.Parts) > 0 {
			t.Errorf("%s: %+v, %v; want class %s", name, resp, err, test.want)
		}
	}
}

// Some compatible servers do not name their events.
func TestEventsWithoutNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lines []string
		class model.Class
	}{
		{[]string{start, begin(0, `{"type":"text","text":"hi"}`), end(0), done("end_turn"), stop}, ""},
		{[]string{start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, model.Overloaded},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, ": hello\n\n")
			for _, line := range test.lines {
				_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
			}
		}))
		t.Cleanup(h.Close)
		resp, err := generate(t, h.URL)
		e, _ := errors.AsType[*model.Error](err)
		if test.class == "" && (err != nil || resp.Parts[0].Text != "hi") || test.class != "" && (e == nil || e.Class != test.class) {
			t.Errorf("%+v, %v, want class %q", resp, err, test.class)
		}
	}
}

func record(t *testing.T) (base string, body *map[string]any, header *http.Header) {
	t.Helper()
	body, header = new(map[string]any), new(http.Header)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*body = nil
		if err := json.NewDecoder(r.Body).Decode(body); err != nil || r.URL.Path != "/v1/messages" {
			t.Errorf("%s: %v", r.URL, err)
		}
		*header = r.Header
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range []string{"event: message_start\ndata: " + start, "event: message_delta\ndata: " + done("end_turn")} {
			_, _ = fmt.Fprintf(w, "%s\n\n", line)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL, body, header
}

// The cache entry of the instructions, which runs share, ends before the values of variables.
func TestVariablesAndCache(t *testing.T) {
	t.Parallel()
	base, body, _ := record(t)
	r := model.Request{Run: "run_x", Model: "m", BaseURL: base, APIKey: "key", Shared: len("You help "), Messages: []state.Message{
		{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: "You help Ada today."}}}, state.UserText("Hi."),
	}}
	if _, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	want := []any{
		map[string]any{"type": "text", "text": "You help ", "cache_control": map[string]any{"type": "ephemeral"}},
		map[string]any{"type": "text", "text": "Ada today."},
	}
	if diff := cmp.Diff(want, (*body)["system"]); diff != "" {
		t.Error(diff)
	}
	r.Shared = -1
	if _, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	want = []any{map[string]any{"type": "text", "text": "You help Ada today."}}
	if diff := cmp.Diff(want, (*body)["system"]); diff != "" {
		t.Error(diff)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	base, body, header := record(t)
	thought := func(by, opaque string) state.Part {
		return state.Part{Type: state.PartThinking, Text: "Hm", Opaque: json.RawMessage(opaque), OpaqueBy: by}
	}
	say := func(role state.Role, parts ...state.Part) state.Message {
		return state.Message{Role: role, Parts: parts}
	}
	closed := `{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
	r := model.Request{
		Run: "run_x", Call: 4, Model: "m", BaseURL: base + "/v1", APIKey: "key",
		Messages: []state.Message{
			say(state.RoleSystem, text("Be brief.")),
			say(state.RoleUser, text("What is it?"), state.Part{Type: state.PartImage, MediaType: "image/png", Data: "AAAA"}, state.Part{Type: state.PartImage, URL: "https://example.com/a.png"}),
			say(state.RoleAssistant, thought("anthropic", `{"signature":"s1"}`), thought("anthropic m", `{"redacted":"r1"}`), thought("openai x", `"y"`), thought("anthropic other", `{"signature":"s2"}`), text(" "),
				call("a", "f", `{"a": 1}`), call("functions.f:0", "f", `not json`)),
			state.ToolResult("a", "1", false, state.Image{MediaType: "image/png", Data: "BBBB"}, state.Image{MediaType: "image/svg+xml", Data: "DDDD"}, state.Image{URL: "https://example.com/b.png"}),
			state.ToolResult("functions.f:0", "", true, state.Image{MediaType: "image/jpg", Data: "CCCC"}),
			say(state.RoleUser, text("And?")),
			say(state.RoleSystem, text("A hook says so.")),
			say(state.RoleAssistant, text("")),
			say(state.RoleUser, text("Well?")),
			say(state.RoleAssistant, text("Yes")),
		},
		Tools:        []model.ToolSpec{{Name: "f", Description: "does f", Schema: json.RawMessage(`{"type":"object","$defs":{"x":{}},"properties":{"a":{}}}`)}},
		OutputSchema: json.RawMessage(closed),
	}
	p := anthropic.New(anthropic.Config{})
	if _, err := p.Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(*body)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(got), `"tool_use_id":"call_`)
	id, _, _ := strings.Cut(after, `"`)
	golden := strings.ReplaceAll(`{
		"model": "m", "stream": true, "max_tokens": 8192,
		"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "A hook says so."}],
		"messages": [
			{"role": "user", "content": [{"type": "text", "text": "What is it?"},
				{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
				{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}, "cache_control": {"type": "ephemeral"}}]},
			{"role": "assistant", "content": [
				{"type": "thinking", "thinking": "Hm", "signature": "s1"}, {"type": "redacted_thinking", "data": "r1"},
				{"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}},
				{"type": "tool_use", "id": "ID", "name": "f", "input": {"invalid_arguments": "not json"}}]},
			{"role": "user", "content": [
				{"type": "tool_result", "tool_use_id": "a", "is_error": false, "content": [{"type": "text", "text": "1\n[an image is left out: image/svg+xml is not one of image/png, image/jpeg, image/gif, image/webp]"},
					{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "BBBB"}},
					{"type": "image", "source": {"type": "url", "url": "https://example.com/b.png"}}]},
				{"type": "tool_result", "tool_use_id": "ID", "is_error": true, "content": [{"type": "text", "text": "The tool failed without a message."}]},
				{"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "CCCC"}},
				{"type": "text", "text": "And?"}, {"type": "text", "text": "Well?", "cache_control": {"type": "ephemeral"}}]},
			{"role": "assistant", "content": [{"type": "text", "text": "Yes"}]}
		],
		"tools": [{"name": "f", "description": "does f", "input_schema": {"type": "object", "$defs": {"x": {}}, "properties": {"a": {}}}}],
		"output_config": {"format": {"type": "json_schema", "schema": `+closed+`}}
	}`, `"ID"`, `"call_`+id+`"`)
	var want map[string]any
	if err := json.Unmarshal([]byte(golden), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *body); diff != "" || len(id) != 32 {
		t.Errorf("id %q, request (-want +got):\n%s", id, diff)
	}
	if got := header.Get("X-Api-Key") + " " + header.Get("X-Client-Request-Id"); got != "key run_x/4" || header.Get("Anthropic-Version") == "" {
		t.Errorf("headers %v", header)
	}

	// A schema that the model cannot enforce, or that the API would refuse, becomes an instruction, or a tool
	// if there are others.
	r.Tools, r.Model = nil, "claude-opus-4-20250514"
	if _, err := p.Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	if system, _ := (*body)["system"].([]any); len(system) != 3 || (*body)["output_config"] != nil || !strings.Contains(fmt.Sprint(system[2]), closed) {
		t.Errorf("an older model: system %v, output_config %v", (*body)["system"], (*body)["output_config"])
	}
	r.Model = "m"
	r.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"additionalProperties":false}`)
	if _, err := p.Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	if system, _ := (*body)["system"].([]any); len(system) != 3 || (*body)["output_config"] != nil || !strings.Contains(fmt.Sprint(system[2]), `"minimum":1`) {
		t.Errorf("system %v, output_config %v", (*body)["system"], (*body)["output_config"])
	}
}

// The reasoning effort is sent in the form of the model's generation.
// The marks in a request have the lifetime that the definition chooses, or else an hour if the next call is likely to
// come late. The response says which it was.
func TestCacheLifetime(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cache    model.Cache
		longWait bool
		ttl      string // in the marks
		want     model.Cache
	}{
		{"", false, "", model.CacheFiveMinutes},
		{"", true, "1h", model.CacheHour},
		{model.CacheFiveMinutes, false, "", model.CacheFiveMinutes},
		{model.CacheFiveMinutes, true, "", model.CacheFiveMinutes},
		{model.CacheHour, false, "1h", model.CacheHour},
		{model.CacheOff, true, "none", ""},
	} {
		base, body, _ := record(t)
		r := model.Request{
			Model: "claude-sonnet-4-5", BaseURL: base, LongWait: test.longWait,
			Messages: []state.Message{{Role: state.RoleSystem, Parts: []state.Part{text("Be kind.")}}, state.UserText("Hi")},
			Tools:    []model.ToolSpec{{Name: "f", Schema: json.RawMessage(`{"type":"object"}`)}},
		}
		r.Cache = test.cache
		resp, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := json.Marshal(*body)
		if err != nil {
			t.Fatal(err)
		}
		marked, hour := strings.Contains(string(sent), `"cache_control"`), strings.Contains(string(sent), `"ttl":"1h"`)
		if marked != (test.ttl != "none") || hour != (test.ttl == "1h") || resp.Cache != test.want {
			t.Errorf("%+v: the response says %q, the request is %s", test, resp.Cache, sent)
		}
	}
}

func TestReasoning(t *testing.T) {
	t.Parallel()
	base, body, _ := record(t)
	asked := []state.Message{state.UserText("hi")}
	calls := []state.Message{state.UserText("hi"), {Role: state.RoleAssistant, Parts: []state.Part{call("a", "f", `{}`)}}, state.ToolResult("a", "1", false)}
	for _, test := range []struct {
		model    string
		effort   model.Effort
		limit    int64
		messages []state.Message
		want     string
	}{
		{"claude-opus-4-6", "", 0, asked, `{"max_tokens":8192}`},
		{"claude-opus-4-6", model.EffortHigh, 0, asked, `{"max_tokens":8192,"output_config":{"effort":"high"},"thinking":{"display":"summarized","type":"adaptive"}}`},
		{"claude-sonnet-5", model.EffortLow, 100, calls, `{"max_tokens":100,"output_config":{"effort":"low"},"thinking":{"display":"summarized","type":"adaptive"}}`},
		{"claude-mythos-preview", model.EffortNone, 0, asked, `{"max_tokens":8192,"thinking":{"type":"disabled"}}`},
		{"claude-haiku-4-5-20251001", model.EffortHigh, 0, asked, `{"max_tokens":24576,"thinking":{"budget_tokens":16384,"type":"enabled"}}`},
		{"claude-3-7-sonnet-20250219", model.EffortMedium, 4096, asked, `{"max_tokens":4096,"thinking":{"budget_tokens":2048,"type":"enabled"}}`},
		{"claude-haiku-4-5", model.EffortMedium, 1500, asked, `{"max_tokens":1500}`},
		// The API refuses a thinking budget if another model made the calls without thinking.
		{"claude-haiku-4-5", model.EffortMedium, 0, calls, `{"max_tokens":8192}`},
		{"claude-haiku-4-5", model.EffortLow, 0, append(calls[:3:3], state.Message{Role: state.RoleAssistant, Parts: []state.Part{text("ok")}}, state.UserText("and?")),
			`{"max_tokens":10240,"thinking":{"budget_tokens":2048,"type":"enabled"}}`},
	} {
		_, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), model.Request{
			Model: test.model, BaseURL: base, Messages: test.messages, Reasoning: test.effort, MaxOutputTokens: test.limit,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		for _, key := range []string{"max_tokens", "thinking", "output_config"} {
			if v, ok := (*body)[key]; ok {
				got[key] = v
			}
		}
		if b, _ := json.Marshal(got); string(b) != test.want {
			t.Errorf("%s, %s, %d: %s, want %s", test.model, test.effort, test.limit, b, test.want)
		}
	}
}

// Signed thinking goes back to its provider byte for byte (A12).
func TestThinkingReturns(t *testing.T) {
	t.Parallel()
	const thinking, signature = "Hm… <b>\u2028</b>", "EqQB/+=="
	quoted, _ := json.Marshal(thinking) // a text
	resp, err := generate(t, serve(t, start, begin(0, `{"type":"thinking","thinking":"","signature":""}`),
		delta(0, `{"type":"thinking_delta","thinking":`+string(quoted)+`}`), delta(0, `{"type":"signature_delta","signature":"`+signature+`"}`), end(0),
		begin(1, `{"type":"tool_use","id":"a","name":"f","input":{}}`), end(1), done("tool_use"), stop))
	if err != nil {
		t.Fatal(err)
	}
	// Through the store and back.
	raw, err := state.EncodeEntry(&state.Entry{Message: &state.Message{Role: state.RoleAssistant, Parts: resp.Parts}})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := state.DecodeEntry(0, raw)
	if err != nil {
		t.Fatal(err)
	}
	base, body, _ := record(t)
	if _, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), model.Request{
		Model: "m", BaseURL: base, Messages: []state.Message{state.UserText("hi"), *entry.Message, state.ToolResult("a", "1", false)},
	}, nil); err != nil {
		t.Fatal(err)
	}
	messages, _ := (*body)["messages"].([]any)
	sent := messages[1].(map[string]any)["content"].([]any)[0]
	if diff := cmp.Diff(map[string]any{"type": "thinking", "thinking": thinking, "signature": signature}, sent); diff != "" {
		t.Errorf("thinking (-want +got):\n%s", diff)
	}
}

// The provider's key is sent to the provider's server only.
func TestKeyStaysHome(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "key-of-the-environment")
	home, _, homeHeader := record(t)
	other, _, otherHeader := record(t)
	p := anthropic.New(anthropic.Config{BaseURL: home, APIKey: "own-key"})
	for _, base := range []string{"", home, other} {
		if _, err := p.Generate(t.Context(), model.Request{Model: "m", BaseURL: base}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if homeHeader.Get("X-Api-Key") != "own-key" || otherHeader.Get("X-Api-Key")+otherHeader.Get("Authorization") != "" {
		t.Errorf("home got %v, the other %v", homeHeader, otherHeader)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	resp, err := generate(t, serve(t,
		`{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":2,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"cache_read_input_tokens":400,"output_tokens":1}}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":6,"output_tokens":50}}`, stop))
	if err != nil {
		t.Fatal(err)
	}
	want := state.Usage{InputTokens: 436, OutputTokens: 50, CacheReadTokens: 400, CacheWriteTokens: 30, CacheHourTokens: 20}
	if diff := cmp.Diff(want, resp.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if resp.Model != "m" { // the price of the response is that of its model
		t.Errorf("the server named no model, and the response is of %q, want the model of the request", resp.Model)
	}
}

// Recordings of real responses, over HTTP through the SDK, match the SDK's own accumulator.
func TestRecordings(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("TURNPIKE_REAL_DATA")
	if dir == "" {
		t.Log("TURNPIKE_REAL_DATA is not set: no recordings are replayed")
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "wire", "anthropic", "*.chunks.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			var lines []string
			var oracle sdk.Message
			scan := bufio.NewScanner(f)
			scan.Buffer(nil, 32<<20)
			for scan.Scan() {
				lines = append(lines, scan.Text())
				var e sdk.MessageStreamEventUnion
				if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
					t.Fatal(err)
				}
				_ = oracle.Accumulate(e) // it knows fewer kinds of block than exist
			}
			resp, err := generate(t, serve(t, lines...))
			if err != nil {
				t.Fatal(err)
			}
			var want []state.Part
			for _, b := range oracle.Content {
				switch b.Type {
				case "text":
					want = append(want, text(b.Text))
				case "thinking":
					want = append(want, state.Part{Type: state.PartThinking, Text: b.Thinking})
				case "tool_use":
					want = append(want, call(b.ID, b.Name, string(b.Input)))
				}
			}
			var got []state.Part
			for _, p := range resp.Parts {
				if p.Type == state.PartThinking && p.OpaqueBy != "anthropic m" {
					t.Errorf("thinking without a signature: %+v", p)
				}
				p.Opaque, p.OpaqueBy = nil, ""
				if p.Type != state.PartText || p.Text != "" {
					got = append(got, p)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			if resp.Usage.OutputTokens != oracle.Usage.OutputTokens || resp.Model != oracle.Model || resp.Stop == "" {
				t.Errorf("response %+v, want %d output tokens of %s", resp, oracle.Usage.OutputTokens, oracle.Model)
			}
		})
	}
}
