package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// The place where a trigger begins to read a stream.
const (
	FromNew = "new" // with messages that are published after the trigger was stored
	FromAll = "all" // with the first message in the stream
)

// TriggerSettings describe the runs or signals of the messages of a JetStream stream. At least one of Run and Signal is
// required. The expressions are CEL over event (the JSON in the message, or its text), headers (their first values, by
// names in lower case), subject, delivery (STREAM:SEQUENCE:CREATED, the same each time NATS delivers the message; not
// its Nats-Msg-Id) and digest (SHA-256 of the data of the message, in hexadecimal digits).
type TriggerSettings struct {
	// Stream is the name of the stream. Subjects select its messages, such as orders.*; at most 20, which must not
	// overlap. Without Subjects the trigger reads all messages.
	Stream   string   `json:"stream"`
	Subjects []string `json:"subjects,omitempty"`

	// From is FromNew or FromAll. Default FromNew. A trigger whose Stream or From changes starts over; a message that
	// has started a run starts no other while its key is known, as [Client.Submit] says.
	From string `json:"from,omitempty"`

	Filter string      `json:"filter,omitempty"` // returns false for messages that are ignored; empty: none
	Run    *HookRun    `json:"run,omitempty"`
	Signal *HookSignal `json:"signal,omitempty"` // with it, messages are processed one by one, in order

	// MaxPerMinute bounds the messages that each gateway turns into runs or signals in any 60 seconds, from 1 to 60,000.
	// As many may come at once; further messages wait in the stream. Default 600.
	MaxPerMinute int `json:"max_per_minute,omitempty"`

	Paused bool `json:"paused,omitempty"` // the messages wait in the stream
}

// Trigger is a trigger with its name and status.
type Trigger struct {
	Name string `json:"name"`

	TriggerSettings

	Status    TriggerStatus `json:"status"`
	UpdatedAt state.Time    `json:"updated_at"`
	UpdatedBy string        `json:"updated_by"`

	// Warnings are set when the settings are stored: see SavedAgent.
	Warnings []Warning `json:"warnings,omitempty"`
}

// TriggerStatus reports the progress of the messages of a trigger.
type TriggerStatus struct {
	// Pending is the number of messages that no gateway has fetched. InFlight is the number of fetched messages that
	// are not done, including those that wait for another attempt. They are nil in lists, and if NATS does not answer
	// or lacks the stream.
	Pending  *int64 `json:"pending,omitempty"`
	InFlight *int64 `json:"in_flight,omitempty"`

	Dead        int64       `json:"dead"` // number of messages that became dead letters
	LastError   string      `json:"last_error,omitempty"`
	LastErrorAt *state.Time `json:"last_error_at,omitempty"`
}
