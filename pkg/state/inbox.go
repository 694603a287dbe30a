package state

import (
	"context"
	"fmt"
	"time"
)

// Limits of a run's inbox, which holds signals until the run's next turn. A store may accept fewer bytes
// (InboxFullError.Limit). An abort does not count towards the limits and always fits.
const (
	MaxSignals     = 1000
	MaxSignalBytes = 8 << 20 // encoded
)

// InboxFullError reports a signal that does not fit into the run's inbox. The sender may send it again after the
// run's next turn, which consumes the signals in the inbox. That does not help if the signal alone is larger than
// Limit or, in a store that keeps a run in one message, than what the run leaves free.
type InboxFullError struct {
	ID           RunID
	Signals      int64 // including this one
	Bytes, Limit int64
}

func (e *InboxFullError) Error() string {
	return fmt.Sprintf("the inbox of run %s is full: with this signal it would hold %d signals with %d bytes in total, at most %d signals and %d bytes are allowed: send fewer or smaller signals, or send it again after the run's next turn, which empties the inbox",
		e.ID, e.Signals, e.Bytes, MaxSignals, e.Limit)
}

// Abort is a request to end a run.
type Abort struct {
	Reason string `json:"reason"`
	By     *By    `json:"by,omitempty"`

	// Interrupt reports that only the turn in flight must end, and the run continues: a message that
	// interrupts it has arrived since the turn was claimed. Renew and Record return such an
	// Abort; a claim gets the message itself.
	Interrupt bool `json:"interrupt,omitempty"`
}

// Signals delivers messages from outside to a run.
type Signals interface {
	// Signal puts sig into the inbox of a run, and queues the run if it is Waiting or has ended: it
	// is then due after delay. It first checks that the run exists, was not deleted and has no newer
	// format. Then it makes the following checks, in this order, and changes nothing if one fails:
	//
	//   - If one of the run's last 1,000 signals had this Key, Signal returns the zero Wake and nil,
	//     or ErrIdempotencyConflict if both signals have fingerprints and these differ. A caller that
	//     repeats a call therefore publishes nothing: if the first call did not get as far as
	//     publishing, a sweep does it.
	//   - If the signal's Mode is Reject and the run is Queued or Running, Signal returns a *BusyError.
	//   - If the signal has a Basis and the run differs from it, Signal returns ErrMoved.
	//   - Each of Signal.Names must be an open wait, in every status; a name that occurs twice needs
	//     two. Else Signal returns a *NotWaitingError with the first name that is not. An accepted
	//     signal closes its waits: of two signals for one wait, at most one succeeds. A user message
	//     has no names, so it passes this check in every status; it continues a run that has ended.
	//   - If a deletion of the run has begun, Signal returns ErrDeleting.
	//   - If the signal does not fit into the inbox, Signal returns an *InboxFullError. A store with
	//     a lower limit than MaxSignalBytes may return a *TooLargeError instead.
	//
	// A signal whose Mode interrupts the run closes all waits for which InterruptClosesWait is true: those
	// that are open, and those that a Record or a Commit opens while the signal is in the inbox. If
	// the run is Running, Renew and Record return an interrupt until a Claim has returned the signal.
	Signal(ctx context.Context, id RunID, sig Signal, delay time.Duration) (Wake, error)

	// Abort marks a run to be ended, and queues it if it is Waiting: it is then due after delay.
	// Wake.Publish is also true for a Queued run, whose message may be far back in its lane. If the
	// run has ended, Abort returns a *TerminalError. Abort may be repeated: the first abort stays, and
	// the signals that have arrived up to the repetition now count as those before the abort.
	Abort(ctx context.Context, id RunID, abort Abort, delay time.Duration) (Wake, error)
}

// Wake is the turn that a caller must publish.
type Wake struct {
	Publish  bool // true if a turn message is needed; the other fields are set also if it is false, except in the zero Wake of a repeated signal
	Version  int64
	Priority Priority
	Tenant   string // the owner of the run
	Noisy    bool   // see NoisyAbove; Abort leaves it false
}
