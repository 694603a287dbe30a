package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// PendingReason is the reason why an event has not been delivered yet.
type PendingReason string

// The reasons of a pending event.
const (
	PendingFirstAttempt    PendingReason = "first_attempt"    // no attempt was made yet
	PendingFailed          PendingReason = "failed"           // the latest attempt failed
	PendingEarlierEvent    PendingReason = "earlier_event"    // an earlier event of the run is pending
	PendingReceiverFailing PendingReason = "receiver_failing" // workers make single attempts to the receiver, because many in a row failed
	PendingBusy            PendingReason = "busy"             // the receiver or the tenant has too many requests in flight
)

// PendingEvent is an event of a run that its webhook has not accepted yet. Every field is always present.
type PendingEvent struct {
	ID    string `json:"id"` // the webhook-id of its deliveries
	RunID string `json:"run_id"`
	Agent string `json:"agent"`
	Type  string `json:"type"` // run.finished or run.waiting
	Host  string `json:"host"` // host and port of the receiver

	Reason PendingReason `json:"reason"`
	Since  state.Time    `json:"since"` // the time of the event, or of its latest replay

	// Attempts is the number of attempts that have failed since Since. Attempts whose worker died do not count.
	Attempts      int        `json:"attempts"`
	LastAttemptAt state.Time `json:"last_attempt_at"` // null before the first attempt

	// LastError is one line without addresses, at most 256 bytes; empty before the first failure.
	LastError string `json:"last_error"`

	// NextAttemptAt is the time from which a worker makes the next attempt. While a worker makes the attempt, the time
	// is past.
	NextAttemptAt state.Time `json:"next_attempt_at"`
}

// WebhookTestRequest names the receiver of a test event, as state.Webhook does.
type WebhookTestRequest struct {
	URL    string           `json:"url"`
	Secret SecretReferences `json:"secret,omitempty"`
}

// WebhookTestStatus is the status of a test of a webhook.
type WebhookTestStatus string

// The statuses of a test.
const (
	TestPending   WebhookTestStatus = "pending"   // no worker has ended the attempt yet
	TestDelivered WebhookTestStatus = "delivered" // the receiver has accepted the event
	TestFailed    WebhookTestStatus = "failed"
)

// WebhookTest is a test event, which a worker sends once in the same way as other events. Every field is always
// present.
type WebhookTest struct {
	ID        string            `json:"id"`
	Host      string            `json:"host"` // host and port of the receiver
	Status    WebhookTestStatus `json:"status"`
	CreatedAt state.Time        `json:"created_at"`

	// EndedAt is null, and the fields after it are empty, until the attempt has ended.
	EndedAt state.Time `json:"ended_at"`
	Worker  string     `json:"worker"` // the worker that made the attempt

	ResponseStatus int    `json:"response_status"` // status code of HTTP; 0 without a response
	LatencyMS      int64  `json:"latency_ms"`      // milliseconds from the request to the end of the response
	Error          string `json:"error"`           // as PendingEvent.LastError
}
