package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Kind is a class of problems: the HTTP status and the title that clients see.
type Kind struct {
	Status int
	Title  string
}

var (
	badRequest    = Kind{400, "Bad Request"}
	denied        = Kind{403, "Forbidden"}
	missing       = Kind{404, "Not Found"}
	conflict      = Kind{409, "Conflict"}
	changed       = Kind{412, "Precondition Failed"}
	tooLarge      = Kind{413, "Request Entity Too Large"}
	unprocessable = Kind{422, "Unprocessable Entity"}
	internal      = Kind{500, "Internal Server Error"}
	unavailable   = Kind{503, "Service Unavailable"}
)

// Problem returns a problem with a code and a formatted detail. It shortens the detail, and the strings among args.
func Problem(kind Kind, code, format string, args ...any) *api.Problem {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = Clip(text, MaxEcho)
		}
	}
	most := MaxDetail
	if code == api.CodeInvalidAgent {
		most = maxMistakes
	}
	return &api.Problem{
		Type: "https://turnpike.dev/problems/" + code, Title: kind.Title, Status: kind.Status, Code: code, Detail: Clip(fmt.Sprintf(format, args...), most),
	}
}

// problem is the same as Problem.
func problem(kind Kind, code, format string, args ...any) *api.Problem {
	return Problem(kind, code, format, args...)
}

// Unavailable reports whether a problem is temporary, so that a repetition of the request may succeed.
func Unavailable(p *api.Problem) bool {
	return p.Status >= internal.Status
}

// Limits in bytes: for the caller's own text in a problem, for a whole problem, and for one that
// lists the mistakes of a definition.
const (
	MaxEcho     = 200
	MaxDetail   = 1000
	maxMistakes = 16 << 10
)

// Clip shortens text to about most bytes by cutting out its middle: an error is often explained at
// the end.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most*3/4], "") + "…" + strings.ToValidUTF8(text[len(text)-most/4:], "")
}

// BusError marks an error as a failure of the bus.
type BusError struct{ Err error }

func (e *BusError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the bus.
func (e *BusError) Unwrap() error { return e.Err }

// RetryAfter is the time that clients should wait before they repeat a request while a dependency is unavailable, in
// seconds.
const RetryAfter = 2

// ProblemOf returns the problem that a caller sees for an error. It returns a problem in err unchanged. It treats an
// error that it does not know as a failure of the store, with the code store_unavailable and without the text of the
// error.
func ProblemOf(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*state.NotWaitingError](err); ok {
		if e.Status.Terminal() {
			return problem(conflict, api.CodeRunFinished, "run %s has ended (%s) and does not wait for %q: send the run a message to continue it, or submit a new run", e.ID, e.Status, e.Name)
		}
		return problem(conflict, api.CodeNotWaiting, "run %s is %s and does not wait for %q: answer only what the field waiting of GET /v1/runs/%[1]s lists", e.ID, e.Status, e.Name)
	}
	if e, ok := errors.AsType[*state.BusyError](err); ok {
		return problem(conflict, api.CodeRunBusy, "run %s is %s, so it refuses a message with the mode reject: send the message when the run waits or has ended, or without this mode", e.ID, e.Status)
	}
	if errors.Is(err, restore.ErrWaiting) {
		p := problem(unavailable, api.CodeWaitingRestore, "%v", err)
		p.RetryAfter = RetryAfter
		return p
	}
	if errors.Is(err, restore.ErrNotWaiting) {
		return problem(conflict, api.CodeNoRestore, "%v", err)
	}
	if e, ok := errors.AsType[*state.TerminalError](err); ok {
		return problem(conflict, api.CodeRunFinished, "run %s has already ended, it is %s: nothing to do, since only a run in flight can be cancelled", e.ID, e.Status)
	}
	if e, ok := errors.AsType[*state.TooLargeError](err); ok {
		return problem(tooLarge, api.CodeBodyTooLarge, "%v", e)
	}
	if e, ok := errors.AsType[*state.InboxFullError](err); ok {
		return problem(tooLarge, api.CodeInboxFull, "%v", e)
	}
	if e, ok := errors.AsType[*state.NotEndedError](err); ok {
		return problem(conflict, api.CodeRunInFlight, "run %s has not ended, it is %s, so it cannot be deleted: cancel it, or wait until it and all its descendants have ended; a cancellation takes a moment, so retry", e.ID, e.Status)
	}
	if e, ok := errors.AsType[*retention.NotCreatedError](err); ok {
		return problem(conflict, api.CodeRunInFlight, "run %s cannot be deleted now, because its descendant %s is about to be created: retry in a minute, once all its descendants have ended", e.Root, e.ID)
	}
	if errors.Is(err, state.ErrDeleting) {
		return problem(conflict, api.CodeRunBeingDeleted, "the signal was not accepted (%v): retry in a minute; if the deletion was refused, the run accepts the signal then", err)
	}
	if errors.Is(err, retention.ErrChild) {
		return problem(conflict, api.CodeRunInFlight, "a child run cannot be deleted by itself (%v): delete the run at the top of its tree, which deletes all its descendants", err)
	}
	away := func(code, what string) *api.Problem {
		p := problem(unavailable, code, "%s does not answer or has failed; if the request makes a change, it is unknown whether that took effect. Retry; send a submission or a signal with the same Idempotency-Key. If this repeats, find the cause in the log of the gateway, or of the program that embeds Turnpike", what)
		p.RetryAfter = RetryAfter
		return p
	}
	_, ofBus := errors.AsType[*BusError](err)
	_, ofContent := errors.AsType[*file.ContentError](err)
	if ofBus || ofContent || errors.Is(err, bus.ErrClosed) {
		return away(api.CodeBusUnavailable, "NATS")
	}
	if e, ok := errors.AsType[*access.RolesError](err); ok {
		return problem(denied, api.CodeForbidden, "%v", e)
	}
	if _, ok := errors.AsType[*access.ProviderError](err); ok {
		p := problem(unavailable, api.CodeProviderUnavailable, "the OpenID provider does not answer correctly, so the gateway cannot verify your token: retry; the gateway's log has the cause")
		p.RetryAfter = RetryAfter
		return p
	}
	if e, ok := errors.AsType[*state.UnconfirmedError](err); ok {
		p := problem(unavailable, api.CodeStoreUnavailable, "the store has the change, but too few of its copies have confirmed it: %v. Retry; send a submission with the same Idempotency-Key", e)
		p.RetryAfter = RetryAfter
		return p
	}
	switch {
	case errors.Is(err, ErrStopped):
		p := problem(unavailable, api.CodeStoreUnavailable, "%v", ErrStopped)
		p.RetryAfter = RetryAfter
		return p
	case errors.Is(err, state.ErrFormat):
		p := problem(unavailable, api.CodeNewerBuild, "%v, or retry: another gateway may be upgraded already", err)
		p.RetryAfter = RetryAfter
		return p
	case errors.Is(err, state.ErrNotFound):
		return problem(missing, api.CodeRunNotFound, "%v: check the id of the run and the tenant; retention may have deleted the run", err)
	case errors.Is(err, state.ErrIdempotencyConflict):
		return problem(conflict, api.CodeIdempotencyConflict, "%v", err)
	case damaged(err):
		return problem(internal, api.CodeInternal, "the gateway cannot decode data in the store, and a retry does not help: the gateway's log has the cause under the request id; restore the data, save it again, or upgrade this gateway if a newer build saved it")
	default:
		return away(api.CodeStoreUnavailable, "the store")
	}
}

// damaged reports whether err is that of stored data which this build cannot decode.
func damaged(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, wrongType := errors.AsType[*json.UnmarshalTypeError](err)
	return syntax || wrongType || errors.Is(err, state.ErrDamaged)
}

// contended returns the problem of a request that others prevented by changing the same document again and again.
func contended(kind, name string) error {
	p := problem(unavailable, api.CodeStoreUnavailable, "other requests changed %s %s at the same time: retry", kind, name)
	p.RetryAfter = RetryAfter
	return p
}

func runNotFound(id state.RunID) error { return fmt.Errorf("run %s: %w", id, state.ErrNotFound) }

func notFound(code, format string, args ...any) error {
	return problem(missing, code, "%s", fmt.Sprintf(format, args...))
}
