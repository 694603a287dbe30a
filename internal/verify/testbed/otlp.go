package testbed

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is an exported span, with the name of the service that exported it.
type Span struct {
	*otlp.Span

	Service string
}

// Attr returns an attribute as text, lists joined by commas; "" if it is missing.
func (s Span) Attr(name string) string {
	for _, kv := range s.Attributes {
		if kv.Key == name {
			return text(kv.Value)
		}
	}
	return ""
}

func text(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_ArrayValue:
		all := make([]string, len(v.ArrayValue.Values))
		for i, e := range v.ArrayValue.Values {
			all[i] = text(e)
		}
		return strings.Join(all, ",")
	case *common.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *common.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	default:
		return ""
	}
}

// Collector is an OpenTelemetry collector that stores what it receives, over HTTP and gRPC.
type Collector struct {
	collector.UnimplementedTraceServiceServer

	HTTP, GRPC string // endpoints, as OTEL_EXPORTER_OTLP_ENDPOINT wants them

	mu    sync.Mutex
	spans []Span
	names map[string]bool // of metrics
	raw   []byte
}

// meters receives the metrics of a collector.
type meters struct {
	metrics.UnimplementedMetricsServiceServer

	c *Collector
}

// Export implements the collector's service.
func (m meters) Export(_ context.Context, r *metrics.ExportMetricsServiceRequest) (*metrics.ExportMetricsServiceResponse, error) {
	raw, err := proto.Marshal(r)
	if err != nil {
		return nil, err
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.raw = append(m.c.raw, raw...)
	for _, of := range r.ResourceMetrics {
		for _, scope := range of.ScopeMetrics {
			for _, one := range scope.Metrics {
				m.c.names[one.Name] = true
			}
		}
	}
	return &metrics.ExportMetricsServiceResponse{}, nil
}

// OTLP starts a collector that ends with the test.
func OTLP(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{names: map[string]bool{}}
	web := httptest.NewServer(http.HandlerFunc(c.post))
	tb.Cleanup(web.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	metrics.RegisterMetricsServiceServer(server, meters{c: c})
	go func() { _ = server.Serve(listener) }() // ends with Stop
	tb.Cleanup(server.Stop)
	c.HTTP, c.GRPC = web.URL, "http://"+listener.Addr().String()
	return c
}

// Export implements the collector's service.
func (c *Collector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	raw, err := proto.Marshal(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, raw...)
	for _, of := range r.ResourceSpans {
		service := ""
		for _, kv := range of.Resource.GetAttributes() {
			if kv.Key == "service.name" {
				service = text(kv.Value)
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{s, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *Collector) post(w http.ResponseWriter, r *http.Request) {
	var from io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		from = z
	}
	body, err := io.ReadAll(from)
	switch {
	case err != nil:
	case r.URL.Path == "/v1/traces":
		var request collector.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &request); err == nil {
			_, err = c.Export(r.Context(), &request)
		}
	case r.URL.Path == "/v1/metrics":
		var request metrics.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &request); err == nil {
			_, err = meters{c: c}.Export(r.Context(), &request)
		}
	default:
		err = errors.New("want protobuf at /v1/traces or /v1/metrics")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Spans returns the spans received so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Metrics returns the names of the metrics that have arrived, sorted.
func (c *Collector) Metrics() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names))
}

// Raw returns everything that has arrived, as bytes.
func (c *Collector) Raw() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.raw)
}
