package gemini_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// serve answers every request with a status and a body; a stream if it begins with "data:".
func serve(t *testing.T, status int, body string) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		kind := "application/json; charset=UTF-8"
		if status == http.StatusOK {
			kind = "text/event-stream"
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

func generate(t *testing.T, base string) (model.Response, error) {
	t.Helper()
	return gemini.New(gemini.Config{}).Generate(t.Context(), model.Request{Call: 2, Model: "gemini-3-pro-preview", BaseURL: base, Messages: []state.Message{state.UserText("hi")}}, nil)
}

// stream frames events.
func stream(events ...string) string { return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n" }

func piece(parts, finish string) string {
	return `{"candidates":[{"content":{"role":"model","parts":[` + parts + `]}` + finish + `}]}`
}

const stop = `,"finishReason":"STOP"`

func text(s string) state.Part { return state.Part{Type: state.PartText, Text: s} }

func call(id, name, args string) state.Part {
	return state.Part{Type: state.PartToolCall, ID: id, Name: name, Arguments: args}
}

func signed(p state.Part, signature string) state.Part {
	p.Opaque, p.OpaqueBy = json.RawMessage(`{"thought_signature":"`+signature+`"}`), "gemini gemini-3-pro"
	return p
}

func TestStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body  string
		parts []state.Part
		stop  model.Stop
	}{
		"signature on a call": {stream(piece(`{"functionCall":{"name":"f","args":{"n":1}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"f","args":{"n":2}}}`, stop)),
			[]state.Part{signed(call("call_2_0", "f", `{"n":1}`), "c2ln"), call("call_2_1", "f", `{"n":2}`)}, model.StopToolCalls},
		"signature behind a text": {stream(piece(`{"text":"a"}`, ""), piece(`{"text":"b"}`, ""), piece(`{"text":"","thoughtSignature":"c2ln"}`, stop)), []state.Part{signed(text("ab"), "c2ln")}, model.StopEnd},
		"signature inside":        {stream(piece(`{"text":"a","thoughtSignature":"c2ln"},{"text":"b"}`, stop)), []state.Part{signed(text("a"), "c2ln"), text("b")}, model.StopEnd},
		"signature behind a call": {stream(piece(`{"text":"hm","thought":true},{"text":"a"},{"functionCall":{"name":"f"},"thoughtSignature":"Y2FsbA=="}`, ""), piece(`{"text":"","thoughtSignature":"dGV4dA=="},{"text":"","thought":true,"thoughtSignature":"aG0="}`, stop)),
			[]state.Part{signed(state.Part{Type: state.PartThinking, Text: "hm"}, "aG0="), signed(text("a"), "dGV4dA=="), signed(call("call_2_0", "f", "{}"), "Y2FsbA==")}, model.StopToolCalls},
		"end of a signed text": {stream(piece(`{"text":"a","thoughtSignature":"c2ln"},{"text":""}`, stop)), []state.Part{signed(text("a"), "c2ln")}, model.StopEnd},
		"signature of nothing": {stream(piece(`{"text":"","thoughtSignature":"c2ln"}`, stop)), []state.Part{text("")}, model.StopEnd},
		"signed thought": {stream(piece(`{"text":"hm","thought":true,"thoughtSignature":"c2ln"},{"text":"a"}`, stop)),
			[]state.Part{signed(state.Part{Type: state.PartThinking, Text: "hm"}, "c2ln"), text("a")}, model.StopEnd},
		"numbers and order":     {stream(piece(`{"functionCall":{"id":"x","name":"f","args":{"z": 12345678901234567890,"a":1.0}}}`, stop)), []state.Part{call("x", "f", `{"z": 12345678901234567890,"a":1.0}`)}, model.StopToolCalls},
		"the same call twice":   {stream(piece(`{"functionCall":{"id":"x","name":"f","args":{}}}`, ""), piece(`{"functionCall":{"id":"x","name":"f","args":{}}}`, stop)), []state.Part{call("x", "f", `{}`)}, model.StopToolCalls},
		"text around calls":     {stream(piece(`{"text":"a"},{"functionCall":{"name":"f"}},{"text":"b"}`, stop)), []state.Part{text("a"), call("call_2_0", "f", "{}"), text("b")}, model.StopToolCalls},
		"filter inside a call":  {stream(piece(`{"text":"a"},{"functionCall":{"name":"f","willContinue":true}}`, `,"finishReason":"SAFETY"`)), []state.Part{text("a")}, model.StopRefusal},
		"unknown finish":        {stream(piece(`{"text":"a"}`, `,"finishReason":"TIRED"`)), []state.Part{text("a")}, model.StopEnd},
		"parts that are none":   {stream(piece(`null,{"executableCode":{"code":"x"}},{"inlineData":{"data":"AAAA","mimeType":"image/png"}}`, stop)), []state.Part{text("")}, model.StopEnd},
		"nothing behind it":     {"data: " + piece(`{"text":"a"}`, stop), []state.Part{text("a")}, model.StopEnd},
		"word of other servers": {stream(piece(`{"text":"a"}`, stop), "[DONE]"), []state.Part{text("a")}, model.StopEnd},
		"lines of one event":    {"data: {\"candidates\":[{\"content\":\ndata: {\"parts\":[{\"text\":\"a\"}]},\ndata: \"finishReason\":\"STOP\"}]}\n\n", []state.Part{text("a")}, model.StopEnd},
	} {
		resp, err := generate(t, serve(t, 200, test.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.parts, resp.Parts); diff != "" || resp.Stop != test.stop {
			t.Errorf("%s: stop %q (-want +got):\n%s", name, resp.Stop, diff)
		}
	}
}

// Each reason why Google ends a response without an error has its meaning.
func TestFinishReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]model.Stop{
		"STOP": model.StopEnd, "MAX_TOKENS": model.StopMaxOutputTokens,
		"SAFETY": model.StopRefusal, "PROHIBITED_CONTENT": model.StopRefusal, "IMAGE_SAFETY": model.StopRefusal, "IMAGE_PROHIBITED_CONTENT": model.StopRefusal,
		"RECITATION": model.StopContentFilter, "BLOCKLIST": model.StopContentFilter, "SPII": model.StopContentFilter, "IMAGE_RECITATION": model.StopContentFilter,
	} {
		resp, err := generate(t, serve(t, 200, stream(piece(`{"text":"a"}`, `,"finishReason":"`+reason+`"`))))
		if err != nil || resp.Stop != want {
			t.Errorf("%s: stop %q, %v; want %q", reason, resp.Stop, err, want)
		}
	}
}

// The bodies are those that Google sends, as reported by its users.
func TestErrors(t *testing.T) {
	t.Parallel()
	rpc := func(name, rest string) string {
		return `{"@type":"type.googleapis.com/google.rpc.` + name + `",` + rest + `}`
	}
	quota := "You exceeded your current quota, please check your plan and billing details."
	body := func(code int, status, message string, details ...string) string {
		return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, code, message, status, strings.Join(details, ","))
	}
	for name, test := range map[string]struct {
		status int
		body   string
		class  model.Class
		after  time.Duration
	}{
		"rate": {429, body(429, "RESOURCE_EXHAUSTED", quota+" Please retry in 47.434392449s.", rpc("QuotaFailure", `"violations":[{"quotaId":"GenerateContentPaidTierInputTokensPerModelPerMinute"}]`), rpc("RetryInfo", `"retryDelay":"47s"`)),
			model.RateLimited, 47 * time.Second},
		"rate without details": {429, body(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."), model.RateLimited, 0},
		"rate in words":        {429, body(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please retry in 2.5s."), model.RateLimited, 2500 * time.Millisecond},
		"rate of Vertex":       {429, `[{"error":{"code":429,"message":"Resource exhausted. Please try again later.","status":"RESOURCE_EXHAUSTED"}}]`, model.RateLimited, 0},
		"quota of a day": {429, body(429, "RESOURCE_EXHAUSTED", quota, rpc("QuotaFailure", `"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]`), rpc("RetryInfo", `"retryDelay":"30s"`)),
			model.Quota, 0},
		"quota without a delay":    {429, body(429, "RESOURCE_EXHAUSTED", quota), model.Quota, 0},
		"overloaded":               {503, body(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), model.Overloaded, 0},
		"internal":                 {500, body(500, "INTERNAL", "An internal error has occurred."), model.Overloaded, 0},
		"too long":                 {400, body(400, "INVALID_ARGUMENT", "The input token count (1200034) exceeds the maximum number of tokens allowed (1048576)."), model.PromptTooLong, 0},
		"invalid":                  {400, body(400, "INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts."), model.InvalidRequest, 0},
		"key":                      {400, body(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", rpc("ErrorInfo", `"reason":"API_KEY_INVALID"`)), model.Auth, 0},
		"no key":                   {403, body(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers."), model.Auth, 0},
		"token":                    {401, body(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."), model.Auth, 0},
		"place":                    {400, body(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), model.Auth, 0},
		"model":                    {404, body(404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta"), model.InvalidRequest, 0},
		"deadline":                 {504, body(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."), model.Timeout, 0},
		"in a stream":              {200, stream(piece(`{"text":"a"}`, ""), body(503, "UNAVAILABLE", "The model is overloaded.")), model.Overloaded, 0},
		"in a stream, rate":        {200, stream(body(429, "RESOURCE_EXHAUSTED", quota, rpc("RetryInfo", `"retryDelay":"1.5s"`))), model.RateLimited, 1500 * time.Millisecond},
		"beside a stream":          {200, stream(piece(`{"text":"a"}`, "")) + "{\n  \"error\": {\"code\": 500, \"message\": \"oh\", \"status\": \"INTERNAL\"}\n}\n", model.Overloaded, 0},
		"prompt blocked":           {200, stream(`{"promptFeedback":{"blockReason":"OTHER"}}`), model.ContentFilter, 0},
		"malformed call":           {200, stream(piece("", `,"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print("`)), model.Overloaded, 0},
		"signature":                {200, stream(piece("", `,"finishReason":"MISSING_THOUGHT_SIGNATURE"`)), model.InvalidRequest, 0},
		"unfinished":               {200, stream(piece(`{"text":"a"}`, "")), model.Transport, 0},
		"call that continues":      {200, stream(piece(`{"functionCall":{"name":"f","willContinue":true}}`, stop)), model.Transport, 0},
		"call in call":             {200, stream(piece(`{"functionCall":{"name":"f","willContinue":true}},{"functionCall":{"name":"g","args":{}}}`, stop)), model.Transport, 0},
		"arguments without a call": {200, stream(piece(`{"functionCall":{"partialArgs":[{"jsonPath":"$.a","boolValue":true}]}}`, stop)), model.Transport, 0},
		"not JSON":                 {200, stream("garbage", piece(`{"text":"a"}`, stop)), model.Transport, 0},
		"not its shape":            {200, stream(`{"candidates":7}`), model.Transport, 0},
		"nothing in a list":        {200, stream(`{"candidates":[null]}`), model.Transport, 0},
		"empty":                    {200, "", model.Transport, 0},
	} {
		resp, err := generate(t, serve(t, test.status, test.body))
		e, ok := errors.AsType[*model.Error](err)
		if name == "malformed call" && (!ok || e.Message != "print(") {
			t.Errorf("%s: %v", name, err)
		}
		if open := strings.Contains(name, "call that") || name == "call in call" || name == "arguments without a call"; open != (ok && strings.Contains(e.Message, "incomplete tool call")) {
			t.Errorf("%s: %v", name, err)
		}
		if !ok || e.Class != test.class || e.RetryAfter != test.after || e.Provider != "gemini" || e.Message == "" || len(resp.Parts) > 0 {
			t.Errorf("%s: %#v, want class %s after %s", name, err, test.class, test.after)
		}
	}
}

// The key is sent in its header, and a base URL may end in a version.
func TestAddress(t *testing.T) {
	t.Setenv("GOOGLE_API_KEY", "from-the-environment")
	t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
	t.Setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1")
	var got []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.Header.Get("X-Goog-Api-Key")+" "+r.Header.Get("X-Client-Request-Id"))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream(piece(`{"text":"a"}`, stop)))
	}))
	t.Cleanup(h.Close)
	own := gemini.New(gemini.Config{BaseURL: h.URL, APIKey: "own"})
	for _, r := range []model.Request{
		{Model: "m", BaseURL: h.URL + "/v1"}, {Model: "models/m", BaseURL: h.URL + "/proxy/v1alpha/", APIKey: "k", Run: "run_1", Call: 3}, {Model: "tuned/m"},
	} {
		r.Messages = []state.Message{state.UserText("hi")}
		if _, err := own.Generate(t.Context(), r, nil); err != nil {
			t.Error(err)
		}
	}
	want := []string{"/v1/models/m:streamGenerateContent  ", "/proxy/v1alpha/models/m:streamGenerateContent k run_1/3", "/v1beta/models/tuned/m:streamGenerateContent own "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for _, r := range []model.Request{{Model: "m", BaseURL: "nowhere"}, {Model: "m?x", BaseURL: h.URL}, {BaseURL: h.URL}} {
		_, err := own.Generate(t.Context(), r, nil)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.InvalidRequest {
			t.Errorf("%q at %q: %v", r.Model, r.BaseURL, err)
		}
	}
}

// What the stream says about itself is in the response: the model that answered, and each reason.
func TestReports(t *testing.T) {
	t.Parallel()
	const unspecified = `"promptFeedback":{"blockReason":"BLOCK_REASON_UNSPECIFIED"}`
	for name, tt := range map[string]struct {
		body, model, text, message string
		class                      model.Class
		estimated                  bool
	}{
		"model":               {stream(piece(`{"text":"a"}`, stop)[:len(piece(`{"text":"a"}`, stop))-1] + `,"modelVersion":"served"}`), "served", "a", "", "", false},
		"no model":            {stream(piece(`{"text":"a"}`, stop)), "gemini-3-pro-preview", "a", "", "", false},
		"no finish so far":    {stream(piece(`{"text":"a"}`, `,"finishReason":"FINISH_REASON_UNSPECIFIED"`), piece(`{"text":"b"}`, stop)), "gemini-3-pro-preview", "ab", "", "", false},
		"blocked":             {stream(`{"modelVersion":"served","promptFeedback":{"blockReason":"SAFETY","blockReasonMessage":"unsafe"}}`), "served", "", "(SAFETY unsafe)", model.ContentFilter, false},
		"blocked by nothing":  {stream(`{` + unspecified + `}`), "gemini-3-pro-preview", "", "ended", model.Transport, false},
		"unblocked at Vertex": {stream(`{"promptFeedback":{"blockReason":"BLOCKED_REASON_UNSPECIFIED"}}`), "gemini-3-pro-preview", "", "ended", model.Transport, false},
		"not blocked":         {stream(`{"promptFeedback":{}}`), "gemini-3-pro-preview", "", "ended", model.Transport, false},
		"counted so far":      {stream(`{"usageMetadata":{"promptTokenCount":9}}`), "gemini-3-pro-preview", "", "ended", model.Transport, true},
		"finish without text": {stream(piece("", `,"finishReason":"MALFORMED_FUNCTION_CALL"`)), "gemini-3-pro-preview", "", "ended with MALFORMED_FUNCTION_CALL: retry", model.Overloaded, false},
	} {
		resp, err := generate(t, serve(t, 200, tt.body))
		said := ""
		for _, p := range resp.Parts {
			said += p.Text
		}
		e, failed := errors.AsType[*model.Error](err)
		if resp.Model != tt.model || said != tt.text || resp.Usage.Estimated != tt.estimated || failed != (tt.class != "") || failed && (e.Class != tt.class || !strings.Contains(e.Message, tt.message)) {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
}
