package service

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// traceRun adds the run to the span of a request, with a link to the run's trace: a signal or a cancellation is part of
// its caller's trace.
func traceRun(ctx context.Context, st state.State) {
	request := trace.SpanFromContext(ctx)
	if !request.IsRecording() {
		return
	}
	request.SetAttributes(span.RunID.String(string(st.ID)))
	for _, link := range span.Links(ctx, st.TraceSpan) {
		request.AddLink(link)
	}
}

// traceSubmit starts the span of the submission of a run, below the span of the request or, for a
// message of the bus, below the span that parent names. The new span becomes the permanent parent
// of the run's spans. Without a tracer, their parent is the span that the argument parent names.
func (k *core) traceSubmit(ctx context.Context, run *state.State, parent string) (context.Context, trace.Span) {
	if k.tracer == nil {
		run.TraceSpan = span.Clean(parent)
		return ctx, noop.Span{}
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = span.Under(ctx, parent)
	}
	ctx, submit := span.Submit(ctx, k.tracer, run.Agent)
	run.TraceSpan = span.Parent(ctx)
	return ctx, submit
}

// traceBatchRun is traceSubmit for a run of a batch. Each run has its own trace, with a link to the request, because
// a thousand runs in one trace would be unreadable. If the request is not sampled, its runs are in its trace, and are
// not sampled either.
func (k *core) traceBatchRun(ctx context.Context, run *state.State, parent string) (context.Context, trace.Span) {
	request := trace.SpanContextFromContext(ctx)
	if k.tracer == nil || !request.IsSampled() {
		return k.traceSubmit(ctx, run, parent)
	}
	ctx, submit := span.Submit(ctx, k.tracer, run.Agent, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: request}))
	run.TraceSpan = span.Parent(ctx)
	return ctx, submit
}

// endSubmit ends the span of a submission. st is the stored run; it differs from run if the submission was a
// repetition.
func endSubmit(submit trace.Span, run, st state.State, err error) {
	switch {
	case !submit.IsRecording():
	case err != nil:
		span.Fail(submit, ProblemOf(err).Code)
	default:
		submit.SetAttributes(span.Run(st)...)
		if st.ID != run.ID {
			submit.SetAttributes(span.RunExisting.Bool(true))
		}
	}
	submit.End()
}
