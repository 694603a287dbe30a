package state

import "strconv"

// Poison is what a replay needs of a run that failed without a decision of its model: poisoned,
// or because a stop hook could not answer.
type Poison struct {
	// Attempts is the number of workers that took the turn and did not commit it; 0 of a run
	// that ended stop_hook_failed.
	Attempts int `json:"attempts"`

	// Calls are those that were open and can be made again. The history has an error
	// as the result of each, which a replay withdraws.
	Calls []OpenCall `json:"calls,omitempty"`
}

// AwaitReplay names the wait of a run with Poison that ended at a version.
func AwaitReplay(version int64) string { return "replay:" + strconv.FormatInt(version, 10) }

// ReplaySignal returns the signal that continues a run with Poison that ended at a version. Its id
// follows from the version, so it counts once however often it is sent.
func ReplaySignal(version int64, at Time) Signal {
	return Signal{ID: AwaitReplay(version), Replay: version, At: at}
}
