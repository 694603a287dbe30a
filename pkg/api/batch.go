package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// BatchRequest submits up to 1,000 runs at once. Each has every field of a
// submission on its own.
type BatchRequest struct {
	Runs []SubmitRequest `json:"runs"`

	// MaxParallel is the maximum number of runs in flight at once; 0 means all.
	MaxParallel int `json:"max_parallel,omitempty"`

	// CountWaiting has runs that wait for a person count as in flight. By default the batch
	// starts its next run when one of its runs first waits for a person; that run resumes at
	// once, so more than MaxParallel may be in flight then.
	CountWaiting bool `json:"count_waiting,omitempty"`
}

// BatchAccepted is the answer to a BatchRequest. RunIDs are in the order of the
// request.
type BatchAccepted struct {
	BatchID string   `json:"batch_id"`
	RunIDs  []string `json:"run_ids"`
}

// Batch is how the runs of a batch stand. Every field is always present.
type Batch struct {
	ID          string `json:"id"`
	Total       int    `json:"total"` // runs that were submitted
	MaxParallel int    `json:"max_parallel"`

	CountWaiting bool `json:"count_waiting"` // see BatchRequest

	// Counts counts the runs that stand there, without the statuses of none. A
	// batch whose gateway died while it was made may have fewer than Total, until it
	// is submitted again under its key. Deleted runs count with the status in which they ended.
	Counts map[string]int `json:"counts"`

	// Deleted is the number of runs that were deleted: they are not in the page.
	Deleted int `json:"deleted"`

	// Done reports whether all have ended.
	Done      bool       `json:"done"`
	CreatedAt state.Time `json:"created_at"`

	// Page has the runs in the order of the request.
	Page[BatchRun]
}

// BatchSummary is a batch in a list: as Batch, without its runs.
type BatchSummary struct {
	ID           string         `json:"id"`
	Total        int            `json:"total"`
	MaxParallel  int            `json:"max_parallel"`
	CountWaiting bool           `json:"count_waiting"`
	Counts       map[string]int `json:"counts"`
	Deleted      int            `json:"deleted"`
	Done         bool           `json:"done"`
	CreatedAt    state.Time     `json:"created_at"`
}

// BatchRun is how one run of a batch stands.
type BatchRun struct {
	Index  int    `json:"index"`
	ID     string `json:"id"`
	Status string `json:"status"`

	// Reason is the terminal or the waiting reason; null otherwise. A run that the
	// batch holds is in waiting_schedule.
	Reason *string `json:"reason"`
}

// Terminal reports whether the run has ended.
func (r BatchRun) Terminal() bool { return state.Status(r.Status).Terminal() }

// Asks reports whether the run waits for a person or an external process.
func (r BatchRun) Asks() bool {
	if r.Reason == nil {
		return false
	}
	switch state.Reason(*r.Reason) {
	case state.WaitingApproval, state.WaitingClientTool, state.WaitingHumanInput:
		return true
	default:
		return false
	}
}
