package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// An exported transcript is valid input for another run, in either format.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"adder","input":"what is it?"}`)
	for _, format := range []string{"openai", "anthropic"} {
		doc, err := s.client.Export(t.Context(), run["id"].(string), format)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: doc}, "")
		if err != nil {
			t.Fatalf("%s: %v in %s", format, err, doc)
		}
		s.events(again.ID, 0, nil)
		var lines []string
		messages, err := s.client.Messages(t.Context(), again.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			line := string(m.Role)
			for _, p := range m.Parts {
				line += " " + p.Text + p.Name + p.Content
			}
			lines = append(lines, line)
		}
		if got := strings.Join(lines, "|"); got != "system Add.|user what is it?|assistant add|tool 42|assistant it is 42|assistant hi there" {
			t.Errorf("%s: transcript = %s", format, got)
		}
	}
	path := fmt.Sprintf("/v1/runs/%s/messages", run["id"])
	for query, want := range map[string]string{"?format=gemini": `format is "gemini": use`, "?format=openai&view=full": "omit view"} {
		if code, _, p := s.call("GET", path+query, ""); code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), want) {
			t.Errorf("%s = %d %v", query, code, p["detail"])
		}
	}
	for input, want := range map[string]string{
		`{"format":"openai","messages":[]}`: "input.messages is empty",
		`{"format":"openai"}`:               "input.messages is missing",
		`{"messages":[]}`:                   `input.format is "": use`,
		`{"format":"openai","messages":[{"role":"user","content":"x"}],"model":"gpt-5"}`:    `unknown field "model"`,
		`{"format":"anthropic","messages":[{"role":"robot","content":"x"}]}`:                `input.messages[0].role: it is "robot"`,
		`{"format":"openai","messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}`: `names the tool call "c", which is not a call of the preceding assistant message`,
	} {
		body, _ := json.Marshal(map[string]any{"agent": "hello", "input": json.RawMessage(input)})
		if code, _, p := s.call("POST", "/v1/runs", string(body)); code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), want) {
			t.Errorf("%s = %d %v, want %q", input, code, p["detail"], want)
		}
	}
}

// halfway discards a response, and measures the memory in use after half of it.
type halfway struct {
	header             http.Header
	status, bytes, all int
	inUse              int64
}

func (h *halfway) Header() http.Header    { return h.header }
func (h *halfway) WriteHeader(status int) { h.status = status }
func (h *halfway) Write(b []byte) (int, error) {
	if h.bytes += len(b); h.bytes >= h.all/2 && h.inUse == 0 {
		h.inUse = inUse()
	}
	return len(b), nil
}

// A transcript is exported message by message: apart from the log, only one message is in memory.
func TestExportIsNotHeldInMemory(t *testing.T) { //nolint:paralleltest // it measures memory
	s := newDeployment(t)
	g, err := gateway.New(s.store, s.bus, gateway.Config{MaxBody: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	defer server.Close()
	const size, count = 256 << 10, 64
	said := fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat("x", size))
	large := &deployment{t: t, url: server.URL}
	code, _, run := large.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":{"format":"openai","messages":[`+strings.TrimSuffix(strings.Repeat(said+",", count), ",")+`]}}`)
	if code != http.StatusOK {
		t.Fatalf("submit = %d %v", code, run)
	}
	for _, format := range []string{"openai", "anthropic"} {
		path := fmt.Sprintf("/v1/runs/%s/messages?format=%s", run["id"], format)
		w := &halfway{header: http.Header{}, all: size * count}
		inUse() // the second collection releases what pools keep
		before := inUse()
		g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.status != http.StatusOK || w.bytes < w.all {
			t.Fatalf("%s = %d, %d bytes", format, w.status, w.bytes)
		}
		if held := w.inUse - before; held > size*count*5/4 { // the log itself, and a little more
			t.Errorf("%s: in the middle of a response of %d KiB, %d KiB are in use", format, w.bytes>>10, held>>10)
		}
	}
}
