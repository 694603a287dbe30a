package api

import (
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// DeadStatus is the status of a dead letter.
type DeadStatus string

// The statuses of a dead letter.
const (
	DeadOpen      DeadStatus = "open"      // a replay is possible
	DeadReplaying DeadStatus = "replaying" // its run was continued, and no turn has ended since; or the webhook has not accepted its event yet
	DeadReplayed  DeadStatus = "replayed"
	DeadClosed    DeadStatus = "closed" // a replay is not possible: Advice says why
)

// DeadLetter is a message that could not be processed. Every field is always present.
type DeadLetter struct {
	Seq uint64 `json:"seq"`

	// Kind is poisoned, lost, turn, submission, abort, input_hook_failed, stop_hook_failed, webhook or trigger.
	Kind   string     `json:"kind"`
	Status DeadStatus `json:"status"`

	// RunID and Agent that the letter concerns, as far as it names them.
	RunID *string `json:"run_id"`
	Agent *string `json:"agent"`

	Lane  string     `json:"lane"`
	Cause string     `json:"cause"`
	At    state.Time `json:"at"`

	// Version is that of the run when it ended, for the kinds poisoned, lost, input_hook_failed and stop_hook_failed.
	// Attempts is the number of claims of its last turn without a commit, for poisoned. For other kinds they are 0.
	Version  int64 `json:"version"`
	Attempts int   `json:"attempts"`

	// Calls are the calls that a replay of the run makes again.
	Calls []DeadCall `json:"calls"`

	Data   string  `json:"data"` // the message as it was received
	Replay *Replay `json:"replay"`
	Advice string  `json:"advice"`
}

// DeadCall is a tool call that was open when its run ended.
type DeadCall struct {
	ID        string `json:"id"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"` // as the model wrote them, or a person edited them
}

// Replay is the result of replaying a dead letter. At is null until the next turn of the run has ended, or the webhook
// has accepted the event.
type Replay struct {
	RunID string     `json:"run_id"`
	At    state.Time `json:"at"`
}
