package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func problem(status int, code, format string, args ...any) *api.Problem {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = clip(text, maxEcho)
		}
	}
	most := maxDetail
	if code == api.CodeInvalidAgent {
		most = maxMistakes
	}
	return &api.Problem{
		Type: "https://turnpike.dev/problems/" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: clip(fmt.Sprintf(format, args...), most),
	}
}

// How many bytes of a caller's own text a problem repeats, how many it has in all, and how
// many where it names each mistake of a definition.
const (
	maxEcho     = 200
	maxDetail   = 1000
	maxMistakes = 16 << 10
)

// clip cuts out the middle of a text that is too long: what is wrong may stand at its end.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most*3/4], "") + "…" + strings.ToValidUTF8(text[len(text)-most/4:], "")
}

// busError marks a failure of the bus, which looks like any other.
type busError struct{ err error }

func (e *busError) Error() string { return e.err.Error() }
func (e *busError) Unwrap() error { return e.err }

// retryAfter is what a client is told to wait while a dependency is away.
const retryAfter = 2

// problemOf is the one place where errors become answers.
func problemOf(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*state.NotWaitingError](err); ok {
		if e.Status.Terminal() {
			return problem(http.StatusConflict, api.CodeRunFinished, "%v", e)
		}
		return problem(http.StatusConflict, api.CodeNotWaiting, "%v", e)
	}
	if errors.Is(err, restore.ErrWaiting) {
		return problem(http.StatusServiceUnavailable, api.CodeWaitingRestore, "%v", err)
	}
	if errors.Is(err, restore.ErrNotWaiting) {
		return problem(http.StatusConflict, api.CodeNoRestore, "%v", err)
	}
	if e, ok := errors.AsType[*state.TerminalError](err); ok {
		return problem(http.StatusConflict, api.CodeRunFinished, "%v", e)
	}
	if e, ok := errors.AsType[*state.TooLargeError](err); ok {
		return problem(http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge, "%v", e)
	}
	if e, ok := errors.AsType[*state.InboxFullError](err); ok {
		return problem(http.StatusRequestEntityTooLarge, api.CodeInboxFull, "%v", e)
	}
	if e, ok := errors.AsType[*state.NotEndedError](err); ok {
		return problem(http.StatusConflict, api.CodeRunInFlight, "%v: runs are deleted when they and all below them have ended; a cancellation takes a moment, so try again", e)
	}
	if e, ok := errors.AsType[*retention.NotCreatedError](err); ok {
		return problem(http.StatusConflict, api.CodeRunInFlight, "%v: runs are deleted when they and all below them have ended, so try again in a minute", e)
	}
	if errors.Is(err, state.ErrDeleting) {
		return problem(http.StatusConflict, api.CodeRunBeingDeleted, "%v: try again, and the message is taken if the deletion was refused", err)
	}
	if errors.Is(err, retention.ErrChild) {
		return problem(http.StatusConflict, api.CodeRunInFlight, "%v: delete the run at the top of the tree", err)
	}
	unavailable := func(code, what string) *api.Problem {
		p := problem(http.StatusServiceUnavailable, code, "%s does not answer; whether the request took effect is unknown: try again, a submission or a signal with the same Idempotency-Key", what)
		p.RetryAfter = retryAfter
		return p
	}
	if _, ok := errors.AsType[*busError](err); ok || errors.Is(err, bus.ErrClosed) {
		return unavailable(api.CodeBusUnavailable, "the bus")
	}
	if _, ok := errors.AsType[*access.ProviderError](err); ok {
		p := problem(http.StatusServiceUnavailable, api.CodeProviderUnavailable, "the OpenID provider does not answer as it should, so nobody knows who you are: try again; the gateway's log says more")
		p.RetryAfter = retryAfter
		return p
	}
	if e, ok := errors.AsType[*state.UnconfirmedError](err); ok {
		p := problem(http.StatusServiceUnavailable, api.CodeStoreUnavailable, "%v. Try again, a submission with the same Idempotency-Key", e)
		p.RetryAfter = retryAfter
		return p
	}
	switch {
	case errors.Is(err, state.ErrFormat):
		p := problem(http.StatusServiceUnavailable, api.CodeNewerBuild, "%v: nothing was changed; another gateway may know it, so try again", err)
		p.RetryAfter = retryAfter
		return p
	case errors.Is(err, state.ErrNotFound):
		return problem(http.StatusNotFound, api.CodeRunNotFound, "%v", err)
	case errors.Is(err, state.ErrIdempotencyConflict):
		return problem(http.StatusConflict, api.CodeIdempotencyConflict, "%v: use a new key for another request", err)
	default:
		return unavailable(api.CodeStoreUnavailable, "the store")
	}
}

// fail answers with what went wrong.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client is gone
	}
	p := *problemOf(err)
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
	for most := maxDetail; len(encode(p)) > maxProblem/2; most /= 2 {
		p.Detail = clip(p.Detail, most)
	}
	left := func(n int) api.Fault { return api.Fault{Detail: fmt.Sprintf("and at least %d more", n)} }
	used := len(encode(p)) + len(`,"errors":[]`) + len(encode(left(len(faults)))) + len("\n")
	for i, f := range faults {
		f.At, f.Detail = clip(f.At, maxEcho), clip(f.Detail, maxEcho)
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

func runNotFound(id state.RunID) error { return fmt.Errorf("run %s: %w", id, state.ErrNotFound) }

func notFound(code, format string, args ...any) error {
	return problem(http.StatusNotFound, code, "%s", fmt.Sprintf(format, args...))
}
