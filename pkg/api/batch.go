package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// BatchRequest submits 1 to 1,000 runs at once. Each run has the fields of a submission.
type BatchRequest struct {
	Runs []SubmitRequest `json:"runs"`

	// MaxParallel is the maximum number of runs in flight at once; 0 means all.
	MaxParallel int `json:"max_parallel,omitempty"`

	// CountWaiting counts runs that wait for a person as in flight. By default the batch
	// starts its next run when one of its runs first waits for a person. That run resumes
	// as soon as the person has decided, so more than MaxParallel may then be in flight.
	CountWaiting bool `json:"count_waiting,omitempty"`
}

// BatchAccepted is the response to a BatchRequest. RunIDs are in the order of its Runs.
type BatchAccepted struct {
	BatchID string   `json:"batch_id"`
	RunIDs  []string `json:"run_ids"`
}

// Batch is the progress of a batch. Every field is always present.
type Batch struct {
	ID          string `json:"id"`
	Total       int    `json:"total"` // number of runs in the request
	MaxParallel int    `json:"max_parallel"`

	CountWaiting bool `json:"count_waiting"` // see BatchRequest

	// Counts has the number of runs by status, without statuses that no run has. Deleted runs count with the status in
	// which they ended. While the gateway stores the runs, and if that failed, Counts may have fewer runs than Total: a
	// repetition of the request with its key stores the rest (see [Client.SubmitBatch]), until the batch is read or
	// listed five minutes after its creation or later. That records the missing runs for good as failed, with the
	// reason lost, unless the deployment waits for a decision about its store (Restore).
	Counts map[string]int `json:"counts"`

	// Deleted is the number of runs that were deleted. Items lacks them.
	Deleted int `json:"deleted"`

	// Done reports whether all runs have ended.
	Done      bool       `json:"done"`
	CreatedAt state.Time `json:"created_at"`

	// Page has the runs in the order of the request.
	Page[BatchRun]
}

// BatchSummary is a Batch without its runs, for lists.
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

// BatchRun is the state of one run of a batch.
type BatchRun struct {
	Index  int    `json:"index"`
	ID     string `json:"id"`
	Status string `json:"status"`

	// Reason is the terminal reason or the reason of the wait, otherwise nil. A run that is pending in its batch has
	// waiting_schedule.
	Reason *string `json:"reason"`
}

// Terminal reports whether the run has ended.
func (r BatchRun) Terminal() bool { return state.Status(r.Status).Terminal() }

// Asks reports whether the run waits for an approval, an answer, or the result of a client tool or an asynchronous
// tool.
func (r BatchRun) Asks() bool {
	if r.Reason == nil {
		return false
	}
	switch state.Reason(*r.Reason) {
	case state.WaitingApproval, state.WaitingClientTool, state.WaitingHumanInput, state.WaitingTool:
		return true
	default:
		return false
	}
}
