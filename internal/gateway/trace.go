package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const tracerName = "github.com/turnpike-dev/turnpike/internal/gateway"

// traceRequest starts the span of a request that changes something, below that of
// its caller. Requests that only read have none: whoever polls for the end of a run
// would bury it.
func (g *Gateway) traceRequest(route string, r *http.Request) (*http.Request, trace.Span) {
	method, path, _ := strings.Cut(route, " ")
	if g.tracer == nil || path == "" || method == http.MethodGet {
		return r, noop.Span{}
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	ctx := span.Under(r.Context(), r.Header.Get(span.Header))
	ctx, request := g.tracer.Start(ctx, route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		span.HTTPMethod.String(method), span.HTTPRoute.String(path), span.URLPath.String(r.URL.EscapedPath()), span.URLScheme.String(scheme),
	))
	return r.WithContext(ctx), request
}

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

// endRequest ends the span of a request. That a caller is at fault is no failure of
// the gateway.
func endRequest(request trace.Span, status int) {
	if request.IsRecording() {
		status = max(status, http.StatusOK)
		request.SetAttributes(span.HTTPStatus.Int(status))
		if status >= http.StatusInternalServerError {
			span.Fail(request, strconv.Itoa(status))
		}
	}
	request.End()
}

// traceSubmit starts the span of the submission of a run and gives the run its place
// in the trace, for good: below the request, or for a message of the bus below the
// span that trace names. Without a tracer the run stands below its submitter.
func (g *Gateway) traceSubmit(ctx context.Context, run *state.State, parent string) (context.Context, trace.Span) {
	if g.tracer == nil {
		run.TraceSpan = span.Clean(parent)
		return ctx, noop.Span{}
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = span.Under(ctx, parent)
	}
	ctx, submit := span.Submit(ctx, g.tracer, run.Agent)
	run.TraceSpan = span.Parent(ctx)
	return ctx, submit
}

// traceBatchRun is traceSubmit for a run of a batch. Each has a trace of its own,
// with a link to the request: a thousand runs in one are of no use. Whether they are
// recorded is decided for the batch.
func (g *Gateway) traceBatchRun(ctx context.Context, run *state.State, parent string) (context.Context, trace.Span) {
	request := trace.SpanContextFromContext(ctx)
	if g.tracer == nil || !request.IsSampled() {
		return g.traceSubmit(ctx, run, parent)
	}
	ctx, submit := span.Submit(ctx, g.tracer, run.Agent, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: request}))
	run.TraceSpan = span.Parent(ctx)
	return ctx, submit
}

// endSubmit ends the span of a submission. st is the run that it came to: another
// one than run if it was submitted before.
func endSubmit(submit trace.Span, run, st state.State, err error) {
	switch {
	case !submit.IsRecording():
	case err != nil:
		span.Fail(submit, problemOf(err).Code)
	default:
		submit.SetAttributes(span.Run(st)...)
		if st.ID != run.ID {
			submit.SetAttributes(span.RunExisting.Bool(true))
		}
	}
	submit.End()
}
