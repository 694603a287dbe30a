package state

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on.
var (
	// ErrNotFound reports that the store has no such run or agent.
	ErrNotFound = errors.New("not found")

	// ErrFenced reports that the caller no longer holds the run's lease, or the claim of a timer. The
	// caller must not touch anything of the run: no ack, no nak, no event (I8).
	ErrFenced = errors.New("lease lost")

	// ErrIdempotencyConflict reports that a submission's key, or a signal's id, was used for a
	// different one.
	ErrIdempotencyConflict = errors.New("idempotency key was used with another body")

	// ErrChanged reports that a document has changed since the caller read it.
	ErrChanged = errors.New("changed since it was read")

	// ErrUnconsumedSignals reports a commit that would end a run while its inbox holds
	// signals that the turn has not consumed. The store changed nothing: see
	// Commit.RequireInboxConsumed.
	ErrUnconsumedSignals = errors.New("signals arrived after the turn was claimed")
)

// NotWaitingError reports a signal that the run does not wait for: it never did, another signal was
// first, or the run has ended.
type NotWaitingError struct {
	ID     RunID
	Status Status
	Name   string // the wait that is not open
}

func (e *NotWaitingError) Error() string {
	return fmt.Sprintf("run %s is %s and does not wait for %q", e.ID, e.Status, e.Name)
}

// ErrMoved is returned for a signal with a Basis that the run has left.
var ErrMoved = errors.New("the run has moved on")

// BusyError reports a message with the mode Reject to a run that has a turn in flight or due.
type BusyError struct {
	ID     RunID
	Status Status
}

func (e *BusyError) Error() string { return fmt.Sprintf("run %s is busy: it is %s", e.ID, e.Status) }

// TerminalError reports that the request is impossible because the run has ended.
type TerminalError struct {
	ID     RunID
	Status Status
}

func (e *TerminalError) Error() string { return fmt.Sprintf("run %s is %s", e.ID, e.Status) }

// NotEndedError reports a run that cannot be deleted because it has not ended.
type NotEndedError struct {
	ID     RunID
	Status Status
}

func (e *NotEndedError) Error() string { return fmt.Sprintf("run %s is %s", e.ID, e.Status) }

// TooLargeError reports a change that the store can never hold: retrying does not help.
type TooLargeError struct {
	Bytes, Limit int64
	Remedy       string
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("a change of %d bytes is more than the store holds, %d: %s", e.Bytes, e.Limit, e.Remedy)
}

// GapError reports entries that do not follow the log of their run: the store was rolled back since
// the caller read it. Retrying does not help.
type GapError struct {
	ID         RunID
	Have, From int64 // entries
}

func (e *GapError) Error() string {
	return fmt.Sprintf("log of run %s has %d entries, and these follow on %d: the store was rolled back", e.ID, e.Have, e.From)
}

// UnconfirmedError reports a change that the store has made, but that fewer replicas have confirmed
// than the deployment requires: a failover may lose it. The caller may repeat it like a call whose
// outcome is unknown.
type UnconfirmedError struct {
	Have, Want int  // replicas
	Unsynced   bool // the server itself has not synced it to disk
	Within     time.Duration
}

func (e *UnconfirmedError) Error() string {
	what := fmt.Sprintf("%d of %d replicas have confirmed the write", e.Have, e.Want)
	if e.Unsynced {
		what += ", and it is not on disk"
	}
	return fmt.Sprintf("%s within %s, so whether it lasts is unknown: see that the replicas are connected and in sync (`turnpike doctor`), or lower TURNPIKE_REDIS_CONFIRM", what, e.Within)
}
