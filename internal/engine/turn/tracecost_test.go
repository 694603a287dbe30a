package turn

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// spans creates the span of a turn.
func spans(ctx context.Context, t *turn) {
	ctx, of := t.taker.startSpan(ctx, t, bus.Turn{TraceParent: t.s.TraceSpan})
	_ = span.Carried(ctx, t.s.TraceSpan)
	t.span = of
	t.endSpan()
}

func traced(cfg Config) *turn {
	s := &state.State{ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", Agent: "a", TraceSpan: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	return &turn{taker: &Taker{cfg: cfg}, s: s}
}

// Without a tracer, spans cost a worker nothing.
func TestNoTracerCostsNothing(t *testing.T) {
	of := traced(Config{})
	if n := testing.AllocsPerRun(100, func() { spans(t.Context(), of) }); n != 0 {
		t.Errorf("a turn without spans makes %v allocations for them", n)
	}
}

func BenchmarkSpans(b *testing.B) {
	for name, cfg := range map[string]Config{
		"off":       {},
		"unsampled": {Tracer: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())).Tracer("test")},
		"on":        {Tracer: trace.NewTracerProvider().Tracer("test")},
	} {
		b.Run(name, func(b *testing.B) {
			of := traced(cfg)
			b.ReportAllocs()
			for b.Loop() {
				spans(b.Context(), of)
			}
		})
	}
}
