package state

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The limits of what may wait for a run's next turn in its inbox. An abort is not a part of
// it, and always fits.
const (
	MaxSignals     = 1000
	MaxSignalBytes = 8 << 20 // encoded
)

// InboxFullError reports a signal for which the inbox of its run has no capacity left. The
// next turn of the run empties it.
type InboxFullError struct {
	ID           RunID
	Signals      int64 // in the inbox with this one
	Bytes, Limit int64
}

func (e *InboxFullError) Error() string {
	return fmt.Sprintf("the inbox of run %s is full: with this signal %d signals of %d bytes would wait for its next turn, at most %d of %d bytes may: send less at once, or wait for the turn",
		e.ID, e.Signals, e.Bytes, MaxSignals, e.Limit)
}

// Store keeps runs and agent definitions. Implementations pass
// statetest.Exercise, which holds the guarantees below.
//
// Every method that changes a run is one atomic step, durable when it returns
// nil as far as the server syncs what it acknowledges. A call whose outcome is
// unknown (a time-out, a broken connection) may be repeated with the same
// arguments: it applies once. Methods return early when ctx ends; what they were
// about to do may still happen.
//
// A store neither reads nor changes a run in a newer format: Claim returns
// ClaimUnsupportedFormat. Sweep, Evict, List and Counts may omit the run. All other methods
// that name it return ErrFormat.
//
// Entries and states that a Store returns are shared and must not be modified.
type Store interface {
	Runs
	Deletions
	Turns
	Signals
	Schedule
	Agents
	Documents
	Audits
	Quotas

	// SetFormat sets the format in which the store writes runs from now on: the oldest until
	// the first call, and at most Format. A store never writes a run in an older format than
	// the run has. The caller must know which formats all processes of the deployment can read.
	SetFormat(format int)

	// Now returns the store's time, by which it wakes runs and ends leases.
	Now(ctx context.Context) (time.Time, error)

	// Ready returns nil if runs can be read and written now: a server that answers but
	// is full is not ready. Of a cluster it may look at one part only.
	Ready(ctx context.Context) error
}

// Runs creates and reads runs.
type Runs interface {
	// Create stores a new run: its header and log, durable before it returns. It
	// enters the schedule, due after its RedeliveryDelay, so that a caller that
	// dies before it publishes the first turn loses nothing. With an idempotency key that is
	// known, the earlier run is returned with Existing true; if its fingerprint
	// differs, ErrIdempotencyConflict. Creating an id that exists returns that
	// run with Existing true, and ErrDeleted if that run was deleted.
	Create(ctx context.Context, run NewRun) (Created, error)

	// Load returns the header of a run as it stands, without its log, or
	// ErrNotFound.
	Load(ctx context.Context, id RunID) (State, error)

	// Log returns up to limit entries of a run's log after the first `after`
	// entries, or ErrNotFound. limit 0 means all. Journaled entries of the turn
	// in flight are included.
	Log(ctx context.Context, id RunID, after int64, limit int) ([]Entry, error)

	// Admit counts runs among the descendants of a root, each once however often it is
	// asked, until there are limit of them. A root that has ended, or is to be aborted, takes
	// none that is new; ErrNotFound if there is none.
	Admit(ctx context.Context, root RunID, runs []RunID, limit int) (Admitted, error)

	// List returns the runs that match f, the newest first. It may lag behind the
	// writes of other processes for a moment; so may Counts. A page may have fewer runs
	// than its limit, and a cursor: a store need not look at more than a thousand
	// runs for it.
	List(ctx context.Context, f Filter) (RunPage, error)
}

// Created is the run that Create came to.
type Created struct {
	State    State
	Existing bool // the run was there before
	Noisy    bool // see NoisyAbove; false of a run that was there before
}

// NewRun is a run to create.
type NewRun struct {
	// State has made its first transition and carries its whole log.
	State State

	// Key, with Tenant of the state, makes Create idempotent; empty is no key.
	// Fingerprint identifies what was submitted under it. Stores keep keys for at
	// least 24 hours.
	Key         string
	Fingerprint string

	// RedeliveryDelay is how long the run is left to the message of its turn before the
	// sweeper finds it due.
	RedeliveryDelay time.Duration
}

// Admitted says which runs a tree has taken.
type Admitted struct {
	Refused []RunID // in the order in which they were asked for
	Ended   bool    // the root has ended, or is to be aborted
}

// Filter selects runs. Zero fields match everything.
type Filter struct {
	Tenant       string
	Status       []Status
	Waiting      Reason // what waiting runs wait for
	Agent        string
	Loop         string
	Metadata     map[string]string
	Parent       RunID
	Parents      []RunID // any of them; some hundreds at most
	Batch        string  // its id
	CreatedAfter time.Time
	Cursor       string // opaque, from RunPage.Next
	Limit        int    // 0 means 50

	// Bytes ends a page early, with Next, once that many were read for it; 0 is no bound. Stores
	// that have all runs in memory read none.
	Bytes int
}

// RunPage is one page of runs.
type RunPage struct {
	Runs []State
	Next string // empty at the end
}

// Match reports whether f selects s. Cursor and Limit play no part.
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

// Turns is the turn protocol: claim, record, commit.
type Turns interface {
	// Claim gives the caller the lease of a run for the turn that follows
	// version, unless Outcome says why not. It checks, in this order: missing, deleted, newer,
	// terminal, stale, ahead, waiting, busy. Attempt counts the claims of this
	// version, this one included, but not one of Commit.EagerClaim that this one takes over.
	Claim(ctx context.Context, r ClaimRequest) (Claim, error)

	// Renew prolongs a lease and returns the reason of an abort that has come in
	// since, or nil.
	Renew(ctx context.Context, l Lease, lease, delay time.Duration) (*Abort, error)

	// Record journals what must survive a crash of the turn: entries for the end
	// of the log (a model response, before any tool of it starts), start marks,
	// and tool results. All or nothing, fenced by the lease (I3, I4). Results for
	// which a store has no capacity are refused with a *TooLargeError, as long as their
	// turn can still be committed without them. Like Renew it returns a pending abort, or
	// nil: with one, the caller must start nothing that the record was to precede.
	//
	// A worker whose lease was ended by Evict, Sweep or the claim of another may only have
	// been paused. The store keeps results that it hands in late for the worker that takes
	// the turn over: of calls that were started, have no result yet, and have no Start of
	// another worker. The answer is ErrFenced in any case.
	Record(ctx context.Context, l Lease, r Record) (*Abort, error)

	// Commit ends the turn: it appends entries, replaces the header, drops the
	// signals used and the journal, gives up the lease and moves the run in the
	// schedule. The status that results differs from the header's in one case: a
	// run that would wait or end, but has signals or an abort in hand, is Queued.
	// Committing the same Commit.ID again returns the same answer, but for Claimed.
	// With Commit.EagerClaim the same step may claim the turn that follows.
	Commit(ctx context.Context, l Lease, c Commit) (Committed, error)

	// Release gives up a lease and takes the attempt back. The run is due after a delay, whatever
	// the backlog: its message may have been acknowledged.
	// If Evict, Sweep or the claim of another worker has ended the lease, Release notes once
	// that the worker was only paused, and returns ErrFenced.
	Release(ctx context.Context, l Lease, delay time.Duration) error
}

// ClaimRequest asks for a run's lease.
type ClaimRequest struct {
	Run     RunID
	Version int64 // of the state that the turn follows

	// Token is random and of this claim only: a counter would be handed out twice
	// after a failover.
	Token  string
	Worker string

	Lease           time.Duration // how long the claim holds without Renew
	RedeliveryDelay time.Duration // how long after that the sweeper looks

	// Refuse leaves a run as it is, with ClaimDeferred, if the attempt at its turn would be
	// one of these. A worker that dies between a claim and its release would have used up an
	// attempt of a turn that it did not mean to take. An aborted run is claimed all the same.
	Refuse Attempts
}

// Attempts are those from one number to another, pauses not counted; the zero value is none.
type Attempts struct{ From, To int }

// Outcome is what a claim found.
type Outcome string

// The outcomes of a claim.
const (
	Claimed                Outcome = "claimed"
	ClaimMissing           Outcome = "missing"  // no such run
	ClaimDeleted           Outcome = "deleted"  // the run was deleted
	ClaimUnsupportedFormat Outcome = "newer"    // the run has a newer format
	ClaimTerminal          Outcome = "terminal" // the run has ended
	ClaimStale             Outcome = "stale"    // the turn was already taken
	ClaimStoreBehind       Outcome = "ahead"    // the store is older than the message
	ClaimWaiting           Outcome = "waiting"  // the run waits for a signal
	ClaimBusy              Outcome = "busy"     // somebody else holds the lease
	ClaimDeferred          Outcome = "deferred" // it would be an attempt that was to be refused
	ClaimBehind            Outcome = "behind"   // the store is an older copy, and an operator has to decide: see internal/restore
)

// Claim is the result of a ClaimRequest. Status, Version, Priority, FinalizedSeq and LogLen
// describe the run for every outcome but ClaimMissing, ClaimDeleted, ClaimUnsupportedFormat and
// ClaimBehind. FinalizedSeq is 0 if the store answered from memory. The store sets the other
// fields for Claimed only.
type Claim struct {
	Outcome      Outcome
	Status       Status
	Version      int64
	Priority     Priority
	FinalizedSeq int64         // see Schedule.MarkFinalized
	LogLen       int64         // entries in the log
	Busy         time.Duration // ClaimBusy: until the lease ends

	Lease   Lease
	State   State   // the last committed header; its Log holds journaled entries too
	Base    int64   // entries of the log that are committed; the rest are journaled
	Journal Journal // of the turn in flight
	Signals []Signal
	Abort   *Abort
	Attempt int
	Paused  int // how many attempts ended because their worker paused, see Release

	// TakenOver is the time, by the store's clock, at which the latest attempt before this
	// one lost its lease: its worker may still hand in results. Zero if none has.
	TakenOver Time
	Now       time.Time // the store's clock; zero of an answer from memory
}

// Lease is proof of a claim.
type Lease struct {
	Run     RunID
	Token   string
	Version int64
	Worker  string
}

// Journal is what earlier attempts at a turn left behind.
type Journal struct {
	Started map[string]bool  // call id: the tool may have run
	Starts  map[string]Start // call id: its latest Start, if it has any; nil if none has
	Results map[string]Entry // call id: its tool.finished or tool.reused entry
}

// Start is what must be known of a call to ask the probe of its tool about it.
type Start struct {
	CallID string `json:"call_id"`
	Key    string `json:"key"`   // its idempotency key
	Until  Time   `json:"until"` // when the tool must have ended, by the store's clock

	// Arguments as the tool got them, if they are not those that the log has.
	Arguments string `json:"arguments,omitempty"`

	// Again says that the probe has said of the start before that it came to nothing.
	Again bool `json:"again,omitempty"`

	// Token is that of the lease under which it was recorded; the store sets it.
	Token string `json:"token"`
}

// Record is a write to the journal of a turn.
type Record struct {
	// From is the length of the log before Entries. If the log is already longer
	// by exactly these entries, the call was a repetition and succeeds.
	From    int64
	Entries []Entry
	Started []string
	Starts  []Start // of calls that are started as well; the last writer wins
	Results []Entry // keyed by CallID; the first writer wins

	// Awaits are waits to open at once, before the turn ends: the result of an
	// asynchronous tool may come sooner.
	Awaits []string
}

// Commit is a turn's end.
type Commit struct {
	// ID names this commit; the store remembers the last one.
	ID string

	// State is the next header. Entries of its Log after From are appended.
	State State
	From  int64

	// Consumed is how many signals, from the oldest, the turn has used.
	Consumed int

	// RequireInboxConsumed makes Commit return ErrUnconsumedSignals, instead of ending the
	// run, while the inbox holds unconsumed signals. Signals that arrived after an abort do
	// not count: they continue the run after its end.
	RequireInboxConsumed bool

	RedeliveryDelay time.Duration // see NewRun

	// EagerClaim, if not empty, is the token of a claim of the turn that follows, for
	// the same worker and for RedeliveryDelay. The claim is made if the commit leaves the
	// run Queued with neither signals nor an abort in hand. Until it is renewed or
	// recorded under, its lease gives way to any other claim: whoever gets the message of
	// the turn instead of the worker is to make the turn.
	//
	// Claim, asked under that token by the same process, may answer from memory how the
	// commit has left the run: whether the lease is still in force shows at the first
	// write then, like what has come for the run since.
	EagerClaim string
}

// Committed is what a commit came to.
type Committed struct {
	Status  Status
	Version int64
	Noisy   bool `json:"-"` // see NoisyAbove

	// Claimed says that the turn that follows is claimed under Commit.EagerClaim, and still is
	// if the commit was repeated. It is the first attempt, with an empty journal.
	Claimed bool `json:"-"`
}

// Abort is a request to end a run.
type Abort struct {
	Reason string `json:"reason"`
	By     *By    `json:"by,omitempty"`
}

// Signals takes messages from outside into a run.
type Signals interface {
	// Signal puts sig into the inbox of a run and wakes it. All waits that sig
	// names must be open, or the whole signal is refused with a
	// *NotWaitingError; of two signals for one wait exactly one is accepted. A
	// user message is accepted in every status and continues a run that has
	// ended. A signal whose ID the run has seen changes nothing: the Wake is the
	// zero value and the error nil, or ErrIdempotencyConflict if both have
	// fingerprints and they differ. One for which the inbox has no capacity is refused
	// with an *InboxFullError. A message to a run whose deletion has begun is refused with
	// ErrDeleting.
	Signal(ctx context.Context, id RunID, sig Signal, delay time.Duration) (Wake, error)

	// Abort marks a run to be ended and wakes it if it waits. Repeating it is
	// harmless; the first abort stays. A run that has ended gives a
	// *TerminalError.
	Abort(ctx context.Context, id RunID, abort Abort, delay time.Duration) (Wake, error)
}

// Wake tells a caller which turn to publish.
type Wake struct {
	Publish  bool // a turn message is needed
	Version  int64
	Priority Priority
	Tenant   string // the owner of the run
	Noisy    bool   // see NoisyAbove; an abort overtakes in any case
}

// NoisyAbove is how many runs of one tenant may be in flight, queued or running, on one
// shard before the tenant is noisy there. A store says so of each run that is queued while
// there are more, itself included: its turn goes to the queue that noisy tenants share. A
// tenant with a thousand runs in flight is noisy on nearly every shard, one with ten on
// none. What a store says is a hint, not a promise.
const NoisyAbove = 2

// Schedule finds runs that somebody must look at. A delay is the redelivery delay: how
// long a run is left to the message of its turn before it is due.
type Schedule interface {
	// Sweep returns up to limit runs that are due, at most once per delay each
	// (backing off up to 64 times that), and moves them on in the schedule: a
	// turn whose message or worker was lost, a wait whose time has come (the run
	// is queued by this call), and a run that rests and was not finalized. A queued run that
	// the backlog covers is returned once, with Covered, in case that its message was never
	// published. After that Sweep looks at it again much later.
	Sweep(ctx context.Context, limit int, delay time.Duration, backlog Backlog) ([]Due, error)

	// Evict ends up to limit of the leases that worker holds, counting the attempts, and
	// returns their runs, due at once. Fewer than limit are all that there were. Several
	// callers who evict the same worker each get a part.
	Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]Due, error)

	// Owners returns the workers that hold leases.
	Owners(ctx context.Context) ([]string, error)

	// Leases returns up to limit of the runs whose lease a worker holds, as far as Owners
	// knows of them.
	Leases(ctx context.Context, worker string, limit int) ([]RunID, error)

	// Heartbeat notes that a worker is alive, for a while. Alive reports whether one is,
	// as far as the store knows: a store on the system that carries the heartbeats
	// between workers need know nothing, and says no.
	Heartbeat(ctx context.Context, worker string, lasts time.Duration) error
	Alive(ctx context.Context, worker string) (bool, error)

	// MarkFinalized records that a worker finalized the run at seq log entries: it started
	// the children, notified the parent, sent the reply and started the next run of the
	// batch. A smaller seq than the recorded one changes nothing. A run whose whole log is
	// finalized is no longer due, unless it waits for other runs or has continued.
	MarkFinalized(ctx context.Context, id RunID, seq int64) error

	// Counts returns the number of runs by status.
	Counts(ctx context.Context) (map[Status]int64, error)
}

// Backlog says of each lane since when the oldest message waits in it that no worker has
// fetched, by the clock of the bus. A lane without one is empty. A run that was queued
// after that, or at most MaxSkew before it, waits behind it.
type Backlog map[Priority]time.Time

// MaxSkew is by how much the clocks of a deployment may differ.
const MaxSkew = 5 * time.Second

// BacklogLook is the minimum number of redelivery delays before Sweep looks again at a run that
// the backlog covers. Sweep leaves a run that has waited longer alone for as long again, so
// that a long backlog costs sweeps less and less.
const BacklogLook = 16

// Covers reports whether the message of a run that was queued in lane at the given time is
// still in the backlog.
func (b Backlog) Covers(lane Priority, queued time.Time) bool {
	oldest, ok := b[lane]
	return ok && !queued.IsZero() && !queued.Before(oldest.Add(-MaxSkew))
}

// Due is a run that somebody must look at.
type Due struct {
	Run       RunID
	Version   int64
	Priority  Priority // High if the run is to be aborted
	Sweeps    int      // how often this version was swept, this time included
	NeedsTurn bool     // publish the turn that follows Version
	Covered   bool     // the backlog covers the run: publish under the turn's own id, so that the bus drops the message if it has it
	Noisy     bool     // to which queue: see NoisyAbove
	Tenant    string

	// Finalize is true if the run is waiting or has ended, and its log is longer than
	// FinalizedSeq or the run waits for other runs.
	Finalize     bool
	FinalizedSeq int64 // see Schedule.MarkFinalized
}
