package api

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Worker is a process that takes turns.
type Worker struct {
	ID      string     `json:"id"`
	Status  string     `json:"status"`  // alive, or unreachable
	Version string     `json:"version"` // of its build; empty if its heartbeats name none
	Slots   int        `json:"slots"`
	HeardAt state.Time `json:"heard_at"` // the time of its last heartbeat; null if the gateway has received none
	Holds   int        `json:"holds"`    // number of runs whose turn it has a lease of
	Runs    []string   `json:"runs"`     // the first ten of these runs
}

// Readiness is the response of GET /readyz.
type Readiness struct {
	Status   string          `json:"status"` // ok, degraded, draining or unavailable
	Bus      string          `json:"bus"`    // ok, or the problem
	Store    string          `json:"store"`
	Restore  string          `json:"restore"` // ok, or waiting_restore with the remedy
	Findings []state.Finding `json:"findings"`
}

// The statuses of a worker. An unreachable worker may still hold runs: the gateway has received no heartbeat of it for
// two seconds or more.
const (
	WorkerAlive       = "alive"
	WorkerUnreachable = "unreachable"
)

// Queue is a lane of the queue of turns.
type Queue struct {
	Lane string `json:"lane"`

	// Backlog is the number of turns that wait or that a worker has in flight.
	Backlog int64 `json:"backlog"`

	// OldestAt is the time at which the oldest unfetched turn was queued, and OldestSeconds its age; null and 0 without
	// an unfetched turn.
	OldestAt      state.Time `json:"oldest_at"`
	OldestSeconds float64    `json:"oldest_seconds"`
}

// Queues has all lanes, and the number of runs of the deployment by status.
type Queues struct {
	Page[Queue]

	Runs map[state.Status]int64 `json:"runs"`
}

// AgentVersionStats is one version of an agent, with statistics of its runs.
type AgentVersionStats struct {
	Version   int        `json:"version"`
	CreatedAt state.Time `json:"created_at"`
	Latest    bool       `json:"latest"`
	Runs      RunStats   `json:"runs"`
}

// RunStats sums up runs. DurationMS has the percentiles of the durations of ended runs, in milliseconds:
// from their start to their end, without the time in which an ended run waited to be continued.
type RunStats struct {
	Total    int                  `json:"total"`
	Statuses map[state.Status]int `json:"statuses"`

	// CostUSD is the cost of the runs whose cost is known; nil if none is known.
	CostUSD    *state.MicroUSD `json:"cost_usd"`
	DurationMS Percentiles     `json:"duration_ms"`

	// Troubled is the number of runs with failures, whatever their status.
	Troubled int `json:"troubled"`
}

// Percentiles are nil if no run has ended.
type Percentiles struct {
	P50 *int64 `json:"p50"`
	P95 *int64 `json:"p95"`
}

// AgentVersions is a page of the versions of an agent, newest first.
type AgentVersions struct {
	Page[AgentVersionStats]

	// Examined is the number of runs of the agent examined, newest first; Complete reports whether
	// these are all.
	Examined int  `json:"examined"`
	Complete bool `json:"complete"`
}

// CancelRunsRequest requests the cancellation of all runs in flight that match a filter.
type CancelRunsRequest struct {
	Filter *RunFilter `json:"filter"`
	Reason string     `json:"reason,omitempty"`
	DryRun bool       `json:"dry_run,omitempty"` // list the runs, and cancel none
	Cursor string     `json:"cursor,omitempty"`  // NextCursor of the previous response
}

// RunFilter selects runs, as the parameters of GET /v1/runs do.
type RunFilter struct {
	Status        Statuses          `json:"status,omitempty"`
	WaitingReason string            `json:"waiting_reason,omitempty"`
	Agent         string            `json:"agent,omitempty"`
	Loop          string            `json:"loop,omitempty"`
	Parent        string            `json:"parent,omitempty"`
	Batch         string            `json:"batch,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	CreatedAfter  string            `json:"created_after,omitempty"`
	CreatedBefore string            `json:"created_before,omitempty"`
}

// Statuses are a list of statuses. JSON may also have one text, with commas between statuses.
type Statuses []string

// UnmarshalJSON reads either form.
func (s *Statuses) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*s = Statuses{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("status %.40s is not valid: send a string such as \"running\", or a list of such strings", b)
	}
	*s = list
	return nil
}

// CanceledRuns is the result of a CancelRunsRequest. With a NextCursor more runs match.
type CanceledRuns struct {
	Matched    int      `json:"matched"`
	Cancelled  int      `json:"cancelled"` // number of runs that were aborted; 0 in a dry run
	RunIDs     []string `json:"run_ids"`   // the runs that match
	NextCursor *string  `json:"next_cursor"`
}

// DraftRequest is a submission with a definition that is not saved. Its Agent must be empty.
type DraftRequest struct {
	// Definition of the agent: an object, or a text in YAML.
	Definition json.RawMessage `json:"definition"`

	SubmitRequest
}
