package effect

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// make creates the spans of a model call and a tool call.
func (sp spans) make(ctx context.Context, t *Turn, ev loop.Event, result outcome) {
	in, call := sp.model(ctx, t, &agent.Model{Provider: "openai", Name: "gpt"}, &loop.CallModel{Purpose: loop.ForTurn})
	traceFailure(in, &model.Error{}, 1)
	sp.endModel(call, ev)
	_, call = sp.tool(ctx, t, &agent.Agent{}, state.OpenCall{ID: "c1", Name: "add"})
	sp.endTool(call, result)
}

func traced() (*Turn, loop.Event, outcome) {
	s := state.State{ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", Agent: "a"}
	return &Turn{Run: &s}, loop.ModelResponded{}, outcome{result: &loop.ToolResult{}}
}

// Without a tracer, spans cost a worker nothing.
func TestNoTracerCostsNothing(t *testing.T) {
	of, ev, result := traced()
	if n := testing.AllocsPerRun(100, func() { spans{}.make(t.Context(), of, ev, result) }); n != 0 {
		t.Errorf("effects without spans make %v allocations for them", n)
	}
}

func BenchmarkSpans(b *testing.B) {
	for name, provider := range map[string]*trace.TracerProvider{
		"off":       nil,
		"unsampled": trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())),
		"on":        trace.NewTracerProvider(),
	} {
		b.Run(name, func(b *testing.B) {
			of, ev, result := traced()
			sp := spans{}
			if provider != nil {
				sp.tracer = provider.Tracer("test")
			}
			b.ReportAllocs()
			for b.Loop() {
				sp.make(b.Context(), of, ev, result)
			}
		})
	}
}
