package turnpike

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/turnpike-dev/turnpike/internal/inprocess"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Error is the error of a refused request, from the Client of a [Deployment] and from one of [Dial] alike. Code is
// stable. Match the cause with errors.Is, and get the details with errors.As:
//
//	if p, ok := errors.AsType[*turnpike.Error](err); ok {
//		log.Print(p.Code, p.Detail)
//	}
type Error = api.Problem

// Causes of errors, for errors.Is.
var (
	ErrInvalid         = api.ErrInvalid         // the request or the definition has a mistake
	ErrNotFound        = api.ErrNotFound        // the run, the agent, the batch or the file does not exist
	ErrConflict        = api.ErrConflict        // for example, the key has other content, or the run is in flight
	ErrNotWaiting      = api.ErrNotWaiting      // the run does not wait for this
	ErrStale           = api.ErrStale           // the decision is about a call that no longer waits
	ErrEnded           = api.ErrEnded           // the run has ended
	ErrFull            = api.ErrFull            // a limit of the run, the tenant or the gateway is reached
	ErrUnauthenticated = api.ErrUnauthenticated // the credentials are missing or invalid
	ErrForbidden       = api.ErrForbidden       // the caller lacks a role, or the tenant does not allow it
	ErrUnavailable     = api.ErrUnavailable     // a server does not answer or is overloaded: retry
	ErrNewerBuild      = api.ErrNewerBuild      // a newer build wrote the run: upgrade this program
	ErrClosed          = inprocess.ErrClosed    // the Deployment is closed
)

// RunError reports a run that ended with a status other than completed.
type RunError struct {
	Run    string // its id
	Status string // incomplete, failed or cancelled
	Reason string // the terminal reason, such as max_turns
	Detail string // for people; may be empty
}

func (e *RunError) Error() string {
	text := fmt.Sprintf("run %s ended with the status %s: %s", e.Run, e.Status, e.Reason)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// OutputError reports the output of a completed run that does not decode into the type that the
// caller asked for.
type OutputError struct {
	Run  string
	Text string // the output
	Err  error
}

func (e *OutputError) Error() string {
	const most = 200
	return fmt.Sprintf("run %s: its output %.*q does not decode into the type that the caller requested: change the type, or the output_schema of the run or its agent: %v", e.Run, most, e.Text, e.Err)
}

// Unwrap returns the error of the decoder.
func (e *OutputError) Unwrap() error { return e.Err }

// invalid returns the Error for a mistake that a Client finds without a request.
func invalid(format string, args ...any) error {
	return &Error{Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest, Code: api.CodeInvalidRequest, Detail: fmt.Sprintf(format, args...)}
}

// cause makes errors.Is work for errors that no gateway sent: a request without a response is ErrUnavailable, and an
// address that cannot be a gateway's is ErrInvalid.
func cause(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), ErrClosed) {
			return ErrClosed
		}
		return err
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if errors.Is(err, api.ErrURL) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
