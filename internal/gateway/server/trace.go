package server

import (
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/span"
)

// traceRequest starts the span of a request, below that of its caller. A GET request has no span: clients that poll for
// the end of a run would fill its trace.
func (s *Server) traceRequest(route string, r *http.Request) (*http.Request, trace.Span) {
	method, path, _ := strings.Cut(route, " ")
	if s.cfg.Tracer == nil || path == "" || method == http.MethodGet {
		return r, noop.Span{}
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	ctx := span.Under(r.Context(), r.Header.Get(span.Header))
	ctx, request := s.cfg.Tracer.Start(ctx, route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		span.HTTPMethod.String(method), span.HTTPRoute.String(path), span.URLPath.String(r.URL.EscapedPath()), span.URLScheme.String(scheme),
	))
	return r.WithContext(ctx), request
}

// endRequest ends the span of a request. Only a status of 500 or more marks the span as failed.
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
