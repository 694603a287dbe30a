package e2e_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

const (
	modelKey   = "sk-canary-of-the-model"
	toolKey    = "canary-of-the-tool"
	callerSpan = "b7ad6b7169203331"
	callerIn   = "00-0af7651916cd43dd8448eb211c80319c-" + callerSpan + "-01"
)

// traced is a run with everything that a trace must survive: a retried model call, a worker killed within a
// tool, a child run, and a wait for a person.
type traced struct {
	*deployment

	collector *testbed.Collector
	run       string

	mu      sync.Mutex
	parents map[string][]string // the trace parents that tools received, by name
}

func (r *traced) received(tool, parent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parents[tool] = append(r.parents[tool], parent)
}

func (r *traced) list(tool string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.parents[tool])
}

func trace(t *testing.T, env ...string) *traced {
	t.Helper()
	r := &traced{collector: testbed.OTLP(t), parents: map[string][]string{}}
	mock, err := mockmodel.New(mockmodel.Config{APIKey: modelKey, Scripts: []mockmodel.Script{{Responses: []mockmodel.Response{
		{Scripted: model.Scripted{Error: model.Overloaded}},
		{Scripted: model.Scripted{ToolCalls: []model.ScriptedCall{
			{ID: "c1", Name: "slow", Arguments: []byte(`{"q":"canary-argument"}`)},
		}, Usage: &model.ScriptedUsage{InputTokens: 20, OutputTokens: 7, CacheReadTokens: 16}}},
		{Scripted: model.Scripted{ToolCalls: []model.ScriptedCall{{ID: "c2", Name: "web"}, {ID: "c3", Name: "ask", Arguments: []byte(`{"task":"go"}`)}}}},
		{Scripted: model.Scripted{Text: "canary-answer"}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	models := httptest.NewServer(mock)
	t.Cleanup(models.Close)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.received("web", q.Header.Get("Traceparent"))
		_, _ = fmt.Fprint(w, "you are "+q.Header.Get("X-Key"))
	}))
	t.Cleanup(web.Close)

	r.deployment = newDeployment(t, 0, append(env,
		"OTEL_EXPORTER_OTLP_ENDPOINT="+r.collector.HTTP, "OTEL_BSP_SCHEDULE_DELAY=50",
		"TURNPIKE_SECRET_MODEL_KEY="+modelKey, "TURNPIKE_SECRET_TOOL_KEY="+toolKey, "TURNPIKE_HTTP_ALLOW="+strings.TrimPrefix(web.URL, "http://"),
	)...)
	grpc := append(slices.Clone(r.env), "OTEL_EXPORTER_OTLP_ENDPOINT="+r.collector.GRPC, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
	first := spawn(t, "worker", grpc)

	called, killed := make(chan struct{}, 2), make(chan struct{})
	stop, err := toolkit.Serve(r.nats, r.prefix(), toolkit.Tool{Name: "slow", Handler: func(_ context.Context, q toolkit.Call) (toolkit.Result, error) {
		r.received("slow", q.TraceParent)
		called <- struct{}{}
		if len(r.list("slow")) == 1 {
			<-killed
			return toolkit.Result{}, errors.New("nobody listens any more")
		}
		return toolkit.Result{Content: "canary-result"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() { close(killed) })
	t.Cleanup(func() { release(); _ = stop() })
	for name, def := range map[string]string{
		"child": `{name: child, model: {provider: scripted, responses: [{text: said}]}}`,
		"head": `name: head
instructions: canary-instructions
model: {provider: openai, name: gpt-test, base_url: "` + models.URL + `/v1", api_key: "secret://MODEL_KEY", max_output_tokens: 99}
loop: {converse: true}
tools:
  - {name: slow, kind: nats, idempotent: true, timeout: 20s}
  - {name: web, kind: http, url: "` + web.URL + `/", headers: {X-Key: "secret://TOOL_KEY"}}
  - {name: ask, kind: agent, agent: child}`,
	} {
		data, err := yaml.YAMLToJSON([]byte(def))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.PutAgent(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	r.submit(t)
	<-called
	// The model call of this turn is exported; the turn itself will be lost.
	r.await(t, "first model call", func(spans []testbed.Span) bool {
		return slices.ContainsFunc(spans, func(s testbed.Span) bool { return s.Name == "chat gpt-test" })
	})
	first.kill()
	release()
	second := spawn(t, "worker", grpc)
	if _, err := r.client.Wait(t.Context(), r.run); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Cancel(t.Context(), r.run, "enough"); err != nil {
		t.Fatal(err)
	}
	if run, err := r.client.Wait(t.Context(), r.run); err != nil || run.Status != "cancelled" {
		t.Fatalf("run = %s, %v", run.Status, err)
	}
	// Spans that are still in memory are exported at the end.
	for _, p := range []*process{second, r.gateway} {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.done
	}
	return r
}

// submit submits the run as a caller with a trace.
func (r *traced) submit(t *testing.T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/runs", strings.NewReader(`{"agent": "head", "input": "canary-question"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", callerIn)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.Status)
	}
	_, r.run, _ = strings.Cut(resp.Header.Get("Location"), "/v1/runs/")
}

func (r *traced) await(t *testing.T, what string, ok func([]testbed.Span) bool) {
	t.Helper()
	eventually(t, what, func() error {
		if spans := r.collector.Spans(); !ok(spans) {
			return fmt.Errorf("%d spans have arrived", len(spans))
		}
		return nil
	})
}

// A run has one trace across gateway, workers, crashes, tools and child runs, with the semantic conventions and
// without user content (F6).
func TestTrace(t *testing.T) {
	t.Parallel()
	r := trace(t)
	names := map[string]string{callerSpan: "caller"}
	for _, s := range r.collector.Spans() {
		names[hex.EncodeToString(s.SpanId)] = s.Name
	}
	var tree []string
	for _, s := range r.collector.Spans() {
		if id := hex.EncodeToString(s.TraceId); id != callerIn[3:35] {
			// A cancel is part of its caller's trace.
			if strings.HasPrefix(s.Name, "POST /v1/runs/{id}/cancel") || strings.HasPrefix(s.Name, "PUT ") {
				continue
			}
			t.Errorf("%s is in trace %s", s.Name, id)
		}
		parent, known := names[hex.EncodeToString(s.ParentSpanId)]
		if !known {
			parent = "(killed)"
		}
		tree = append(tree, strings.TrimSpace(fmt.Sprintf("%s %s < %s %s", s.Service, s.Name, parent, s.Attr("error.type"))))
	}
	slices.Sort(tree)
	want := []string{
		"turnpike-gateway POST /v1/runs < caller",
		"turnpike-gateway submit head < POST /v1/runs",
		"turnpike-worker chat < turn child",
		"turnpike-worker chat gpt-test < (killed)",
		"turnpike-worker chat gpt-test < turn head",
		"turnpike-worker chat gpt-test < turn head",
		"turnpike-worker execute_tool slow < turn head",
		"turnpike-worker execute_tool web < turn head",
		"turnpike-worker submit child < turn head",
		"turnpike-worker turn child < submit child",
		"turnpike-worker turn head < submit head", // the repeated tool, and what follows
		"turnpike-worker turn head < submit head", // web and ask
		"turnpike-worker turn head < submit head", // the child's result
		"turnpike-worker turn head < submit head", // the answer
		"turnpike-worker turn head < submit head", // the cancel
	}
	if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("spans:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}, r.collector.Metrics()); diff != "" {
		t.Errorf("metrics:\n%s", diff)
	}
	r.checkAttributes(t)
	r.checkTools(t, names)
	raw := r.collector.Raw()
	for _, canary := range []string{modelKey, toolKey, "canary"} {
		if strings.Contains(raw, canary) {
			t.Errorf("the spans hold %q", canary)
		}
	}
}

// checkAttributes compares the retried call and the retried turn.
func (r *traced) checkAttributes(t *testing.T) {
	t.Helper()
	for _, s := range r.collector.Spans() {
		want := map[string]string{}
		switch {
		case s.Name == "chat gpt-test" && s.Attr("turnpike.model.failed_calls") == "1":
			want = map[string]string{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-test", "gen_ai.response.model": "gpt-test",
				"gen_ai.usage.input_tokens": "20", "gen_ai.usage.output_tokens": "7", "gen_ai.usage.cache_read.input_tokens": "16",
				"gen_ai.response.finish_reasons": "tool_call", "gen_ai.conversation.id": r.run, "gen_ai.agent.name": "head",
				"gen_ai.request.max_tokens": "99", "server.address": "127.0.0.1",
			}
			if len(s.Events) != 1 || s.Events[0].Name != "turnpike.model.call_failed" || s.Kind.String() != "SPAN_KIND_CLIENT" {
				t.Errorf("%s: kind %s, events %v", s.Name, s.Kind, s.Events)
			}
		case s.Name == "execute_tool slow":
			want = map[string]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "slow", "gen_ai.tool.call.id": "c1", "gen_ai.tool.type": "function"}
		case s.Name == "turn head" && s.Attr("turnpike.turn") == "1":
			want = map[string]string{
				"turnpike.turn.attempt": "2", "turnpike.run.id": r.run, "messaging.operation.type": "process", "messaging.system": "nats",
				"gen_ai.agent.version": "1",
			}
			if s.Kind.String() != "SPAN_KIND_CONSUMER" {
				t.Errorf("%s: kind %s", s.Name, s.Kind)
			}
		case s.Name == "turn head" && s.Attr("turnpike.turn") == "2" && len(s.Links) != 1:
			t.Errorf("%s: %d links, want one to the previous turn or to the child", s.Name, len(s.Links))
		case s.Name == "POST /v1/runs":
			want = map[string]string{"http.route": "/v1/runs", "http.response.status_code": "202", "http.request.method": "POST"}
		}
		for name, value := range want {
			if got := s.Attr(name); got != value {
				t.Errorf("%s: %s = %q, want %q", s.Name, name, got, value)
			}
		}
	}
}

// checkTools checks that each tool received the span of its call.
func (r *traced) checkTools(t *testing.T, names map[string]string) {
	t.Helper()
	for _, name := range []string{"slow", "web"} {
		received := r.list(name)
		last := received[len(received)-1]
		if len(last) != len(callerIn) || names[last[36:52]] != "execute_tool "+name {
			t.Errorf("%s received %q", name, received)
		}
	}
}

// Spans contain the content of messages if configured, but never secrets.
func TestTraceContent(t *testing.T) {
	t.Parallel()
	r := trace(t, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true")
	raw := r.collector.Raw()
	for _, canary := range []string{"canary-question", "canary-instructions", "canary-argument", "canary-result", "canary-answer", "you are [redacted]"} {
		if !strings.Contains(raw, canary) {
			t.Errorf("the spans do not hold %q", canary)
		}
	}
	for _, secret := range []string{modelKey, toolKey} {
		if strings.Contains(raw, secret) {
			t.Errorf("the spans hold %q", secret)
		}
	}
}

// Each run of a batch has its own trace, with a link to the request.
func TestTraceBatch(t *testing.T) {
	t.Parallel()
	collector := testbed.OTLP(t)
	s := newDeployment(t, 1, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.HTTP, "OTEL_BSP_SCHEDULE_DELAY=50")
	if _, err := s.client.PutAgent(t.Context(), "a", []byte(`{"name":"a","model":{"provider":"scripted","responses":[{"text":"x"}]}}`)); err != nil {
		t.Fatal(err)
	}
	run := api.SubmitRequest{Agent: "a", Input: []byte(`"go"`)}
	if _, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{run, run, run}}, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three traces", func() error {
		request := ""
		traces := map[string][]string{}
		for _, span := range collector.Spans() {
			if span.Name == "POST /v1/runs:batch" {
				request = string(span.SpanId)
			}
			if span.Name == "submit a" || span.Name == "turn a" {
				id := string(span.TraceId)
				traces[id] = append(traces[id], span.Name)
			}
			if span.Name == "submit a" && (len(span.Links) != 1 || len(span.ParentSpanId) != 0 || span.Attr("turnpike.batch.id") == "") {
				t.Fatalf("%v", span)
			}
			if span.Name == "submit a" && request != "" && string(span.Links[0].SpanId) != request {
				t.Fatalf("%v", span)
			}
		}
		for _, spans := range traces {
			if len(spans) != 2 {
				return fmt.Errorf("spans of a run: %v", spans)
			}
		}
		if len(traces) != 3 || request == "" {
			return errors.New(fmt.Sprint(len(traces), " traces"))
		}
		return nil
	})
}
