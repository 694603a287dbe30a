package service

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// traceRun says in the span of a request which run it is about, and links it with the
// run's trace: a signal or a cancel is in that of its caller.
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

// traceSubmit starts the span of the submission of a run and gives the run its place
// in the trace, for good: below the request, or for a message of the bus below the
// span that trace names. Without a tracer the run stands below its submitter.
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

// traceBatchRun is traceSubmit for a run of a batch. Each has a trace of its own,
// with a link to the request: a thousand runs in one are of no use. Whether they are
// recorded is decided for the batch.
func (k *core) traceBatchRun(ctx context.Context, run *state.State, parent string) (context.Context, trace.Span) {
	request := trace.SpanContextFromContext(ctx)
	if k.tracer == nil || !request.IsSampled() {
		return k.traceSubmit(ctx, run, parent)
	}
	ctx, submit := span.Submit(ctx, k.tracer, run.Agent, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: request}))
	run.TraceSpan = span.Parent(ctx)
	return ctx, submit
}

// endSubmit ends the span of a submission. st is the stored run, which differs from
// run if the same submission came before.
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
