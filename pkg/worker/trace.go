package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Spans, one a turn, one a model call, one a tool call, nested (F6). Their names
// and attributes are those of the GenAI semantic conventions where these have
// any. What was said is never in them.

const tracerName = "github.com/turnpike-dev/turnpike/pkg/worker"

// traceTurn starts the span of a turn, below the one that the message names.
func (w *Worker) traceTurn(ctx context.Context, parent string, c state.Claim) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
	return w.tracer.Start(ctx, "turn", trace.WithAttributes(
		attribute.String("turnpike.run.id", string(c.State.ID)),
		attribute.Int64("turnpike.run.version", c.Version),
		attribute.Int("turnpike.turn.attempt", c.Attempt),
		attribute.String("gen_ai.agent.name", c.State.Agent),
	))
}

// endTurn ends the span of a turn with what it came to.
func (t *turn) endTurn(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	} else {
		span.SetAttributes(attribute.Int("turnpike.turn", t.s.Turn), attribute.String("turnpike.turn.reason", string(t.s.Transition.Reason)))
	}
	span.End()
}

func (t *turn) traceModel(ctx context.Context, m agent.Model, purpose loop.Purpose) (context.Context, trace.Span) {
	span := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("gen_ai.provider.name", m.Provider),
		attribute.String("gen_ai.request.model", m.Name),
	}
	if purpose != loop.ForTurn {
		span = append(span, attribute.String("turnpike.model.purpose", string(purpose)))
	}
	return t.w.tracer.Start(ctx, "chat "+m.Name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(span...))
}

// endModel ends the span of a model call with its outcome.
func endModel(span trace.Span, ev loop.Event) {
	switch ev := ev.(type) {
	case loop.ModelResponded:
		span.SetAttributes(
			attribute.String("gen_ai.response.model", ev.Response.Model),
			attribute.Int64("gen_ai.usage.input_tokens", ev.Response.Usage.InputTokens),
			attribute.Int64("gen_ai.usage.output_tokens", ev.Response.Usage.OutputTokens),
			attribute.Int("turnpike.model.failed_calls", ev.Failed),
		)
	case loop.ModelFailed:
		span.SetAttributes(attribute.String("error.type", string(ev.Err.Class)))
		span.SetStatus(codes.Error, string(ev.Err.Class))
	case loop.ModelDelayed:
		span.SetAttributes(attribute.String("turnpike.model.delayed", ev.Detail))
	default:
		span.SetStatus(codes.Error, "cut short")
	}
	span.End()
}

func (t *turn) traceTool(ctx context.Context, c state.OpenCall) (context.Context, trace.Span) {
	return t.w.tracer.Start(ctx, "execute_tool "+c.Name, trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", c.Name),
		attribute.String("gen_ai.tool.call.id", c.ID),
	))
}

// endTool ends the span of a tool call. An error is for the model to read, so its
// text may be anything: the span says only that there is one.
func endTool(span trace.Span, o outcome) {
	switch {
	case o.result == nil:
		span.SetStatus(codes.Error, "cut short")
	case o.result.IsError:
		span.SetStatus(codes.Error, "error result")
	}
	span.End()
}
