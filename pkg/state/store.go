package state

import (
	"context"
	"time"
)

// Store is the whole port: all that a deployment stores. It has four parts, which share no data, so
// each can be written, tested and stored separately. Implementations pass turnpiketest.Store, or
// the suites of the parts that they have: turnpiketest.RunStore, AdminStore, Quotas and Timers.
//
// A method that changes something makes one atomic change: it happens completely or not at all. A method
// that changes several runs or timers makes one such change for each of them. Create, Delete, PutAgent and
// Quotas.Pause may stop between two changes if the process or the server fails; a repetition completes them.
// When the method returns nil, the change is as durable as the server makes the writes that it acknowledges.
// An error that this package declares means that nothing has changed, unless a comment says otherwise (see
// UnconfirmedError). After any other error, such as a timeout or a broken connection, the outcome is unknown.
// The caller may then repeat the call with the same arguments, and it applies once, unless the method's comment
// says otherwise. A store may itself repeat a call after it has lost the reply of its server: then the caller gets
// the result that the comment gives for a repetition. A method that waits for a server returns an error when ctx
// ends; its change may still happen. A store whose server limits the size of a write returns a *TooLargeError for
// a larger run, agent or document.
//
// All methods may be called concurrently, by any number of processes that share the store's data.
// Each method takes effect at one moment between its call and its return, and later calls see it,
// from whichever process they come, except those whose comment says that they may lag or miss something.
//
// Errors may be wrapped: callers use errors.Is and errors.As. Callers must not modify values that a Store
// has returned, or that they have passed to a Store: both may be shared.
type Store interface {
	RunStore
	AdminStore
	Quotas
	Timers
}

// RunStore is the first part of the port: runs, with their turns, signals and schedule, the workers that
// execute them, and the sums of their figures.
//
// Calls about one run are linearizable, except as the comments of Claim and Log say. Calls about several
// runs (List, Counts, Sweep, Evict, Owners, Leases) treat each run by itself: they are not snapshots, and
// may briefly miss changes that other processes have made.
//
// # What a store keeps of a run
//
// The header is the State that the last transition left, without its log. EncodeState and
// DecodeState store it. The log is a list of entries with the numbers 1 to n (EncodeEntry and
// DecodeEntry): first the committed ones, then those that the turn in flight has journaled.
//
// In addition a store keeps the run's status, which differs from that of the header between a
// change of the schedule and the next transition. A run is Queued when its next turn needs a worker,
// Running while a worker holds its lease, else Waiting or ended as in the header. The version is
// that of the header. Readers (Create, Load, List, Counts) get State.As, with the status of
// the schedule and the time of the run's first claim.
//
// A run that Create or Commit leaves Queued, and one that Signal, Abort, Evict or Release queues, is due after the
// delay of the call; one that Sweep queues may be due later, see Sweep. A run that Create or Commit leaves Waiting or
// ended is also due after the delay of the call, because it is not finalized yet, or at its State.Due if that is
// earlier.
//
// A store does not read or change a run in a newer format (State.CheckFormat). Claim then returns
// ClaimUnsupportedFormat. Sweep, Evict, List and Counts may omit the run. Other methods return ErrFormat if they would
// have to read or change the run; those of a lease may return ErrFenced instead.
//
// Times are those of the store's clock, which all processes share. Durations may be 0: a lease of
// 0 is over at once, a run with a redelivery delay of 0 is due at once.
type RunStore interface {
	Runs
	Deletions
	Turns
	Signals
	Schedule
	Workers
	HourlyFigures

	// SetFormat sets the format in which this process writes runs from now on: the oldest until the first
	// call. It takes a number below 1 as 1, and one above Format as Format. A store never writes a run in
	// an older format than the run has. The caller must know which formats all processes of the deployment
	// can read. Stores embed FormatSetting, which has this method, and write State.Formatted(Written()).
	SetFormat(format int)

	// Now returns the store's time, which decides when runs wake and leases end.
	Now(ctx context.Context) (time.Time, error)

	// Ready returns nil if the store can read and write runs now: a server that answers but is full
	// is not ready. Ready may check only one part of a cluster.
	Ready(ctx context.Context) error
}

// AdminStore is the second part of the port: definitions, documents, and the audit trail.
type AdminStore interface {
	Agents
	Documents
	Audits
}

// Checker is an optional interface of a store that can check the settings of its server. The other optional
// interface is io.Closer: the process that opened the store closes it once, when no call is in flight.
type Checker interface {
	// Check returns what it found: which of the settings that it checks are wrong, and some that are OK. A process does
	// not start if a Finding is Fatal and not OK. A server that does not answer is such a Finding, not an error.
	Check(ctx context.Context) []Finding
}
