package state

import (
	"context"
	"fmt"
	"time"
)

// Limits of a run's inbox, which holds signals until the run's next turn. An abort does not count
// towards them and always fits.
const (
	MaxSignals     = 1000
	MaxSignalBytes = 8 << 20 // encoded
)

// InboxFullError reports a signal that does not fit into the run's inbox. The run's next turn
// empties the inbox.
type InboxFullError struct {
	ID           RunID
	Signals      int64 // including this one
	Bytes, Limit int64
}

func (e *InboxFullError) Error() string {
	return fmt.Sprintf("the inbox of run %s is full: with this signal %d signals of %d bytes would wait for its next turn, at most %d of %d bytes may: send less at once, or wait for the turn",
		e.ID, e.Signals, e.Bytes, MaxSignals, e.Limit)
}

// Abort is a request to end a run.
type Abort struct {
	Reason string `json:"reason"`
	By     *By    `json:"by,omitempty"`
}

// Signals delivers messages from outside to a run.
type Signals interface {
	// Signal puts sig into the inbox of a run and wakes the run. All waits that sig names must be
	// open, else Signal refuses the whole signal with a *NotWaitingError; of two signals for one
	// wait, exactly one succeeds. Signal accepts a user message in every status; it continues a run
	// that has ended. If the run has seen the signal's ID, Signal changes nothing and returns the
	// zero Wake and nil, or ErrIdempotencyConflict if both have fingerprints and they differ. It
	// refuses a signal that does not fit into the inbox with an *InboxFullError, and a message to a
	// run whose deletion has begun with ErrDeleting.
	Signal(ctx context.Context, id RunID, sig Signal, delay time.Duration) (Wake, error)

	// Abort marks a run to be ended and wakes it if it waits. Abort may be repeated; the first
	// abort stays. If the run has ended, Abort returns a *TerminalError.
	Abort(ctx context.Context, id RunID, abort Abort, delay time.Duration) (Wake, error)
}

// Wake is the turn that a caller must publish.
type Wake struct {
	Publish  bool // true if a turn message is needed
	Version  int64
	Priority Priority
	Tenant   string // the owner of the run
	Noisy    bool   // see NoisyAbove; an abort overtakes in either case
}
