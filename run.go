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

// Run is a handle to one run. It has no connection and no state: it may be copied, several handles to the same run may
// exist, and it is safe for concurrent use. Methods that change the run make up to five tries while the servers are
// unavailable, and a change happens at most once per call. After ErrUnavailable, ErrClosed or the error of ctx the
// change may or may not have happened, and another call may repeat it, except Signal with the same SignalID. Cancel may
// return ErrEnded if an earlier try of the same call succeeded.
type Run struct {
	c  *Client
	id string
}

// ID returns the id of the run, such as run_01JD….
func (r *Run) ID() string { return r.id }

// Info returns the current state of the run, or ErrNotFound.
func (r *Run) Info(ctx context.Context) (Info, error) {
	i, err := r.c.api.Get(ctx, r.id)
	return i, cause(ctx, err)
}

// Wait returns the run when it has ended, with any status: [Result] makes an error of a run that did not complete. Wait
// continues while the run waits for a person; ctx bounds it.
func (r *Run) Wait(ctx context.Context) (Info, error) {
	return r.until(ctx, Info.Terminal)
}

// WaitIdle returns the run when it has ended, or when it waits for an approval, an answer, or the result of a call of a
// client tool or an [Async] tool. While the run also waits for a child run, it does not return for an Async tool.
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

// Events yields the events of the run after number after, until the run has ended, ctx ends, or the caller breaks the
// loop. Events reconnects: it yields each committed event once, in order. Live events (Seq 0) may be lost. If the
// server refuses the request, 120 reconnections in a row fail (30 seconds if each fails at once), ctx ends or the
// Deployment is closed, the last pair has the error.
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

// History returns the messages of the run that the model sees.
func (r *Run) History(ctx context.Context) ([]Message, error) {
	all, err := r.c.api.Messages(ctx, r.id)
	return all, cause(ctx, err)
}

// Message adds a message of the user. If the run has ended, it continues with the message. A run of the loop
// single_call refuses messages: ErrInvalid.
func (r *Run) Message(ctx context.Context, text string) error {
	return r.Signal(ctx, Signal{Message: api.Text(text)})
}

// Interrupt is Message for a run that is busy: it aborts the turn in flight, with its model call and its tool calls,
// denies the calls that wait for approval, and lets the run continue with the message.
func (r *Run) Interrupt(ctx context.Context, text string) error {
	return r.Signal(ctx, Signal{Message: api.Text(text), Mode: api.ModeInterrupt})
}

// Answer answers the question that the run waits for. The error is ErrNotWaiting if it waits for none, and ErrEnded if
// the run has ended.
func (r *Run) Answer(ctx context.Context, text string) error {
	return r.Signal(ctx, Signal{Answer: &text})
}

// Decision identifies a call that waits for approval, as the person saw it, and holds the decision's details. CallID
// and Hash are required: take them from Info.Waiting.Calls.
type Decision struct {
	CallID, Hash string

	// Arguments replace those of the call, for Approve. They must encode as a JSON object. Nil keeps the model's.
	Arguments any

	// Reason is part of the history. The model reads the reason of a denial.
	Reason string
}

// Approve lets the call start. The error is ErrStale if the call no longer waits as the person saw it, ErrEnded if the
// run has ended, and ErrInvalid if Arguments do not match the schema that the agent's definition has for the tool. It
// is ErrForbidden if the client does not act for a principal with the role approver (see [Deployment.As]), or if the
// tenant requires four eyes and the principal has requested something or edited a call in the run or in one of its
// ancestors.
func (r *Run) Approve(ctx context.Context, d Decision) error { return r.decide(ctx, "approve", d) }

// Deny refuses the call. The model reads the reason. The errors are those of Approve; ErrInvalid if d has Arguments.
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
			return invalid("Decision.Arguments cannot be encoded as JSON: pass a value that encoding/json accepts: %v", err)
		}
		a.Arguments = b
	}
	return r.Signal(ctx, Signal{Approvals: []api.Approval{a}})
}

// ToolResult delivers the result of a call to a tool of kind client, which no worker executes, or of a call that an
// Async tool has deferred. v is a string, or is encoded as JSON. The error is ErrNotWaiting if the run does not wait
// for it, and ErrEnded if the run has ended.
func (r *Run) ToolResult(ctx context.Context, callID string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return invalid("the result of call %s cannot be encoded as JSON: pass a value that encoding/json accepts: %v", callID, err)
	}
	return r.Signal(ctx, Signal{ToolResults: []api.ToolResult{{CallID: callID, Content: b}}})
}

// Signal sends several decisions or several results at once. A Signal with the SignalID of one of the latest 1,000
// signals of the run changes nothing, even if its content is another. Default: a random SignalID.
func (r *Run) Signal(ctx context.Context, s Signal) error {
	if s.SignalID == "" {
		s.SignalID = rand.Text()
	}
	return retry(ctx, func() error {
		_, err := r.c.api.Signal(ctx, r.id, s)
		return err
	})
}

// Cancel ends the run and all its descendants. The error is ErrEnded if the run has ended.
func (r *Run) Cancel(ctx context.Context, reason string) error {
	return retry(ctx, func() error {
		_, err := r.c.api.Cancel(ctx, r.id, reason)
		return err
	})
}

// Fork starts a new run that shares the history of this one up to the end of turn f.Turn, with the changes of f.
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

// Delete deletes a run that has ended, and all its descendants. The error is ErrConflict while one of them is in
// flight, or if the run has a parent.
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

// Retries of a change: the maximum number of tries, and the delay before the second. Each further delay is twice as
// long.
const (
	maxTries   = 5
	firstDelay = 50 * time.Millisecond
)

// retry calls change until it succeeds, fails with an error other than ErrUnavailable, or has failed maxTries
// times.
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
