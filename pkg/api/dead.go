package api

import (
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// DeadStatus is where a dead letter stands.
type DeadStatus string

// The statuses of a dead letter.
const (
	DeadOpen      DeadStatus = "open"      // a replay is possible
	DeadReplaying DeadStatus = "replaying" // its run is taken up, and no turn has ended since
	DeadReplayed  DeadStatus = "replayed"
	DeadClosed    DeadStatus = "closed" // there is nothing to replay: the advice says why
)

// DeadLetter is a message that could not be processed. Every field is always present.
type DeadLetter struct {
	Seq uint64 `json:"seq"`

	// Kind is poisoned, lost, turn, submission, abort, input_hook_failed, stop_hook_failed, webhook or trigger.
	Kind   string     `json:"kind"`
	Status DeadStatus `json:"status"`

	// RunID and Agent it concerns, as far as it names them.
	RunID *string `json:"run_id"`
	Agent *string `json:"agent"`

	Lane  string     `json:"lane"`
	Cause string     `json:"cause"`
	At    state.Time `json:"at"`

	// Version of the run at its poisoned end, and how many workers had taken the
	// turn; both 0 for other kinds.
	Version  int64 `json:"version"`
	Attempts int   `json:"attempts"`

	// Calls that a replay of the run makes again.
	Calls []DeadCall `json:"calls"`

	Data   string  `json:"data"` // the message as it came
	Replay *Replay `json:"replay"`
	Advice string  `json:"advice"`
}

// DeadCall is a tool call that was open when its run ended poisoned.
type DeadCall struct {
	ID        string `json:"id"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"` // as the model gave them, or who edited them
}

// Replay is the result of replaying a dead letter. At is null until the run's next turn has ended.
type Replay struct {
	RunID string     `json:"run_id"`
	At    state.Time `json:"at"`
}
