package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// problem returns a problem of a request as such; the service makes those of what it asks for.
func problem(status int, code, format string, args ...any) *api.Problem {
	return service.Problem(service.Kind{Status: status, Title: http.StatusText(status)}, code, format, args...)
}

func invalid(format string, args ...any) error {
	return problem(http.StatusBadRequest, api.CodeInvalidRequest, format, args...)
}

// fail answers with what went wrong.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client is gone
	}
	p := *service.ProblemOf(err)
	g.failHead(w, r, &p, err)
	if b, ok := r.Body.(*intakeBody); ok {
		b.abandon(w.Header())
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(encodeProblem(p)) // the reader may be gone
}

// maxProblem bounds a problem as it is sent, in bytes.
const maxProblem = 4 << 10

// encodeProblem returns a problem as JSON of at most maxProblem bytes. It shortens the detail and
// leaves out the last of its errors, whose number then stands in their place: a definition may have more mistakes than errors lists.
func encodeProblem(p api.Problem) []byte {
	encode := func(v any) []byte {
		b, _ := json.Marshal(v) //nolint:errchkjson // strings and numbers encode
		return b
	}
	whole := encode(p)
	if len(whole) < maxProblem {
		return append(whole, '\n')
	}
	faults := p.Errors
	p.Errors = nil
	// Escapes make a text up to six times as long, so what counts is the encoded size.
	for most := service.MaxDetail; len(encode(p)) > maxProblem/2; most /= 2 {
		p.Detail = service.Clip(p.Detail, most)
	}
	left := func(n int) api.Fault { return api.Fault{Detail: fmt.Sprintf("and at least %d more", n)} }
	used := len(encode(p)) + len(`,"errors":[]`) + len(encode(left(len(faults)))) + len("\n")
	for i, f := range faults {
		f.At, f.Detail = service.Clip(f.At, service.MaxEcho), service.Clip(f.Detail, service.MaxEcho)
		if used += len(encode(f)) + len(","); used > maxProblem {
			p.Errors = append(p.Errors, left(len(faults)-i))
			break
		}
		p.Errors = append(p.Errors, f)
	}
	return append(encode(p), '\n')
}

// failHead logs what went wrong, and sets the headers that its answer has in any form.
func (g *Gateway) failHead(w http.ResponseWriter, r *http.Request, p *api.Problem, err error) {
	p.RequestID = w.Header().Get(headerRequestID)
	if p.Status >= http.StatusInternalServerError {
		g.log.Warn("request failed", "error", err, "hint", "look up the code in docs/reference/errors.md", "path", r.URL.Path, "code", p.Code, "request_id", p.RequestID)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="turnpike"`)
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
}
