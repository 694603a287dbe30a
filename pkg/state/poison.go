package state

import "strconv"

// Poison is what the end of a poisoned run put aside.
type Poison struct {
	// Attempts is how many workers took the turn and did not commit it.
	Attempts int `json:"attempts"`

	// Calls are those that were open and can be made again. The history has an error
	// as the result of each, which a replay withdraws.
	Calls []OpenCall `json:"calls,omitempty"`
}

// AwaitReplay is the name of what a run is open to that ended poisoned at a version.
func AwaitReplay(version int64) string { return "replay:" + strconv.FormatInt(version, 10) }

// ReplaySignal returns the signal that takes a run up again which ended poisoned at
// a version. Its id is that of the end, so it counts once however often it is sent.
func ReplaySignal(version int64, at Time) Signal {
	return Signal{ID: AwaitReplay(version), Replay: version, At: at}
}
