package state

import "strconv"

// Poison is the data for a replay of a run that failed without a decision of its model: poisoned,
// or because a hook of input or stop could not answer.
type Poison struct {
	// Attempts is the number of claims of the turn without a commit; 0 if a hook could not answer.
	Attempts int `json:"attempts"`

	// Calls are the open calls that can be made again. The history has an error as the result of
	// each, which a replay withdraws.
	Calls []OpenCall `json:"calls,omitempty"`
}

// AwaitReplay returns the name of the wait of a run with Poison that ended at version.
func AwaitReplay(version int64) string { return replayPrefix + strconv.FormatInt(version, 10) }

const replayPrefix = "replay:"

// ReplaySignal returns the signal that continues a run with Poison that ended at version. Its id is
// derived from the version, so repeated signals count once.
func ReplaySignal(version int64, at Time) Signal {
	return Signal{ID: AwaitReplay(version), Replay: version, At: at}
}
