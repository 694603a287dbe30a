package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Problem returns a problem of the HTTP request itself, with a formatted detail, which it shortens. Package service
// makes the problems of what a request asks for.
func Problem(status int, code, format string, args ...any) *api.Problem {
	return service.Problem(service.Kind{Status: status, Title: http.StatusText(status)}, code, format, args...)
}

// Invalid returns a problem with status 400 and the code invalid_request.
func Invalid(format string, args ...any) error {
	return Problem(http.StatusBadRequest, api.CodeInvalidRequest, format, args...)
}

// Unauthenticated returns a problem with status 401.
func Unauthenticated(detail string) error {
	return Problem(http.StatusUnauthorized, api.CodeUnauthenticated, "%s", detail)
}

// Busy returns a problem that is temporary. It asks the client to retry after service.RetryAfter.
func Busy(status int, code, format string, args ...any) *api.Problem {
	p := Problem(status, code, format, args...)
	p.RetryAfter = service.RetryAfter
	return p
}

// Failures writes problems as responses, and logs those with a status of 500 or more.
type Failures struct {
	log *slog.Logger
}

// NewFailures returns a Failures that writes to log.
func NewFailures(log *slog.Logger) *Failures { return &Failures{log: log} }

// Write responds with the problem of err. It writes nothing if the client has disconnected. Nothing may have been
// written before.
func (f *Failures) Write(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	p := *service.ProblemOf(err)
	f.Head(w, r, &p, err)
	if b, ok := r.Body.(*body); ok {
		b.abandon(w.Header())
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(EncodeProblem(p)) // the client may have disconnected
}

// Head sets p.RequestID, and the headers of a response with p in any format. It logs err if the status of p is 500 or
// more.
func (f *Failures) Head(w http.ResponseWriter, r *http.Request, p *api.Problem, err error) {
	p.RequestID = w.Header().Get(HeaderRequestID)
	if p.Status >= http.StatusInternalServerError {
		f.log.Warn("request failed", "error", err, "hint", "find the code in docs/reference/errors.md", "path", r.URL.Path, "code", p.Code, "request_id", p.RequestID)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="turnpike"`)
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
}

// maxProblem is the maximum size of an encoded problem, in bytes.
const maxProblem = 4 << 10

// EncodeProblem returns a problem as JSON of at most 4 KiB (maxProblem). If it is longer, EncodeProblem shortens the
// detail and each error. If these are still too many, as the mistakes of a definition may be, it replaces the last ones
// with one that states their number.
func EncodeProblem(p api.Problem) []byte {
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
	// Escapes make a text up to six times as long, so compare the encoded size.
	for most := service.MaxDetail; len(encode(p)) > maxProblem/2; most /= 2 {
		p.Detail = service.Clip(p.Detail, most)
	}
	left := func(n int) api.Fault {
		return api.Fault{Detail: fmt.Sprintf("and at least %d more: correct these first", n)}
	}
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
