package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
)

// Errors that callers branch on.
var (
	// ErrNotFound reports that what the call names does not exist: a run, an agent or its version, a
	// document, a timer, an idempotency key, or the record of a batch.
	ErrNotFound = errors.New("not found")

	// ErrFenced reports that the lease of the run, or the claim of the timer, that the caller names is not in force: it
	// was lost, or has ended. The caller must then not ack or nak the message of the run's turn, or publish events of
	// the run. It may still report late results and its pause: see Turns.Record and Turns.Release.
	ErrFenced = errors.New("the lease is lost: nothing to do, another worker continues the work")

	// ErrIdempotencyConflict reports that a submission's key, or a signal's id, was used before with
	// another fingerprint.
	ErrIdempotencyConflict = errors.New("the idempotency key or signal id was used before with another request: use a new one, or repeat the same request")

	// ErrChanged reports that a document, or the latest version of an agent, has changed since the caller read it.
	ErrChanged = errors.New("the stored data has changed since it was read: read it again, and repeat the change")

	// ErrDamaged reports stored data that no build can decode. Retrying does not help.
	ErrDamaged = wire.ErrDamaged

	// ErrUnconsumedSignals reports a commit that would end a run while its inbox holds
	// signals that the turn has not consumed. The store changed nothing: see
	// Commit.RequireInboxConsumed.
	ErrUnconsumedSignals = errors.New("the run cannot end yet, since signals arrived after its turn was claimed: apply these signals, and commit again")
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

// ErrMoved reports a signal whose Basis differs from the run: the run has changed since the sender read it.
var ErrMoved = errors.New("the run has changed since the basis of the signal was read: read the run again, and send the signal with its new basis")

// BusyError reports a message with the mode Reject to a run that is Queued or Running.
type BusyError struct {
	ID     RunID
	Status Status
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("run %s is %s and cannot take the message now", e.ID, e.Status)
}

// TerminalError reports that the request is impossible because the run has ended.
type TerminalError struct {
	ID     RunID
	Status Status
}

func (e *TerminalError) Error() string {
	return fmt.Sprintf("run %s has already ended: it is %s", e.ID, e.Status)
}

// NotEndedError reports a run that cannot be deleted because it has not ended.
type NotEndedError struct {
	ID     RunID
	Status Status
}

func (e *NotEndedError) Error() string {
	return fmt.Sprintf("run %s has not ended: it is %s", e.ID, e.Status)
}

// TooLargeError reports a change that the store can never hold. Retrying does not help; Remedy does.
type TooLargeError struct {
	Bytes, Limit int64
	Remedy       string
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the change has %d bytes, the store accepts at most %d: %s", e.Bytes, e.Limit, e.Remedy)
}

// GapError reports entries that do not follow the log of their run: the store was rolled back since
// the caller read it. Retrying does not help.
type GapError struct {
	ID         RunID
	Have, From int64 // entries
}

func (e *GapError) Error() string {
	return fmt.Sprintf("the log of run %s has %d entries in the store, and the change needs %d: the store has lost writes: check whether it was restored from a backup or failed over to an older replica", e.ID, e.Have, e.From)
}

// UnconfirmedError reports a change that reached the store, but that fewer copies (replicas, or
// the server's disk) have confirmed in time than the deployment requires: a failover or a crash
// of the server may lose it. The caller may repeat it like a call whose outcome is unknown.
type UnconfirmedError struct {
	Have, Want int  // replicas
	Unsynced   bool // the server itself has not synced it to disk
	Within     time.Duration
}

func (e *UnconfirmedError) Error() string {
	what := fmt.Sprintf("%d of the %d required replicas of Redis confirmed the write", e.Have, e.Want)
	if e.Unsynced {
		what += ", and the primary has not synced it to disk,"
	}
	return fmt.Sprintf("%s within %s, so a failover may lose it: check that the replicas are connected and in sync (`turnpike doctor`), or lower TURNPIKE_REDIS_CONFIRM (in Go, Redis.Confirm)", what, e.Within)
}
