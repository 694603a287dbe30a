package gemini_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// From Gemini 3 on, Google's tools work next to functions: their calls arrive as parts with signatures, and go
// back unchanged.
func TestHostedBesideFunctions(t *testing.T) {
	t.Parallel()
	const answer = `{"candidates":[{"content":{"role":"model","parts":[
		{"toolCall":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["tea"]}},"thoughtSignature":"c2ln"},
		{"toolResponse":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","response":{"found":"Tea"}}},
		{"functionCall":{"id":"f1","name":"brew","args":{}},"thoughtSignature":"c2lnMg=="}]},"finishReason":"STOP","index":0,
		"groundingMetadata":{"webSearchQueries":["tea","green tea"]}}],"modelVersion":"gemini-3-flash"}`
	var body []byte
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", strings.NewReplacer("\n", "", "\t", "").Replace(answer))
	}))
	t.Cleanup(h.Close)
	r := model.Request{
		Model: "gemini-3-flash", BaseURL: h.URL, Messages: []state.Message{state.UserText("hi")}, ProviderTools: []model.ProviderTool{{Name: model.WebSearch}, {Name: model.WebFetch}},
		Tools: []model.ToolSpec{{Name: "brew", Schema: json.RawMessage(`{"type":"object"}`)}},
	}
	p := gemini.New(gemini.Config{})
	resp, err := p.Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"includeServerSideToolInvocations":true`, `{"googleSearch":{}}`, `{"urlContext":{}}`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the request lacks %s: %s", want, body)
		}
	}
	if len(resp.Parts) != 2 || resp.Parts[0].Name != model.WebSearch || resp.Parts[0].Content != `{"found":"Tea"}` || resp.Parts[1].Type != state.PartToolCall || resp.Stop != model.StopToolCalls {
		t.Errorf("parts %+v", resp.Parts)
	}
	if resp.Usage.WebSearches != 2 {
		t.Errorf("usage %+v", resp.Usage)
	}
	r.Messages = append(r.Messages, state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.ToolResult("f1", "brewed", false))
	if _, err := p.Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"toolCall":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["tea"]}}`, `"thoughtSignature":"c2ln"`, `"toolResponse":{"id":"g1"`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the next request lacks %s: %s", want, body)
		}
	}
	// Before Gemini 3 the API refuses a schema, which a submission may bring, together with its own tools.
	r = model.Request{Model: "gemini-2.5-flash", BaseURL: h.URL, Messages: r.Messages[:1], ProviderTools: r.ProviderTools, OutputSchema: json.RawMessage(`{"type":"object"}`)}
	if _, err := p.Generate(t.Context(), r, nil); err != nil || strings.Contains(string(body), "responseJsonSchema") || !strings.Contains(string(body), "It must match this JSON Schema") {
		t.Errorf("%v: the request is %s", err, body)
	}
}
