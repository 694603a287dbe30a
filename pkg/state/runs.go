package state

import (
	"context"
	"slices"
	"time"
)

// Runs creates and reads runs.
type Runs interface {
	// Create stores a new run, its header and its log, durably. The run has the status of its State:
	// Queued, Waiting for its start, or ended if it replaces a lost run. Its open waits are
	// State.Accepts. Create also schedules the run to be due after RedeliveryDelay, or at its State.Due if that
	// is earlier, so that no run is lost if the caller dies before it publishes the first turn.
	//
	// Create looks at the key first. If a run has the key, Create returns that run with Existing true, or
	// ErrIdempotencyConflict if the fingerprints differ. A deletion frees the key of its run. If the Create that took
	// the key has not stored its run, Create stores run under the id of that call. If a run has the id, Create returns
	// that run with Existing true. If a run with the id was deleted less than MarkerLifetime ago, Create returns
	// ErrDeleted. So until the run is deleted, a repetition with the same id, or with a key that the store still keeps,
	// returns that run.
	//
	// A new run with a Guard is created only if that is the AgentVersion.Guard of the latest version of the state's
	// agent, and the agent is not deleted. Else Create returns ErrChanged and takes no key. A store that gives no
	// guards, or does not keep the agents, returns ErrChanged whenever Guard is set.
	Create(ctx context.Context, run NewRun) (Created, error)

	// Load returns the current header of a run without its log. Like all methods that name a run, unless their comment
	// says otherwise, it returns ErrNotFound if the run does not exist. For MarkerLifetime after the deletion of a run
	// that error is ErrDeleted, which is an ErrNotFound.
	Load(ctx context.Context, id RunID) (State, error)

	// LoadByKey returns the run that Create returns for this tenant, key and fingerprint, as Load
	// returns it, and creates nothing. It returns ErrIdempotencyConflict if the key is known with
	// another fingerprint, and ErrNotFound if no run has the key: the key is unknown or empty, its
	// run was deleted, or the Create that took it has not stored the run yet.
	LoadByKey(ctx context.Context, tenant, key, fingerprint string) (State, error)

	// Log returns up to limit entries of a run's log after the first `after` entries, including
	// journaled entries of the turn in flight, or ErrNotFound. limit 0 means all. It returns no
	// entries, and no error, if the log is not longer than after. For a moment after another process has
	// deleted the run, it may still return entries. Callers that need not hold a whole log read it in
	// pages: the next page follows the last entry of the previous one.
	Log(ctx context.Context, id RunID, after int64, limit int) ([]Entry, error)

	// LogPage returns the entries that Log would return, but ends the page early, after at least one entry,
	// once its entries have `bytes` bytes, as the store estimates them. So a caller with a positive limit and
	// positive bytes holds about those bytes and one entry, however large the log is. bytes 0 means no bound.
	LogPage(ctx context.Context, id RunID, after int64, limit, bytes int) (LogPage, error)

	// Admit counts runs among the descendants of a root, up to limit of them in all, each run once
	// however often the caller asks. It goes through runs in their order and refuses those that are
	// new once the limit is reached. Admit refuses all new runs if the root has ended or has a pending
	// abort, and returns ErrNotFound if it does not exist. Runs need not exist. Runs stay counted
	// until the root is deleted, and Seal returns them.
	Admit(ctx context.Context, root RunID, runs []RunID, limit int) (Admitted, error)

	// List returns the runs that f matches (Filter.Match of the State that Load returns), newest
	// first: by id, descending. List and Counts may briefly lag behind the writes of other
	// processes. A page with a Next may have fewer runs than its limit, or none: a store need not
	// examine more than a thousand runs for a page. A run that is created while a caller reads pages
	// may be missing.
	List(ctx context.Context, f Filter) (RunPage, error)
}

// LogPage is one page of a log.
type LogPage struct {
	Entries []Entry
	More    bool // the log has entries after these
}

// Created is the result of Create.
type Created struct {
	State    State // as Load returns it
	Existing bool  // the run existed before
	Noisy    bool  // see NoisyAbove; false if the run existed before
}

// NewRun is a run to create.
type NewRun struct {
	// State has made its first transition and carries its whole log.
	State State

	// Key makes Create idempotent within the state's tenant; empty means no key. Fingerprint identifies the content of
	// the submission. A store keeps a key for at least a week, unless Delete deletes the run before: that frees the
	// key.
	Key         string
	Fingerprint string

	// Guard makes Create check that the run has the latest version of its agent; empty means no check. So a caller
	// that knows an AgentVersion need not read it again.
	Guard string

	// RedeliveryDelay is the time that the run's turn message has before the sweeper considers the
	// run due.
	RedeliveryDelay time.Duration

	// Indexed names at most MaxIndexed metadata keys. A store with an index enters the run under its value of each of
	// them, for a List with Filter.Indexed; keys that the run's metadata lacks have no effect. It keeps these names
	// (IndexNames) with the run, so that Delete can remove them even if the tenant's keys have changed since.
	Indexed []string
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

	// Indexed maps metadata keys of Tenant to a run id each: the tenant's runs with that id, or a later one, were
	// created with the key in NewRun.Indexed. It changes the cost of a list, not its result: of the runs from that
	// id on, a store with an index need examine only those with the value that Metadata has for the key. It also
	// examines older ones, and a store without an index ignores Indexed. IndexNames has the names to look up.
	Indexed map[string]RunID

	// Bytes ends a page early, with Next, before the store would read more bytes of runs for it, but not before it has
	// read one; 0 means no bound. A store of one process, which holds all runs in memory, may ignore it.
	Bytes int
}

// RunPage is one page of runs.
type RunPage struct {
	Runs []State
	Next string // empty at the end
}

// Match reports whether f selects s. It ignores Cursor, Limit, Indexed and Bytes.
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
