package state

import (
	"context"
	"time"
)

// Store is the whole port: all that a deployment stores. It has three parts, none of which reads
// what another one writes, so each can be written, tested and stored by itself. Implementations pass
// turnpiketest.Store, or the suite of the parts that they have: turnpiketest.RunStore, AdminStore
// and Quotas.
//
// A method that changes something makes one atomic change: it happens completely or not at all. When
// the method returns nil, the change is as durable as the server makes what it acknowledges. An
// error that this package declares means that nothing has changed, unless a comment says otherwise.
// After any other error the outcome is unknown: a timeout, a broken connection. The caller may then
// repeat the call with the same arguments, and it applies once, unless the method's comment says
// otherwise. Methods return early when ctx ends; their change may still happen.
//
// All methods may be called concurrently, by any number of processes that share the store's data.
// Each method takes effect at one moment between its call and its return, and later calls see it,
// from whichever process they come. Exceptions say that they may lag.
//
// Errors may be wrapped: callers use errors.Is and errors.As. Callers must not modify what a Store
// returns, nor what they have given to it: both may be shared.
type Store interface {
	RunStore
	AdminStore
	Quotas
}

// RunStore is the first part of the port, runs and turns: what a worker needs to take turns, and
// all that is stored about runs.
//
// Calls about one run are linearizable. Calls about several runs (List, Counts, Sweep, Evict,
// Owners, Leases) treat each run by itself; they are not snapshots.
//
// A store neither reads nor changes a run in a newer format (State.CheckFormat): Claim returns
// ClaimUnsupportedFormat. Sweep, Evict, List and Counts may omit the run. All other methods
// that name it return ErrFormat. If Create finds such a run, it returns Existing and ErrFormat.
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

	// SetFormat sets the format in which this process writes runs from now on: the oldest until
	// the first call, and at most Format. A store never writes a run in an older format than
	// the run has. The caller must know which formats all processes of the deployment can read.
	// Stores embed FormatSetting, which has this method, and write State.Formatted(Written()).
	SetFormat(format int)

	// Now returns the store's time, by which it wakes runs and ends leases.
	Now(ctx context.Context) (time.Time, error)

	// Ready returns nil if the store can read and write runs now: a server that answers but is full
	// is not ready. Ready may check only one part of a cluster.
	Ready(ctx context.Context) error
}

// AdminStore is the second part of the port: what people define, and the record of what they did.
type AdminStore interface {
	Agents
	Documents
	Audits
}

// Checker is an optional ability of a store: to say which settings of its server are wrong. The
// other one is io.Closer: the process that opened the store closes it once, when no call is in
// flight.
type Checker interface {
	// Check returns what it found, one Finding for each setting, good ones included. A process does
	// not start if one of them is Fatal. A server that does not answer is a finding.
	Check(ctx context.Context) []Finding
}
