package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// telemetry collects spans and metrics.
type telemetry struct {
	spans   *tracetest.SpanRecorder
	metrics *sdkmetric.ManualReader
	tracer  *trace.TracerProvider
	meter   *sdkmetric.MeterProvider
}

func newTelemetry() telemetry {
	spans, metrics := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	return telemetry{spans, metrics, trace.NewTracerProvider(trace.WithSpanProcessor(spans)), sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))}
}

// has says what was collected from the calls of models.
func (s telemetry) has(t *testing.T) (spans, content, metrics bool) {
	t.Helper()
	for _, span := range s.spans.Ended() {
		attributes := attribute.NewSet(span.Attributes()...)
		spans = spans || attributes.HasValue("gen_ai.provider.name")
		content = content || attributes.HasValue("gen_ai.output.messages")
	}
	var measured metricdata.ResourceMetrics
	if err := s.metrics.Collect(context.Background(), &measured); err != nil {
		t.Fatal(err)
	}
	return spans, content, len(measured.ScopeMetrics) > 0
}

// A worker without a tracer uses that of its deployment, with content if that is configured there; one with its own
// tracer decides about content itself. The same applies to the meter.
func TestTelemetryOfParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, own, ownContent bool }{
		"of the deployment":               {},
		"of the deployment, with content": {content: true},
		"its own":                         {content: true, own: true},
		"its own, with content":           {own: true, ownContent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			used, unused := newTelemetry(), newTelemetry()
			cfg := durable(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "seat 12A"}, nil })
			of, content := used, c.content
			if c.own {
				cfg.Tracer, cfg.TraceContent, cfg.Meter = used.tracer, c.ownContent, used.meter
				of, content = unused, c.ownContent
			}
			d, err := deploy.Open(t.Context(), deploy.Config{
				Store: memstore.New(memstore.Config{}), Bus: membus.New(), Tracer: of.tracer, TraceContent: c.content, Meter: of.meter,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			client := serve(t, d)
			run := submit(t, client)
			work(t, d, cfg, client, run)
			if spans, has, metrics := used.has(t); !spans || has != content || !metrics {
				t.Errorf("spans: %t, content: %t, metrics: %t; want true, %t, true", spans, has, metrics, content)
			}
			if spans, _, metrics := unused.has(t); spans || metrics {
				t.Errorf("the other tracer has spans: %t, the other meter has metrics: %t", spans, metrics)
			}
		})
	}
}

// A deployment with a larger maximum of max_result accepts a tool that uses it, and calls the tool with that limit; a
// worker may have its own maximum.
func TestMaxResultOfParts(t *testing.T) {
	t.Parallel()
	const limit = 8 << 20
	for own, want := range map[int]int{0: limit, 5 << 20: 5 << 20} {
		d, err := deploy.Open(t.Context(), deploy.Config{Store: memstore.New(memstore.Config{}), Bus: membus.New(), MaxResult: 2 * limit})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		client := serve(t, d)
		definition := fmt.Sprintf(`{"tools":[{"name":"book","max_result":%d}],"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"book"}]},{"text":"done"}]}}`, limit)
		if _, err := client.PutAgent(t.Context(), "booker", []byte(definition)); err != nil {
			t.Fatal(err)
		}
		run, err := client.Submit(t.Context(), api.SubmitRequest{Agent: "booker", Input: json.RawMessage(`"Book."`)}, "")
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		cfg := durable(func(_ context.Context, c tool.Call) (tool.Result, error) {
			got = c.MaxResult
			return tool.Result{}, nil
		})
		cfg.MaxResult = own
		work(t, d, cfg, client, run.ID)
		if got != want {
			t.Errorf("a worker with maximum %d calls the tool with limit %d, want %d", own, got, want)
		}
	}
}

// work runs a worker until the run has ended.
func work(t *testing.T, d *deploy.Deployment, cfg worker.Config, c *api.Client, run string) {
	t.Helper()
	w, err := d.NewWorker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	_, err = c.Wait(t.Context(), run)
	stop()
	if stopped := <-ended; err != nil || stopped != nil {
		t.Fatal(err, stopped)
	}
}
