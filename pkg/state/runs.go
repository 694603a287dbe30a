package state

import (
	"context"
	"slices"
	"time"
)

// Runs creates and reads runs.
type Runs interface {
	// Create stores a new run, its header and its log, durably. It also schedules the run to be due
	// after its RedeliveryDelay, so that no run is lost if the caller dies before it publishes the
	// first turn. If the idempotency key is known, Create returns the earlier run with Existing
	// true, or ErrIdempotencyConflict if the fingerprints differ. If the id exists, it returns that
	// run with Existing true, or ErrDeleted if that run was deleted.
	Create(ctx context.Context, run NewRun) (Created, error)

	// Load returns the current header of a run without its log, or ErrNotFound.
	Load(ctx context.Context, id RunID) (State, error)

	// Log returns up to limit entries of a run's log after the first `after` entries, including
	// journaled entries of the turn in flight, or ErrNotFound. limit 0 means all.
	Log(ctx context.Context, id RunID, after int64, limit int) ([]Entry, error)

	// Admit counts runs among the descendants of a root, up to limit, each run once however often
	// the caller asks. Admit refuses new runs if the root has ended or has a pending abort, and
	// returns ErrNotFound if it does not exist.
	Admit(ctx context.Context, root RunID, runs []RunID, limit int) (Admitted, error)

	// List returns the runs that match f, newest first. List and Counts may briefly lag behind the
	// writes of other processes. A page with a cursor may have fewer runs than its limit: a store
	// need not examine more than a thousand runs for a page.
	List(ctx context.Context, f Filter) (RunPage, error)
}

// Created is the result of Create.
type Created struct {
	State    State
	Existing bool // the run existed before
	Noisy    bool // see NoisyAbove; false if the run existed before
}

// NewRun is a run to create.
type NewRun struct {
	// State has made its first transition and carries its whole log.
	State State

	// Key makes Create idempotent within the state's tenant; empty means no key. Fingerprint
	// identifies the content of the submission. Stores keep keys for at least 24 hours.
	Key         string
	Fingerprint string

	// RedeliveryDelay is the time that the run's turn message has before the sweeper considers the
	// run due.
	RedeliveryDelay time.Duration
}

// Admitted is the result of Admit.
type Admitted struct {
	Refused []RunID // in the order of the request
	Ended   bool    // the root has ended or has a pending abort
}

// Filter selects runs. Zero fields match everything.
type Filter struct {
	Tenant       string
	Status       []Status
	Waiting      Reason // the reason why waiting runs wait
	Agent        string
	Loop         string
	Metadata     map[string]string
	Parent       RunID
	Parents      []RunID // any of them; at most some hundreds
	Batch        string  // a batch id
	CreatedAfter time.Time
	Cursor       string // opaque, from RunPage.Next
	Limit        int    // 0 means 50

	// Bytes ends a page early, with Next, once the store has read that many bytes for it; 0 means
	// no bound. Stores that hold all runs in memory ignore it.
	Bytes int
}

// RunPage is one page of runs.
type RunPage struct {
	Runs []State
	Next string // empty at the end
}

// Match reports whether f selects s. It ignores Cursor, Limit and Bytes.
func (f Filter) Match(s State) bool {
	if f.Tenant != "" && s.Tenant != f.Tenant ||
		f.Agent != "" && s.Agent != f.Agent ||
		f.Loop != "" && s.Loop != f.Loop ||
		f.Parent != "" && (s.Parent == nil || s.Parent.RunID != f.Parent) ||
		len(f.Parents) > 0 && (s.Parent == nil || !slices.Contains(f.Parents, s.Parent.RunID)) ||
		f.Batch != "" && s.BatchID() != f.Batch ||
		!f.CreatedAfter.IsZero() && !s.CreatedAt.After(f.CreatedAfter) {
		return false
	}
	if f.Waiting != "" && (s.Waiting == nil || s.Waiting.Reason != f.Waiting) {
		return false
	}
	if len(f.Status) > 0 {
		ok := false
		for _, st := range f.Status {
			ok = ok || st == s.Status
		}
		if !ok {
			return false
		}
	}
	for k, v := range f.Metadata {
		if got, ok := s.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}
