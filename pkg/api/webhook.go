package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// PendingReason is why an event has not been delivered yet.
type PendingReason string

// The reasons of a pending event.
const (
	PendingFirstAttempt    PendingReason = "first_attempt"    // no attempt was made yet
	PendingFailed          PendingReason = "failed"           // the latest attempt failed
	PendingEarlierEvent    PendingReason = "earlier_event"    // an earlier event of the run is pending
	PendingReceiverFailing PendingReason = "receiver_failing" // workers make single attempts to the receiver, because many in a row failed
	PendingBusy            PendingReason = "busy"             // the receiver, or the tenant, has its share of the requests in flight
)

// PendingEvent is an event of a run that its webhook has not accepted yet. Every field is always present.
type PendingEvent struct {
	ID    string `json:"id"` // the webhook-id of its deliveries
	RunID string `json:"run_id"`
	Agent string `json:"agent"`
	Type  string `json:"type"` // run.finished or run.waiting
	Host  string `json:"host"` // of the receiver, with the port

	Reason PendingReason `json:"reason"`
	Since  state.Time    `json:"since"` // the time of the event, or of its latest replay

	// Attempts is the number of attempts that have failed since then. One that ended with its worker does
	// not count.
	Attempts      int        `json:"attempts"`
	LastAttemptAt state.Time `json:"last_attempt_at"` // null before the first one

	// LastError is one line without addresses, at most 256 bytes.
	LastError string `json:"last_error"`

	// NextAttemptAt is the time from which a worker makes the next attempt. It is past while one does.
	NextAttemptAt state.Time `json:"next_attempt_at"`
}
