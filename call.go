package turnpike

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// ErrPending reports that an [Async] tool has accepted the call and that another program delivers the result later, by
// [Run.ToolResult]. The function of the tool returns it.
var ErrPending = errors.New("the tool deferred its result")

// IdempotencyKey returns the key of the tool call that ctx belongs to. The key is never empty. It is the same each time
// a worker executes the call, also in its [Probe], and differs for every other call: if the model makes the same call
// again, that is another call. Pass the key to the system that the tool changes. IdempotencyKey panics outside a tool
// call.
func IdempotencyKey(ctx context.Context) string {
	c, ok := tool.CallFrom(ctx)
	if !ok || c.IdempotencyKey == "" {
		panic("turnpike: IdempotencyKey was called outside a tool call: pass it the context of the tool's function")
	}
	return c.IdempotencyKey
}

// CallFrom returns the tool call that ctx belongs to: its run, its tenant, its id, and Progress, which
// reports progress to readers of the run's events. It reports false outside a tool call.
func CallFrom(ctx context.Context) (Call, bool) { return tool.CallFrom(ctx) }

// againError is an error made by Again.
type againError struct {
	err   error
	after time.Duration
}

func (e *againError) Error() string { return e.err.Error() }
func (e *againError) Unwrap() error { return e.err }

// Again returns an error that makes the worker call the function of a tool again after a delay: see [Retries]. The
// model reads err if no retries are left or the delay would not end before the timeout of the call. Again returns nil
// if err is nil.
func Again(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &againError{err, max(after, 0)}
}

// askError is an error made by Ask.
type askError struct {
	question string
	keep     any
}

func (e *askError) Error() string { return "a person must answer: " + e.question }

// Ask returns an error with a question to a person, for the function of a tool to return. The run waits for
// [Run.Answer]; then a worker calls the function again from its beginning, and [Answered] returns the answer. keep is
// stored as JSON and holds all that the function needs to continue; it may be nil. If keep does not encode as JSON, the
// call fails and nobody is asked.
func Ask(question string, keep any) error { return &askError{question, keep} }

// Answered returns the answer to the question that an earlier execution of the same call asked with [Ask], and decodes
// the keep of that Ask into keep, a pointer or nil. It reports false if the call has not asked, or if the stored value
// does not decode.
func Answered(ctx context.Context, keep any) (answer string, ok bool) {
	c, _ := tool.CallFrom(ctx)
	if c.Resume == nil {
		return "", false
	}
	if keep != nil && json.Unmarshal(c.Resume.State, keep) != nil {
		return "", false
	}
	return c.Resume.Answer, true
}
