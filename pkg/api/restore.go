package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// The statuses of Restore.
const (
	RestoreOK      = "ok"
	RestoreWaiting = "waiting_restore"
)

// Restore is the answer of GET /v1/restore: whether the store is older than the mark on NATS, and
// the consequences of a decision about it.
type Restore struct {
	Status        string        `json:"status"` // ok or waiting_restore
	BehindSeconds int64         `json:"behind_seconds"`
	Since         *state.Time   `json:"since"` // when NATS last knew of progress
	Epoch         int64         `json:"epoch"` // counts the older copies that were accepted
	Counts        RestoreCounts `json:"counts"`
	Runs          []RestoreRun  `json:"runs"`      // the first of those that Counts has
	Truncated     bool          `json:"truncated"` // Counts has more runs than Runs
}

// RestoreCounts counts runs by what NATS and the store say of them, and calls that may happen
// twice.
type RestoreCounts struct {
	Ahead   int `json:"ahead"`
	Missing int `json:"missing"`
	Active  int `json:"active"`
	Calls   int `json:"calls"`
}

// Findings about a run.
const (
	RestoreAhead   = "ahead"   // a turn message names a newer version than the store has
	RestoreMissing = "missing" // a turn message names the run, and the store does not have it
	RestoreActive  = "active"  // the run would continue in the store, and may have done so before
)

// RestoreRun is a run that the store may have in an older state.
type RestoreRun struct {
	RunID       string        `json:"run_id"`
	Tenant      string        `json:"tenant"`
	Agent       string        `json:"agent"`
	Found       string        `json:"found"` // ahead, missing or active
	Status      string        `json:"status"`
	Version     int64         `json:"version"`      // in the store
	NATSVersion int64         `json:"nats_version"` // in a turn message; 0 is none
	Calls       []RestoreCall `json:"calls"`        // proposed, without a result in the store
}

// RestoreCall is a call of a tool that the run would make, and may have made before.
type RestoreCall struct {
	ID         string `json:"id"`
	Tool       string `json:"tool"`
	Arguments  string `json:"arguments"`
	Idempotent bool   `json:"idempotent"`
}

// RestoreDecided is the answer of POST /v1/restore:accept and POST /v1/restore:abandon.
type RestoreDecided struct {
	Decision  string `json:"decision"` // accept or abandon
	Epoch     int64  `json:"epoch"`
	Cancelled int    `json:"cancelled"` // runs that abandon has cancelled
}
