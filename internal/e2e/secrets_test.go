package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/hook/natshook"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/tool/a2atool"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/tool/httptool"
	"github.com/turnpike-dev/turnpike/internal/tool/mcptool"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// core is in every canary. No escaping changes it, so text that contains a canary in any form but base64
// contains core.
const core = "c4n4ryQ7x9Zk2vTb"

// canaries are the secrets, with characters that URLs, JSON and HTML escape.
var canaries = map[string]string{
	"MODEL_KEY":   core + `+mo/d&"el%<k>=`,
	"HEADER_KEY":  core + `+he/a&"der%<k>=`,
	"QUERY_KEY":   core + `+qu/e&"ry%<k>=`,
	"A2A_TOKEN":   core + `+a2/a&"%<k>=`,
	"MCP_ENV":     core + `+mc/p&"en%<v>=`,
	"MCP_HEADER":  core + `+mc/p&"he%<a>=`,
	"ALLOWED_KEY": core + "-allowed",
}

// The credentials of the processes themselves.
const (
	natsPassword  = core + `+na/s&"%<k>=`
	redisPassword = core + "-redis"
)

// leak returns the position of a canary in a text, plain or in base64, or -1.
func leak(text string) int {
	for lead := range 3 {
		b := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", lead) + core))
		if i := strings.Index(text, b[4:len(b)-2]); i >= 0 {
			return i
		}
	}
	return strings.Index(text, core)
}

// synced is a buffer for concurrent writers.
type synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *synced) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Secrets are resolved at the moment of a call: a server that echoes one does not get it into state, events,
// logs, traces, metrics or responses.
func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	echoes, models, allowed, agents := servers(t)
	secrets := t.TempDir()
	for name, value := range canaries {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]string{} // the searched text, by its location
	var logs, wire, monitored synced

	redisURL := strings.Replace(testbed.RedisProcess(t, "--requirepass", redisPassword).URL, "//", "//:"+redisPassword+"@", 1)
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	monitor, err := net.Dial("tcp", options.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	if _, err := fmt.Fprintf(monitor, "AUTH %s\r\nMONITOR\r\n", redisPassword); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(&monitored, monitor) }()

	natsURL := "nats://site:" + url.PathEscape(natsPassword) + "@" + startNATS(t)
	conn, err := natsbus.Connect(natsURL, "secrets")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Subscribe("secrets.>", func(m *nats.Msg) { fmt.Fprintf(&wire, "%s %v %s\n", m.Subject, m.Header, m.Data) }); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	registry := prometheus.NewRegistry()
	spans, meter := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	d, err := deploy.Open(ctx, deploy.Config{NATS: conn, RedisURL: redisURL, Prefix: "secrets", EventFeed: true, Logger: slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})), Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	guard, err := guard.New([]string{"127.0.0.0/8", strings.TrimPrefix(echoes.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	mcpTools := mcptool.New(guard, mcptool.Config{Commands: []string{"*"}, Confinement: testbed.Confinement(t, confine.Config{})})
	defer mcpTools.Close()
	natsParrot(t, conn, "secrets")
	asked := hookParrot(t, conn, "secrets.hook.policy")
	w, err := d.NewWorker(worker.Config{
		ID: "w", SecretsDir: secrets,
		Kinds:  tool.Kinds{toolspec.HTTP: httptool.New(guard), toolspec.A2A: a2atool.New(guard.Client()), toolspec.MCP: mcpTools, toolspec.NATS: natstool.NewKind(conn, "secrets")},
		Hooks:  hook.Kinds{hookspec.NATS: natshook.Kind(conn, "secrets")},
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), TraceContent: true, Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(meter)),
		Providers: map[string]model.Provider{"scripted": scripted.New(), "openai": openai.New(openai.Config{}), "anthropic": anthropic.New(anthropic.Config{}), "gemini": gemini.New(gemini.Config{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.NewGateway(gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	running.Go(func() { _ = g.Serve(ctx, listener) })
	defer running.Wait()
	defer cancel()
	base := "http://" + listener.Addr().String()
	c := api.New(base)

	parrots := mcpParrots(t)

	// These agents use every secret where a server repeats it.
	tool := func(name, path string) string {
		return fmt.Sprintf(`{"name": %q, "kind": "http", "url": "%s/%s?k=secret://QUERY_KEY", "idempotent": true,
			"query": {"key": "secret://QUERY_KEY"}, "headers": {"Authorization": "Bearer secret://HEADER_KEY", "X-Key": "secret://HEADER_KEY"}}`, name, echoes.URL, path)
	}
	tools := strings.Join([]string{
		tool("echo", "fine"), tool("fails", "fails"), tool("elsewhere", "elsewhere"), tool("bytes", "bytes"),
		tool("status", "status"), tool("garbage", "garbage"), tool("picture", "picture"),
		`{"name": "gone", "kind": "http", "url": "http://127.0.0.1:1/?k=secret://QUERY_KEY", "headers": {"X-Key": "secret://HEADER_KEY"}}`,
		fmt.Sprintf(`{"name": "parrot", "kind": "a2a", "url": %q, "token": "secret://A2A_TOKEN"}`, agents.URL),
		fmt.Sprintf(`{"name": "bad", "kind": "a2a", "url": "%s/bad", "token": "secret://A2A_TOKEN"}`, agents.URL),
		fmt.Sprintf(`{"name": "refusing", "kind": "a2a", "url": "%s/status", "token": "secret://A2A_TOKEN"}`, agents.URL),
		fmt.Sprintf(`{"name": "moved", "kind": "a2a", "url": "%s/moved", "token": "secret://A2A_TOKEN"}`, agents.URL),
	}, ", ")
	const ask = `[{"kind": "nats", "subject": "secrets.hook.policy"}]`
	hooks := `{"pre_tool": ` + ask + `, "post_sampling": ` + ask + `, "stop": ` + ask + `, "stop_failure": ` + ask + `}`
	definitions := map[string]string{
		"tools": `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "echo"}, {"name": "fails"}, {"name": "elsewhere"},
			{"name": "bytes"}, {"name": "gone"}, {"name": "status"}, {"name": "garbage"}, {"name": "picture"},
			{"name": "parrot", "arguments": {"task": "x"}}, {"name": "bad", "arguments": {"task": "x"}}, {"name": "refusing", "arguments": {"task": "x"}}, {"name": "moved", "arguments": {"task": "x"}}]}, {"text": "done"}]}, "tools": [` + tools + `], "hooks": ` + hooks + `}`,
		"nats": `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "echo_nats"}, {"name": "echo_nats", "arguments": {"please fail": true}}]}, {"text": "done"}]},
			"tools": [{"name": "echo_nats", "kind": "nats"}]}`,
		"allowed": fmt.Sprintf(`{"model": {"provider": "openai", "name": "m", "base_url": "%s/v1", "api_key": "secret://ALLOWED_KEY"}}`, allowed.URL),
	}
	for _, provider := range []string{"openai", "anthropic", "gemini"} {
		for _, way := range []string{"json", "page", "stream", "said", "cut", "elsewhere", "status", "garbage"} {
			definitions[provider+"-"+way] = fmt.Sprintf(`{"model": {"provider": %q, "name": "m", "base_url": "%s/%s", "api_key": "secret://MODEL_KEY",
				"fallback": [{"provider": "scripted", "responses": [{"text": "instead"}]}]}}`, provider, models.URL, way)
			limits := `{"deadline": "5s"}` // the worker calls most of these models repeatedly
			if way == "json" {
				limits = "{}" // this one rejects the key for good
			}
			definitions[provider+"-"+way+"-alone"] = fmt.Sprintf(`{"model": {"provider": %q, "name": "m", "base_url": "%s/%s", "api_key": "secret://MODEL_KEY"}, "loop": {"type": "react", "max_turns": 2}, "limits": %s, "hooks": %s}`,
				provider, models.URL, way, limits, hooks)
		}
	}
	// A server with a question makes its run wait, so each tool has its own agent.
	for _, server := range []string{"io", "web"} {
		for _, name := range testbed.ParrotTools() {
			if server == "io" || name != "crashes" {
				definitions[server+"-"+name] = fmt.Sprintf(`{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "%s_%s"}]}, {"text": "done"}]}, "tools": [%s]}`, server, name, parrots)
			}
		}
	}
	runs := map[string]string{}
	for name, definition := range definitions {
		if _, err := c.PutAgent(ctx, name, []byte(definition)); err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"agent": %q, "input": "hello", "stream": "deltas"}`, name)
		resp, err := http.Post(base+"/v1/runs", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var run struct {
			ID string `json:"id"`
		}
		err = json.NewDecoder(resp.Body).Decode(&run)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		runs[name] = run.ID
	}
	for name, id := range runs {
		ended, err := c.Wait(ctx, id)
		if err == nil && ended.Status == string(state.Waiting) {
			found[name+" waiting"] = fetch(t, base+"/v1/runs/"+id)
			_, err = c.Cancel(ctx, id, "seen enough")
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The events come first: they end with the run.
		for _, path := range []string{"/events", "", "/messages?view=full", "/messages", "/turns"} {
			found[name+path] = fetch(t, base+"/v1/runs/"+id+path)
		}
		found[name+" definition"] = fetch(t, base+"/v1/agents/"+name)
	}
	for _, where := range []string{"tools/messages", "openai-json-alone", "openai-said/messages", "anthropic-said/messages", "gemini-said/messages", "gemini-cut/messages?view=full",
		"io-says/messages", "io-crashes/messages", "io-refuses/messages", "io-asks waiting", "io-bars waiting", "web-says/messages", "web-fails/messages", "web-asks waiting", "web-bars waiting", "openai-cut/messages?view=full", "anthropic-cut/messages?view=full"} {
		if !strings.Contains(found[where], secret.Redacted) {
			t.Errorf("%s: nothing was repeated, so the test proves nothing: %s", where, found[where])
		}
	}

	cancel()
	running.Wait()
	for _, span := range tracetest.SpanStubsFromReadOnlySpans(spans.Ended()) {
		found["spans"] += fmt.Sprintf("%s %v %v %v %v\n", span.Name, span.Attributes, span.Events, span.Status, span.Links)
	}
	var measured metricdata.ResourceMetrics
	if err := meter.Collect(context.Background(), &measured); err != nil {
		t.Fatal(err)
	}
	found["measured"] = fmt.Sprintf("%+v", measured)
	for point, repeats := range map[string]bool{"pre_tool": false, "post_sampling": true, "stop": false, "stop_failure": true} {
		if found["hook "+point] = asked(point); repeats && !strings.Contains(found["hook "+point], secret.Redacted) {
			t.Errorf("hook %s: nothing was repeated, so the test proves nothing", point)
		}
	}
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	found["metrics"] = recorder.Body.String()
	found["redis"] = dumpRedis(t, options)
	found["streams"] = dumpStreams(t, conn)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	found["logs"], found["commands of Redis"], found["messages of NATS"] = logs.String(), monitored.String(), wire.String()
	for where, text := range found {
		if text == "" {
			t.Errorf("%s: nothing to search", where)
		}
		if i := leak(text); i >= 0 {
			t.Errorf("%s has a secret in it: %s", where, text[max(0, i-200):min(len(text), i+200)])
		}
	}
}
