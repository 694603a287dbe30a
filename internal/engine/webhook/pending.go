package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// progress is the note of a timer: the attempts to deliver an event so far. A worker stores it in the write
// that postpones the event.
type progress struct {
	Reason   api.PendingReason `json:"reason"`
	Attempts int               `json:"attempts,omitempty"`
	At       int64             `json:"at,omitempty"`    // of the latest attempt, in ms
	Error    string            `json:"error,omitempty"` // of the latest attempt

	// Delivered reports that a replay was delivered, and Dead that it ended with a dead letter, both by the latest
	// attempt.
	Delivered bool `json:"delivered,omitempty"`
	Dead      bool `json:"dead,omitempty"`
}

// ended reports whether the note is that of a replay after its latest attempt.
func (p progress) ended() bool { return p.Delivered || p.Dead }

// progressOf decodes a note. Without a note, or with one that this build cannot read, the event counts as not
// attempted.
func progressOf(note string) progress {
	var p progress
	if json.Unmarshal([]byte(note), &p) != nil || p.Reason == "" {
		return progress{Reason: api.PendingFirstAttempt}
	}
	return p
}

// failed returns the progress after a failed attempt.
func (p progress) failed(err error, at time.Time) progress {
	return progress{Attempts: p.Attempts + 1, At: at.UnixMilli(), Error: describe(err)}
}

// delivered returns the note of a replay that was delivered at a time.
func (p progress) delivered(at time.Time) string {
	return progress{Attempts: p.Attempts + 1, At: at.UnixMilli(), Delivered: true}.note(api.PendingFirstAttempt)
}

// dead returns the note of a replay that ended with a dead letter of a time.
func (p progress) dead(at time.Time) string {
	return progress{Attempts: p.Attempts + 1, At: at.UnixMilli(), Dead: true}.note(api.PendingFailed)
}

// note encodes the progress, with the reason why the worker postpones the event.
func (p progress) note(reason api.PendingReason) string {
	p.Reason = reason
	text, err := json.Marshal(p)
	if err != nil {
		return "" // as if no worker had postponed the event
	}
	return string(text)
}

// PendingStore is the part of a store that Pending needs.
type PendingStore interface {
	Load(ctx context.Context, id state.RunID) (state.State, error)
	Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error)
}

// Pending returns the event that a timer of the tenant will deliver. exists is false if there is nothing to show, for
// example because the run was deleted, a replay has ended, or the event is a test. Some of these timers have a purpose:
// the caller must not remove a timer because exists is false.
func Pending(ctx context.Context, store PendingStore, tenant string, t state.Timer) (e api.PendingEvent, exists bool, err error) {
	run, seq, since, err := parse(t.Name)
	p := progressOf(t.Note)
	if err != nil || seq < 1 || p.ended() {
		return e, false, nil //nolint:nilerr // a malformed name: a worker removes the timer
	}
	s, err := store.Load(ctx, run)
	if errors.Is(err, state.ErrNotFound) || err == nil && (s.Tenant != tenant || s.Webhook == nil) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	log, err := store.Log(ctx, run, seq-1, 1)
	if errors.Is(err, state.ErrNotFound) || err == nil && (len(log) == 0 || !Wanted(s.Webhook, &log[0])) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	e = api.PendingEvent{
		ID: eventID(run, seq), RunID: string(run), Agent: s.Agent, Type: string(log[0].Type), Host: toolspec.HostPort(s.Webhook.URL),
		Reason: p.Reason, Since: log[0].At, Attempts: p.Attempts, LastError: p.Error, NextAttemptAt: state.At(t.Due),
	}
	if !since.IsZero() {
		e.Since = state.At(since)
	}
	if p.At != 0 {
		e.LastAttemptAt = state.At(time.UnixMilli(p.At))
	}
	return e, true, nil
}

// Cursor returns the cursor of the list that continues after the timer with a name.
func Cursor(name string) string { return strings.ReplaceAll(name, " ", ".") }

// TimerAt returns the name of the timer at which a cursor points, and whether the cursor is valid.
func TimerAt(cursor string) (name string, ok bool) {
	name = strings.ReplaceAll(cursor, ".", " ")
	_, _, _, err := parse(name)
	return name, err == nil || isTest(name)
}
