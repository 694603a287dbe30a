package telemetry_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/telemetry"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

const (
	endpoint, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	exporter, content  = "OTEL_METRICS_EXPORTER", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
)

func TestFromEnv(t *testing.T) {
	t.Parallel()
	web := telemetry.Settings{Protocol: "http/protobuf"}
	tests := []struct {
		env  map[string]string
		want telemetry.Settings
		err  string
	}{
		{nil, telemetry.Settings{}, ""},
		{map[string]string{content: "true"}, telemetry.Settings{}, ""},
		{map[string]string{endpoint: "http://c:4318"}, web, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/v1/traces"}, web, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, web, ""},
		{map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, telemetry.Settings{}, ""},
		{map[string]string{endpoint: "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, telemetry.Settings{}, ""},
		{map[string]string{endpoint: "http://c:4317", protocol: "grpc"}, telemetry.Settings{Protocol: "grpc"}, ""},
		{map[string]string{endpoint: "http://c", protocol: "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, web, ""},
		{map[string]string{endpoint: "http://c:4318", content: "True"}, telemetry.Settings{Protocol: "http/protobuf", Content: true}, ""},
		{map[string]string{endpoint: "http://c:4318", content: "SPAN_ONLY"}, telemetry.Settings{Protocol: "http/protobuf", Content: true}, ""},
		{map[string]string{endpoint: "http://c:4318", content: "EVENT_ONLY"}, web, ""},

		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, telemetry.Settings{}, "OTEL_TRACES_EXPORTER"},
		{map[string]string{endpoint: "http://c:4318", protocol: "udp"}, telemetry.Settings{}, protocol},
		{map[string]string{endpoint: "c:4317", protocol: "grpc"}, telemetry.Settings{}, endpoint},
		{map[string]string{endpoint: "user:hunter2@c:4318"}, telemetry.Settings{}, endpoint},
		{map[string]string{endpoint: "http://c:4318", content: "yes, please"}, telemetry.Settings{}, content},
	}
	for _, test := range tests {
		got, err := telemetry.FromEnv(func(name string) string { return test.env[name] })
		if got != test.want || (err != nil) != (test.err != "") || err != nil && (!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("FromEnv(%v) = %+v, %v; want %+v and %q", test.env, got, err, test.want, test.err)
		}
	}
}

// clean removes the test environment's own settings.
func clean(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

// Without an endpoint nothing is started: no exporter, no goroutine.
func TestOff(t *testing.T) {
	clean(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	e, err := telemetry.Start(t.Context(), "s", slog.New(slog.DiscardHandler))
	if e != nil || err != nil {
		t.Errorf("Start = %v, %v", e, err)
	}
}

func TestExport(t *testing.T) {
	for _, kind := range []string{"http/protobuf", "grpc"} {
		t.Run(kind, func(t *testing.T) {
			clean(t)
			c := testbed.OTLP(t)
			t.Setenv(endpoint, c.HTTP)
			if kind == "grpc" {
				t.Setenv(endpoint, c.GRPC)
			}
			t.Setenv(protocol, kind)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine")
			e, err := telemetry.Start(t.Context(), "s", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			_, span := e.Provider().Tracer("test").Start(t.Context(), "one")
			span.End()
			e.Close()
			if spans := c.Spans(); len(spans) != 1 || spans[0].Name != "one" || spans[0].Service != "mine" {
				t.Errorf("%d spans: %v", len(spans), spans)
			}
		})
	}
}

// Spans can be exported in JSON, for collectors that accept nothing else.
func TestExportInJSON(t *testing.T) {
	clean(t)
	got := make(chan string, 1)
	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
	}))
	t.Cleanup(c.Close)
	t.Setenv(endpoint, c.URL)
	t.Setenv(protocol, "http/json")
	e, err := telemetry.Start(t.Context(), "s", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Provider().Tracer("test").Start(t.Context(), "one")
	span.End()
	e.Close()
	if sent := <-got; !strings.HasPrefix(sent, "/v1/traces application/json {") || !strings.Contains(sent, `"name":"one"`) {
		t.Errorf("sent: %s", sent)
	}
}

// Requests with the messages of runs are small, unless the operator sets the number of spans in a request.
func TestBatches(t *testing.T) {
	const variable = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
	for name, test := range map[string]struct {
		env  map[string]string
		most int
	}{
		"without content":  {nil, 60},
		"with content":     {map[string]string{content: "true"}, 24},
		"content, set":     {map[string]string{content: "true", variable: "30"}, 30},
		"content, not set": {map[string]string{content: "true", variable: ""}, 24},
		"no content, set":  {map[string]string{variable: "7"}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			var mu sync.Mutex
			var spans []int // in each request
			c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				spans = append(spans, strings.Count(string(body), `"name":"one"`))
				w.Header().Set("Content-Type", "application/json")
			}))
			t.Cleanup(c.Close)
			t.Setenv(endpoint, c.URL)
			t.Setenv(protocol, "http/json")
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			e, err := telemetry.Start(t.Context(), "s", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			for range 60 {
				_, span := e.Provider().Tracer("test").Start(t.Context(), "one")
				span.End()
			}
			e.Close()
			mu.Lock()
			defer mu.Unlock()
			sum := 0
			for _, n := range spans {
				sum += n
			}
			if sum != 60 || slices.Max(spans) != test.most {
				t.Errorf("requests with %v spans, want 60 and at most %d at once", spans, test.most)
			}
		})
	}
}

// Metrics always go to the registry, and to a collector if one is configured and enabled.
func TestMeters(t *testing.T) {
	for name, test := range map[string]struct {
		env  func(c *testbed.Collector) map[string]string
		want []string
		err  string
	}{
		"http": {func(c *testbed.Collector) map[string]string { return map[string]string{endpoint: c.HTTP} }, []string{"one"}, ""},
		"grpc": {func(c *testbed.Collector) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": c.GRPC, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"}
		}, []string{"one"}, ""},
		"nowhere": {func(*testbed.Collector) map[string]string { return nil }, nil, ""},
		"none": {func(c *testbed.Collector) map[string]string {
			return map[string]string{endpoint: c.HTTP, exporter: "none"}
		}, nil, ""},
		"scraped only": {func(c *testbed.Collector) map[string]string {
			return map[string]string{endpoint: c.HTTP, exporter: "prometheus"}
		}, nil, ""},
		"disabled": {func(c *testbed.Collector) map[string]string {
			return map[string]string{endpoint: c.HTTP, "OTEL_SDK_DISABLED": "true"}
		}, nil, ""},
		"another": {func(*testbed.Collector) map[string]string { return map[string]string{exporter: "statsd"} }, nil, exporter},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			c := testbed.OTLP(t)
			for name, value := range test.env(c) {
				t.Setenv(name, value)
			}
			registry := prometheus.NewRegistry()
			m, err := telemetry.StartMeters(t.Context(), "s", registry, slog.New(slog.DiscardHandler))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("StartMeters = %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			counter, err := m.Provider().Meter("test").Int64Counter("one")
			if err != nil {
				t.Fatal(err)
			}
			counter.Add(t.Context(), 1)
			if families, err := registry.Gather(); err != nil || len(families) != 1 || families[0].GetName() != "one_total" {
				t.Errorf("registry: %v, %v", families, err)
			}
			m.Close()
			if got := c.Metrics(); !slices.Equal(got, test.want) {
				t.Errorf("sent: %v, want %v", got, test.want)
			}
		})
	}
}

// An unresponsive collector delays the process's end by no more than the bound.
func TestCloseIsBounded(t *testing.T) {
	clean(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	t.Setenv(endpoint, "http://"+silent.Addr().String())
	e, err := telemetry.Start(t.Context(), "s", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Provider().Tracer("test").Start(t.Context(), "one")
	span.End()
	closed := make(chan struct{})
	go func() { e.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(2 * time.Minute):
		t.Fatal("Close still waits")
	}
}
