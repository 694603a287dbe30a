package mockmodel_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
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

func start(t *testing.T, c mockmodel.Config) string {
	t.Helper()
	server, err := mockmodel.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	return h.URL
}

// post sends a body and returns the status and the response.
func post(t *testing.T, url, body string) (int, http.Header, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func chat(name string, assistants int) string {
	messages := []any{map[string]any{"role": "user", "content": "I want a refund"}}
	for i := range assistants {
		messages = append(messages, map[string]any{"role": "assistant", "content": fmt.Sprint(i)}, map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "go on"}}})
	}
	b, _ := json.Marshal(map[string]any{"model": name, "messages": messages}) // texts and numbers
	return string(b)
}

func content(t *testing.T, body string) string {
	t.Helper()
	var r struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || len(r.Choices) != 1 {
		t.Fatalf("%s: %v", body, err)
	}
	return r.Choices[0].Message.Content
}

const script = `
scripts:
  - model: ^picky-
    match: (?i)user:.*nothing
    responses: [{text: never}]
  - model: ^picky-
    match: (?i)user:.*refund
    responses: [{text: matched}]
  - model: ^looping$
    repeat: true
    responses: [{text: a}, {text: b}]
  - model: ^counting$
    count: calls
    responses: [{text: a}, {text: b}]
  - model: ^failing$
    responses:
      - {error: rate_limited, retry_after: 1500ms}
      - {error: overloaded}
      - {text: a, usage: {input_tokens: 3, output_tokens: 4}}
      - {error: auth}
      - {text: b}
`

func TestScripts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := mockmodel.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, cfg) + "/v1/chat/completions"
	for _, test := range []struct {
		model      string
		assistants int
		want       string // text, or the status
	}{
		{"picky-1", 0, "matched"},
		{"other", 0, "404"},
		{"looping", 0, "a"}, {"looping", 1, "b"}, {"looping", 2, "a"}, {"looping", 0, "a"},
		{"counting", 0, "a"}, {"counting", 0, "b"}, {"counting", 0, "400"},
		// A failure precedes the answer that it delays, and occurs once.
		{"failing", 0, "429"}, {"failing", 0, "503"}, {"failing", 0, "a"}, {"failing", 0, "a"},
		{"failing", 1, "401"}, {"failing", 1, "b"}, {"failing", 2, "400"},
	} {
		status, header, body := post(t, url, chat(test.model, test.assistants))
		got := fmt.Sprint(status)
		if status == http.StatusOK {
			got = content(t, body)
		}
		if got != test.want {
			t.Errorf("%s after %d: %s, want %s: %s", test.model, test.assistants, got, test.want, body)
		}
		if after := header.Get("Retry-After") + " " + header.Get("Retry-After-Ms"); status == http.StatusTooManyRequests && after != "2 1500" {
			t.Errorf("retry after %q", after)
		}
	}
}

// Complete responses have the same content as their streams, which the adapters check.
func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	url := start(t, mockmodel.Config{Scripts: []mockmodel.Script{{Responses: []mockmodel.Response{{Scripted: model.Scripted{
		Text: "Hi", Thinking: "Hm", ToolCalls: []model.ScriptedCall{{Name: "f", Arguments: json.RawMessage(`{"a": "<b>"}`)}},
		Usage: &model.ScriptedUsage{InputTokens: 10, OutputTokens: 2, CacheReadTokens: 4},
	}}}}}})
	for path, want := range map[string]string{
		"/v1/chat/completions": `{"choices":[{"finish_reason":"tool_calls","index":0,"logprobs":null,"message":{"content":"Hi","reasoning_content":"Hm","refusal":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\": \"<b>\"}","name":"f"},"id":"call_0_0","type":"function"}]}}],"created":1790000000,"id":"chatcmpl-mock-0-0","model":"m","object":"chat.completion","usage":{"completion_tokens":2,"prompt_tokens":10,"prompt_tokens_details":{"cache_write_tokens":0,"cached_tokens":4},"total_tokens":12}}`,
		"/v1/messages":         `{"content":[{"signature":"MzUwNDIxMDdiNTUxZDQxOA==","thinking":"Hm","type":"thinking"},{"text":"Hi","type":"text"},{"id":"call_0_0","input":{"a":"<b>"},"name":"f","type":"tool_use"}],"id":"msg_mock-0-0","model":"m","role":"assistant","stop_reason":"tool_use","stop_sequence":null,"type":"message","usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"input_tokens":6,"output_tokens":2}}`,
	} {
		status, _, body := post(t, url+path, `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
		var got bytes.Buffer
		if err := json.Compact(&got, []byte(body)); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		// The signature is opaque and differs.
		if diff := cmp.Diff(strip(want), strip(got.String())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func strip(body string) string {
	before, after, ok := strings.Cut(body, `"signature":"`)
	if !ok {
		return body
	}
	_, after, _ = strings.Cut(after, `"`)
	return before + after
}

// Gemini's address contains the model and the method.
func TestGeminiAddress(t *testing.T) {
	t.Parallel()
	url := start(t, mockmodel.Config{Scripts: []mockmodel.Script{{Model: "^a/b$", Responses: []mockmodel.Response{
		{Scripted: model.Scripted{Thinking: "Hm, let me", ToolCalls: []model.ScriptedCall{{Name: "f", Arguments: json.RawMessage(`{"a": "<b>"}`)}}}},
		{Scripted: model.Scripted{Error: model.ContentFilter}},
	}}}})
	whole := `{"candidates":[{"content":{"parts":[{"text":"Hm, let me","thought":true},{"functionCall":{"args":{"a":"<b>"},"id":"call_0_0","name":"f"},"thoughtSignature":""}],"role":"model"},` +
		`"finishReason":"STOP","index":0}],"modelVersion":"a/b","responseId":"mock-0-0","usageMetadata":{"candidatesTokenCount":4,"promptTokenCount":14,` +
		`"promptTokensDetails":[{"modality":"TEXT","tokenCount":14}],"thoughtsTokenCount":2,"totalTokenCount":20}}`
	const body = `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`
	for path, want := range map[string]string{
		"/v1/models/a/b:generateContent":                   whole,
		"/v1beta/models/c:generateContent":                 `"status":"NOT_FOUND"`,
		"/v1beta/models/a/b:countTokens":                   `Method countTokens is not served here`,
		"/v1beta/models/a/b:streamGenerateContent":         `alt=sse`,
		"/v1beta/models/a/b:streamGenerateContent?alt=sse": `"args":{"a": "<b>"}`,
	} {
		_, _, got := post(t, url+path, body)
		signed := regexp.MustCompile(`"thoughtSignature":"[^"]*"`).ReplaceAllString(got, `"thoughtSignature":""`)
		if !strings.Contains(signed, want) {
			t.Errorf("%s: %s\nwant %s", path, signed, want)
		}
	}
	if _, _, got := post(t, url+"/v1/models/a/b:generateContent", `{"contents":[{"role":"model","parts":[{"text":"x"}]}]}`); !strings.Contains(got, `"blockReason":"PROHIBITED_CONTENT"`) {
		t.Errorf("a filtered prompt: %s", got)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	url := start(t, mockmodel.Config{APIKey: "key"})
	if status, _, body := post(t, url+"/v1/messages", `{}`); status != http.StatusUnauthorized || !strings.Contains(body, "authentication_error") {
		t.Errorf("without a key: %d %s", status, body)
	}
	url = start(t, mockmodel.Config{})
	for path, bodies := range map[string][]string{
		"/v1beta/models/m:generateContent": {`{`, `[]`, `{"contents":5}`},
		"/v1/messages":                     {`{`, `[]`, `{"messages":[{"content":5}]}`, `{"messages":5}`},
		"/v1/chat/completions":             {``, `{"messages":[{"content":[1]}]}`, `{"metadata":{"conversation":{}}}`},
	} {
		for _, body := range bodies {
			if status, _, got := post(t, url+path, body); status != http.StatusBadRequest || !strings.Contains(got, "invalid_request_error") && !strings.Contains(got, "INVALID_ARGUMENT") {
				t.Errorf("%s %s: %d %s", path, body, status, got)
			}
		}
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, body := range map[string]string{
		"unknown key": `{scripts: [{responses: [{txt: a}]}]}`, "expression": `{scripts: [{match: "("}]}`, "model": `{scripts: [{model: "["}]}`,
		"error": `{scripts: [{responses: [{error: tired}]}]}`, "stop": `{scripts: [{responses: [{stop: never}]}]}`,
		"count": `{scripts: [{count: fingers}]}`, "no name": `{scripts: [{responses: [{tool_calls: [{id: a}]}]}]}`,
		"negative": `{scripts: [{responses: [{delay: -1s}]}]}`, "missing file": `{conversation_files: [none.jsonl]}`, "no YAML": "\t{",
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".yaml")
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mockmodel.Load(file); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := mockmodel.Load(filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a missing file causes no error")
	}
	twice := mockmodel.Config{Conversations: []mockmodel.Conversation{{ID: "1"}, {ID: "1"}}}
	if _, err := mockmodel.New(twice); err == nil {
		t.Error("two conversations with one id cause no error")
	}
}

const recorded = `
{"id": 7, "task": "ignored", "messages": [{"role": "system", "content": "Policy"}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "call_GDP9", "type": "function", "function": {"name": "get", "arguments": "{\"id\":  \"EUJ\"}"}}]}, {"role": "tool", "tool_call_id": "call_GDP9", "name": "get", "content": "[]"}, {"role": "assistant", "content": "Grüße  \n"}]}

{"id": "b", "messages": []}
`

// A recorded conversation is replayed byte for byte through both adapters.
func TestConversations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, body := range map[string]string{"c.jsonl": recorded, "c.yaml": "conversation_files: [c.jsonl]"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	alone, err := mockmodel.Load(filepath.Join(dir, "c.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := mockmodel.Load(filepath.Join(dir, "c.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(alone.Conversations, cfg.Conversations); diff != "" || len(cfg.Conversations) != 2 {
		t.Fatalf("conversations: %s", diff)
	}
	url := start(t, cfg)
	want := [][]state.Part{
		{{Type: state.PartToolCall, ID: "call_GDP9", Name: "get", Arguments: `{"id":  "EUJ"}`}},
		{{Type: state.PartText, Text: "Grüße  \n"}},
	}
	for base, p := range map[string]model.Provider{
		url + "/v1": openai.New(openai.Config{}), url: anthropic.New(anthropic.Config{}), url + "/v1beta": gemini.New(gemini.Config{}),
	} {
		messages := []state.Message{state.UserText("Hi")}
		for _, parts := range want {
			resp, err := p.Generate(t.Context(), model.Request{Model: "any/thing/7", BaseURL: base, Messages: messages}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parts, resp.Parts); diff != "" {
				t.Errorf("%s (-want +got):\n%s", base, diff)
			}
			messages = append(messages, state.Message{Role: state.RoleAssistant, Parts: resp.Parts})
			for _, c := range (state.Message{Parts: resp.Parts}).Calls() {
				messages = append(messages, state.ToolResult(c.ID, "[]", false))
			}
		}
		_, err := p.Generate(t.Context(), model.Request{Model: "m/7", BaseURL: base, Messages: messages}, nil)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.Exhausted {
			t.Errorf("past the end: %v", err)
		}
	}
	if _, _, body := post(t, url+"/v1/chat/completions", `{"model":"m","metadata":{"conversation":7},"messages":[{"role":"assistant","content":""}]}`); content(t, body) != "Grüße  \n" {
		t.Errorf("by metadata: %s", body)
	}
}

// Every answer of the recorded conversations is replayed unchanged.
func TestRecordedTrajectories(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("TURNPIKE_REAL_DATA")
	if dir == "" {
		t.Log("TURNPIKE_REAL_DATA is not set: no recordings are loaded")
		return
	}
	cfg, err := mockmodel.Load(filepath.Join(dir, "tau-airline", "trajectories.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, cfg)
	p := openai.New(openai.Config{})
	answers := 0
	for _, c := range cfg.Conversations {
		n := 0
		history := []state.Message{state.UserText("Hi")}
		for _, m := range c.Messages {
			if m.Role != "assistant" {
				continue
			}
			resp, err := p.Generate(t.Context(), model.Request{Model: "tau/" + string(c.ID), BaseURL: url + "/v1", Messages: history}, nil)
			if err != nil {
				t.Fatalf("conversation %s, answer %d: %v", c.ID, n, err)
			}
			got := state.Message{Role: state.RoleAssistant, Parts: resp.Parts}
			text := ""
			if m.Content != nil {
				text = *m.Content
			}
			calls := got.Calls()
			same := got.Text() == text && len(calls) == len(m.ToolCalls)
			for i := range calls {
				same = same && calls[i].ID == m.ToolCalls[i].ID && calls[i].Name == m.ToolCalls[i].Function.Name && calls[i].Arguments == m.ToolCalls[i].Function.Arguments
			}
			if !same {
				t.Fatalf("conversation %s, answer %d: %+v, recorded %+v", c.ID, n, got, m)
			}
			history = append(history, got)
			n++
			answers++
		}
	}
	t.Logf("%d conversations, %d answers", len(cfg.Conversations), answers)
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(script))
	f.Add([]byte(recorded))
	f.Add([]byte(`{"scripts": [{"responses": [{"tool_calls": [{"name": "f", "arguments": "{"}], "cut_after": 3}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		for _, name := range []string{"c.yaml", "c.jsonl"} {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if cfg, err := mockmodel.Load(file); err == nil {
				_, _ = mockmodel.New(cfg) // two conversations may share an id
			}
		}
	})
}
