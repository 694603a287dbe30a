package turnpike

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Run is a handle of one run. It holds no connection and no state: copies and several handles of the
// same run are fine, and a Run is safe for concurrent use. Methods that change the run retry with
// one id while the servers are unavailable, so that each change happens once.
type Run struct {
	c  *Client
	id string
}

// ID returns the id of the run, such as run_01JD….
func (r *Run) ID() string { return r.id }

// Info returns the run as it stands now. The error is ErrNotFound if the run does not exist.
func (r *Run) Info(ctx context.Context) (Info, error) {
	i, err := r.c.api.Get(ctx, r.id)
	return i, cause(ctx, err)
}

// Wait returns the run when it has ended. A run that waits for a person keeps Wait waiting; ctx
// bounds it.
func (r *Run) Wait(ctx context.Context) (Info, error) {
	return r.until(ctx, Info.Terminal)
}

// WaitIdle returns the run when it has ended, or waits for input: an approval, an answer, or the
// result of a call that is made elsewhere.
func (r *Run) WaitIdle(ctx context.Context) (Info, error) {
	return r.until(ctx, func(i Info) bool {
		if i.Terminal() || i.Waiting == nil {
			return i.Terminal()
		}
		switch state.Reason(i.Waiting.Reason) {
		case state.WaitingApproval, state.WaitingClientTool, state.WaitingHumanInput, state.WaitingTool:
			return true
		default:
			return false
		}
	})
}

// until returns the run when done reports true.
func (r *Run) until(ctx context.Context, done func(Info) bool) (Info, error) {
	i, err := r.Info(ctx)
	if err != nil || done(i) {
		return i, err
	}
	for e, err := range r.Events(ctx, 0) {
		if err != nil {
			return i, err
		}
		if e.Type != "run.waiting" && e.Type != "run.finished" {
			continue
		}
		// The event may belong to an earlier pause.
		if i, err = r.Info(ctx); err != nil || done(i) {
			return i, err
		}
	}
	return r.Info(ctx)
}

// Events yields the events of the run after the one with number after, until the run has ended, ctx
// ends, or the caller breaks the loop. Events reconnects: committed events come in order, each once.
// Live events (Seq 0) may be lost. A final pair has the error, if there is one.
func (r *Run) Events(ctx context.Context, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, end := r.c.bound(ctx)
		defer end()
		for e, err := range r.c.api.Events(ctx, r.id, after) {
			if !yield(e, cause(ctx, err)) {
				return
			}
		}
	}
}

// History returns the messages of the run as the model sees them.
func (r *Run) History(ctx context.Context) ([]Message, error) {
	all, err := r.c.api.Messages(ctx, r.id)
	return all, cause(ctx, err)
}

// Message adds a message of the user. A run that has ended continues with it.
func (r *Run) Message(ctx context.Context, text string) error {
	return r.Signal(ctx, Signal{Message: api.Text(text)})
}

// Interrupt is Message for a run that is busy: it aborts the turn in flight, with its model call and its
// tools, denies calls that wait for approval, and lets the run continue with the message.
func (r *Run) Interrupt(ctx context.Context, text string) error {
	return r.Signal(ctx, Signal{Message: api.Text(text), Mode: api.ModeInterrupt})
}

// Answer answers the question that the run waits for.
func (r *Run) Answer(ctx context.Context, text string) error {
	return r.Signal(ctx, Signal{Answer: &text})
}

// Decision identifies a call that waits for approval, as the person saw it, and holds what the person
// decided. CallID and Hash are required: take them from Info.Waiting.Calls.
type Decision struct {
	CallID, Hash string

	// Arguments replace those of the call, for Approve. They are encoded as JSON. Nil keeps the
	// model's.
	Arguments any

	// Reason goes to the model and into the history.
	Reason string
}

// Approve lets the call start. The error is ErrStale if another call waits under the same id, and
// ErrForbidden if the client does not act for a principal with the role approver: see
// [Deployment.As].
func (r *Run) Approve(ctx context.Context, d Decision) error { return r.decide(ctx, "approve", d) }

// Deny refuses the call. The model reads the reason. The errors are those of Approve.
func (r *Run) Deny(ctx context.Context, d Decision) error {
	if d.Arguments != nil {
		return invalid("Decision.Arguments are set, but a denial has none: unset them")
	}
	return r.decide(ctx, "deny", d)
}

func (r *Run) decide(ctx context.Context, decision string, d Decision) error {
	if d.CallID == "" || d.Hash == "" {
		return invalid("Decision.CallID is %q and Hash is %q: set both, from Info.Waiting.Calls", d.CallID, d.Hash)
	}
	a := api.Approval{CallID: d.CallID, Hash: d.Hash, Decision: decision, Reason: d.Reason}
	if d.Arguments != nil {
		b, err := json.Marshal(d.Arguments)
		if err != nil {
			return invalid("Decision.Arguments cannot be encoded as JSON: %v", err)
		}
		a.Arguments = b
	}
	return r.Signal(ctx, Signal{Approvals: []api.Approval{a}})
}

// ToolResult delivers the result of a call that is made elsewhere: by a tool of kind client, or later
// by an Async tool. v is a string or is encoded as JSON.
func (r *Run) ToolResult(ctx context.Context, callID string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return invalid("the result of call %s cannot be encoded as JSON: %v", callID, err)
	}
	return r.Signal(ctx, Signal{ToolResults: []api.ToolResult{{CallID: callID, Content: b}}})
}

// Signal sends several decisions or several results at once. A Signal with the same SignalID as an
// earlier one changes nothing. Default: a random SignalID.
func (r *Run) Signal(ctx context.Context, s Signal) error {
	if s.SignalID == "" {
		s.SignalID = rand.Text()
	}
	return retry(ctx, func() error {
		_, err := r.c.api.Signal(ctx, r.id, s)
		return err
	})
}

// Cancel ends the run with all runs below it. Cancelling a run that has ended changes nothing.
func (r *Run) Cancel(ctx context.Context, reason string) error {
	return retry(ctx, func() error {
		_, err := r.c.api.Cancel(ctx, r.id, reason)
		return err
	})
}

// Fork starts a new run that shares the history of this one through a turn, with the changes of f.
func (r *Run) Fork(ctx context.Context, f Fork) (*Run, error) {
	key := rand.Text()
	var made Info
	err := retry(ctx, func() (err error) {
		made, err = r.c.api.ForkWithKey(ctx, r.id, f, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.c.RunByID(made.ID), nil
}

// Delete removes a run that has ended, with all runs below it. The error is ErrConflict while one of
// them is in flight.
func (r *Run) Delete(ctx context.Context) error {
	tried := false
	return retry(ctx, func() error {
		err := r.c.api.Delete(ctx, r.id)
		if tried && errors.Is(err, ErrNotFound) {
			return nil // the try before succeeded, and its answer was lost
		}
		tried = true
		return err
	})
}

// Retries of a change: the number of tries, and the delay before the second. Each delay is twice the
// one before.
const (
	maxTries   = 5
	firstDelay = 50 * time.Millisecond
)

// retry calls change until it succeeds, fails for a reason that lasts, or has failed maxTries times.
func retry(ctx context.Context, change func() error) error {
	delay := firstDelay
	for try := 1; ; try++ {
		err := cause(ctx, change())
		if try == maxTries || !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		delay *= 2
	}
}
