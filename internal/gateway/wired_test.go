//go:build !nosdk

package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// wired is a gateway whose workers have the built-in providers. A mock model answers at the providers' own
// addresses, without a network, and wired records the requests.
type wired struct {
	*deployment

	mock *mockmodel.Server
	mu   sync.Mutex
	sent []string
}

func newWired(t *testing.T, responses ...mockmodel.Response) *wired {
	t.Helper()
	mock, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{{Responses: responses}}})
	if err != nil {
		t.Fatal(err)
	}
	s := &wired{mock: mock, deployment: &deployment{t: t, bus: membus.New(), store: &flaky{Store: memstore.New(memstore.Config{})}}}
	g, err := gateway.New(s.store, s.bus, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Run(ctx) }()
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { cancel(); server.Close(); <-done })
	s.url, s.client = server.URL, api.New(server.URL)
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *wired) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.sent = append(s.sent, string(body))
	s.mu.Unlock()
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	s.mock.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// requests returns the bodies of the requests since the last call.
func (s *wired) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

// work runs a worker until stop is called or the test ends.
func (s *wired) work(id string) (stop func()) {
	s.t.Helper()
	client := &http.Client{Transport: s}
	w, err := worker.New(s.store, s.bus, worker.Config{
		ID: id, ShutdownGrace: time.Millisecond, Prices: model.DefaultPrices(),
		Providers: map[string]model.Provider{
			"anthropic": anthropic.New(anthropic.Config{APIKey: "key", Client: client}),
			"openai":    openai.New(openai.Config{APIKey: "key", Client: client}),
			"gemini":    gemini.New(gemini.Config{APIKey: "key", Client: client}),
		},
		Kinds: toolspec.Kinds(map[string]tool.Tool{"add": tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "42"}, nil })}),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(stop)
	return stop
}

// post makes a request that must succeed.
func (s *wired) post(path, body string) map[string]any {
	s.t.Helper()
	code, _, answer := s.call("POST", path, body)
	if code/100 != 2 {
		s.t.Fatalf("POST %s %s = %d %v", path, body, code, answer)
	}
	return answer
}

// end waits for the end of a run, and fails unless it has that output.
func (s *wired) end(id, output string) {
	s.t.Helper()
	run, err := s.client.Wait(s.t.Context(), id)
	if err != nil || run.Output == nil || *run.Output != output {
		s.t.Fatalf("run %s is %+v, %v; want the output %q", id, run, err, output)
	}
}

var cacheControl = regexp.MustCompile(`,"cache_control":\{[^}]*\}|"cache_control":\{[^}]*\},`)

// promptOf returns the model-visible parts of a request, in order and byte for byte, without cache breakpoints.
func promptOf(t *testing.T, body string) (blocks []string) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(cacheControl.ReplaceAllString(body, "")), &fields); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, name := range []string{"tools", "system", "systemInstruction", "instructions", "messages", "input", "contents"} {
		var items []json.RawMessage
		if json.Unmarshal(fields[name], &items) != nil {
			items = []json.RawMessage{fields[name]}
		}
		for _, item := range items {
			var m struct {
				Role           string
				Content, Parts []json.RawMessage
			}
			if json.Unmarshal(item, &m) != nil || len(m.Content)+len(m.Parts) == 0 {
				blocks = append(blocks, string(item))
				continue
			}
			for _, part := range slices.Concat(m.Content, m.Parts) {
				blocks = append(blocks, m.Role+string(part))
			}
		}
	}
	return slices.DeleteFunc(blocks, func(b string) bool { return b == "" })
}

// repeats fails unless the later request begins with the bytes of the earlier one.
func repeats(t *testing.T, what, earlier, later string) {
	t.Helper()
	before, after := promptOf(t, earlier), promptOf(t, later)
	for i, b := range before {
		if i >= len(after) || after[i] != b {
			t.Fatalf("%s: block %d of the earlier request is %s, then\n%s", what, i, b, after[min(i, len(after)-1)])
		}
	}
}

// vendors are models of the built-in providers that support tools of every kind.
var vendors = map[string]string{
	"anthropic": `{"provider": "anthropic", "name": "claude-haiku-4-5"`,
	"openai":    `{"provider": "openai", "name": "gpt-5-mini"`,
	"chat":      `{"provider": "openai", "name": "gpt-4.1", "api": "chat"`,
	"gemini":    `{"provider": "gemini", "name": "gemini-3-flash"`,
}

// Each model call begins with the bytes of the call before, on any worker and also in a fork, so that providers
// can serve it from their cache. A compaction keeps the bytes before the first message that it replaces.
func TestPromptPrefix(t *testing.T) {
	t.Parallel()
	answer := func(text string, tools ...string) mockmodel.Response {
		r := mockmodel.Response{Scripted: model.Scripted{Text: text}}
		for _, name := range tools {
			r.ToolCalls = append(r.ToolCalls, model.ScriptedCall{Name: name, Arguments: json.RawMessage(`{ "b": 1,  "a": "<é>" }`)})
		}
		return r
	}
	for name, m := range vendors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := answer("I look.", "add", "pick")
			if name != "chat" { // such a server may refuse the thoughts that led to an earlier answer
				first.Thinking = "Which one?"
			}
			s := newWired(t, first, answer("", "add"), answer("Again.", "add", "add"), answer("done"), answer("more"))
			stop := s.work("w1")
			s.put("a", `{"instructions": "Be exact.", "model": `+m+`}, "tools": [{"name": "add"}, {"name": "pick", "kind": "client", "schema": {"type": "object"}}]}`)
			id := s.post("/v1/runs?wait=2m", `{"agent": "a", "input": "go"}`)["id"].(string)
			stop()
			s.work("w2")
			call := s.waitingCall(id)
			s.post("/v1/runs/"+id+"/signals", fmt.Sprintf(`{"tool_results": [{"call_id": %q, "content": "this one"}]}`, call))
			s.end(id, "done")
			s.post("/v1/runs/"+id+"/signals", `{"message": "And?"}`)
			s.end(id, "more")
			sent := s.requests()
			if len(sent) != 5 {
				t.Fatalf("%d model calls, want 5", len(sent))
			}
			for i := 1; i < len(sent); i++ {
				repeats(t, fmt.Sprint("call ", i), sent[i-1], sent[i])
			}
			forked := s.post("/v1/runs/"+id+"/fork", `{"turn": 2, "input": "Otherwise."}`)["id"].(string)
			s.end(forked, "done")
			repeats(t, "fork", sent[2], s.requests()[0])
		})
	}
	t.Run("compaction", func(t *testing.T) {
		t.Parallel()
		full := answer("Full.", "add")
		full.Usage = &model.ScriptedUsage{InputTokens: 900, OutputTokens: 10}
		s := newWired(t, answer("One.", "add"), answer("Two.", "add"), full, answer("done"))
		s.work("w1")
		s.put("a", `{"instructions": "Be exact.", "model": `+vendors["anthropic"]+`}, "tools": [{"name": "add"}], "compaction": {"at": 0.5, "window": 1000, "keep": 2}}`)
		s.post("/v1/runs?wait=2m", `{"agent": "a", "input": "go"}`)
		sent := s.requests()
		before, after := promptOf(t, sent[2]), promptOf(t, sent[3])
		same := 0
		for same < len(after) && before[same] == after[same] {
			same++
		}
		// The tool, the instructions and the task stay.
		if same != 3 || !strings.Contains(before[2], `"go"`) || !strings.Contains(after[3], "earlier messages were removed") {
			t.Errorf("%d blocks are the same, want 3, then\n%s", same, after[min(same, len(after)-1)])
		}
	})
}

// waitingCall returns the id of the call for which a run waits.
func (s *wired) waitingCall(id string) string {
	s.t.Helper()
	run, err := s.client.Get(s.t.Context(), id)
	if err != nil || run.Waiting == nil || len(run.Waiting.Calls) != 1 {
		s.t.Fatalf("run = %+v, %v", run, err)
	}
	return run.Waiting.Calls[0].ID
}
