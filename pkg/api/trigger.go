package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// Where a trigger begins to read a stream.
const (
	FromNew = "new" // with the messages that are published after the trigger was stored
	FromAll = "all" // with the first message that the stream has
)

// TriggerSettings are how the messages of a JetStream stream become runs or signals. The expressions are
// CEL over event (the JSON in the message, or its text), headers, subject, delivery (the id of the message)
// and digest (SHA-256 of the message).
type TriggerSettings struct {
	// Stream is the name of the stream, and Subjects select its messages: orders.*, orders.>. Without
	// them the trigger reads all.
	Stream   string   `json:"stream"`
	Subjects []string `json:"subjects,omitempty"`

	// From is FromNew or FromAll. Default FromNew. A trigger whose Stream or From changes starts over;
	// messages that have started a run start no other.
	From string `json:"from,omitempty"`

	Filter string      `json:"filter,omitempty"` // false: the message is ignored
	Run    *HookRun    `json:"run,omitempty"`
	Signal *HookSignal `json:"signal,omitempty"` // with it, messages are taken one at a time and in order

	// MaxPerMinute bounds the messages that one gateway makes runs or signals of; further ones wait in
	// the stream. Default 600.
	MaxPerMinute int `json:"max_per_minute,omitempty"`

	Paused bool `json:"paused,omitempty"` // messages wait in the stream
}

// Trigger is a trigger with its name and status.
type Trigger struct {
	Name string `json:"name"`

	TriggerSettings

	Status    TriggerStatus `json:"status"`
	UpdatedAt state.Time    `json:"updated_at"`
	UpdatedBy string        `json:"updated_by"`
}

// TriggerStatus is what became of the messages of a trigger.
type TriggerStatus struct {
	// Pending is the number of messages that no gateway has fetched, and InFlight that of messages that
	// were fetched and are not done, those that wait for another attempt among them. A list of triggers
	// has neither; nor has a trigger whose stream NATS does not have.
	Pending  *int64 `json:"pending,omitempty"`
	InFlight *int64 `json:"in_flight,omitempty"`

	Dead        int64       `json:"dead"` // messages that became dead letters
	LastError   string      `json:"last_error,omitempty"`
	LastErrorAt *state.Time `json:"last_error_at,omitempty"`
}
