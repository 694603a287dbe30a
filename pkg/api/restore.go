package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// The statuses of Restore.
const (
	RestoreOK      = "ok"
	RestoreWaiting = "waiting_restore"
)

// Restore is the response of GET /v1/restore: whether the store is older than the progress that NATS has recorded
// (the mark), and the consequences of a decision about it. With RestoreOK only Status and Epoch are set.
type Restore struct {
	Status        string        `json:"status"`         // ok or waiting_restore
	BehindSeconds int64         `json:"behind_seconds"` // the running time that the copy lacks at least, if it is known
	Since         *state.Time   `json:"since"`          // the last progress that the mark on NATS records; null if unknown
	Epoch         int64         `json:"epoch"`          // number of older copies that were accepted
	Counts        RestoreCounts `json:"counts"`
	Runs          []RestoreRun  `json:"runs"`      // the first 1,000 of the runs in Counts
	Truncated     bool          `json:"truncated"` // whether Counts has more runs than Runs
}

// RestoreCounts has the number of runs by finding, and the number of their calls that may happen twice.
type RestoreCounts struct {
	Ahead   int `json:"ahead"`
	Missing int `json:"missing"`
	Active  int `json:"active"`
	Calls   int `json:"calls"`
}

// The findings about a run.
const (
	RestoreAhead   = "ahead"   // a turn message names a newer version than the store has
	RestoreMissing = "missing" // a turn message names the run, and the store does not have it
	RestoreActive  = "active"  // the run is in flight in the store or waits for such a run, and may have continued since
)

// RestoreRun is a run that the store may have in an older state.
type RestoreRun struct {
	RunID       string        `json:"run_id"`
	Tenant      string        `json:"tenant"`
	Agent       string        `json:"agent"`
	Found       string        `json:"found"` // ahead, missing or active
	Status      string        `json:"status"`
	Version     int64         `json:"version"`      // in the store
	NATSVersion int64         `json:"nats_version"` // the newest in a turn message; 0 if no message names the run
	Calls       []RestoreCall `json:"calls"`        // calls without a result in the store
}

// RestoreCall is a tool call that the run would make, and may have made before.
type RestoreCall struct {
	ID         string `json:"id"`
	Tool       string `json:"tool"`
	Arguments  string `json:"arguments"`
	Idempotent bool   `json:"idempotent"`
}

// RestoreDecided is the response of POST /v1/restore:accept and POST /v1/restore:abandon.
type RestoreDecided struct {
	Decision  string `json:"decision"` // accept or abandon
	Epoch     int64  `json:"epoch"`
	Cancelled int    `json:"cancelled"` // number of runs that abandon has cancelled
}
