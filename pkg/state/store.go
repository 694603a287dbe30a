package state

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Limits of a run's inbox, which holds signals until the run's next turn. An abort does not count
// towards them and always fits.
const (
	MaxSignals     = 1000
	MaxSignalBytes = 8 << 20 // encoded
)

// InboxFullError reports a signal that does not fit into the run's inbox. The run's next turn
// empties the inbox.
type InboxFullError struct {
	ID           RunID
	Signals      int64 // including this one
	Bytes, Limit int64
}

func (e *InboxFullError) Error() string {
	return fmt.Sprintf("the inbox of run %s is full: with this signal %d signals of %d bytes would wait for its next turn, at most %d of %d bytes may: send less at once, or wait for the turn",
		e.ID, e.Signals, e.Bytes, MaxSignals, e.Limit)
}

// Store keeps runs and agent definitions. Implementations pass statetest.Exercise, which tests the
// guarantees below.
//
// Every method that changes a run is one atomic step. When it returns nil, the change is as durable
// as the server makes what it acknowledges. The caller may repeat a call whose outcome is unknown
// (a timeout, a broken connection) with the same arguments: it applies once. Methods return early
// when ctx ends; their change may still happen.
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

	// Ready returns nil if the store can read and write runs now: a server that answers but is full
	// is not ready. Ready may check only one part of a cluster.
	Ready(ctx context.Context) error
}

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

// Turns is the turn protocol: claim, record, commit.
type Turns interface {
	// Claim gives the caller the lease of a run for the turn that follows version, unless Outcome
	// gives a reason not to. It checks, in this order: behind, missing, deleted, newer, terminal,
	// stale, ahead, waiting, busy, deferred. Attempt counts the claims of this version, including
	// this one and excluding a Commit.EagerClaim that this one replaces.
	Claim(ctx context.Context, r ClaimRequest) (Claim, error)

	// Renew extends a lease and returns the abort that is pending for the run, or nil.
	Renew(ctx context.Context, l Lease, lease, delay time.Duration) (*Abort, error)

	// Record journals what must survive a crash of the turn: log entries (a model response, before
	// any of its tools starts), start marks and tool results. It is all or nothing, and fenced by
	// the lease (I3, I4). A store refuses results that do not fit with a *TooLargeError if the turn
	// can still be committed without them. Like Renew, Record returns a pending abort, or nil; if
	// there is one, the caller must not start anything that the record precedes.
	//
	// If Evict, Sweep or another worker's claim ended the lease, its worker may only have been
	// paused. The store then keeps late results for the worker that takes over the turn, if their
	// calls were started, have no result yet, and have no Start from another worker. Record returns
	// ErrFenced in any case.
	Record(ctx context.Context, l Lease, r Record) (*Abort, error)

	// Commit ends the turn: it appends entries, replaces the header, deletes the consumed signals
	// and the journal, ends the lease and reschedules the run. The resulting status is that of the
	// header, except that a run that would wait or end, but has pending signals or a pending abort,
	// becomes Queued. Repeating a commit with the same Commit.ID returns the same result, except
	// for Claimed. With Commit.EagerClaim, the same step may also claim the next turn.
	Commit(ctx context.Context, l Lease, c Commit) (Committed, error)

	// Release ends a lease without counting the attempt. The run becomes due after delay; no
	// backlog covers it, because the worker may have acknowledged its message. If Evict, Sweep or
	// another worker's claim has ended the lease, Release records, once, that the worker was only
	// paused, and returns ErrFenced.
	Release(ctx context.Context, l Lease, delay time.Duration) error
}

// ClaimRequest asks for a run's lease.
type ClaimRequest struct {
	Run     RunID
	Version int64 // of the state that the turn follows

	// Token is random and unique to this claim. A counter could repeat after a failover.
	Token  string
	Worker string

	Lease           time.Duration // the lease duration without Renew
	RedeliveryDelay time.Duration // time from the end of the lease until the sweeper checks the run

	// Refuse makes Claim return ClaimDeferred, and change nothing, if the attempt would be one of
	// these: a worker that dies between a claim and its release would have used up an attempt that
	// it did not mean to make. Claim ignores Refuse if the run has a pending abort.
	Refuse Attempts
}

// Attempts is a range of attempt numbers, both ends included, pauses not counted. Zero is empty.
type Attempts struct{ From, To int }

// Outcome is the result of a claim.
type Outcome string

// The outcomes of a claim.
const (
	Claimed                Outcome = "claimed"
	ClaimMissing           Outcome = "missing"  // no such run
	ClaimDeleted           Outcome = "deleted"  // the run was deleted
	ClaimUnsupportedFormat Outcome = "newer"    // the run has a newer format
	ClaimTerminal          Outcome = "terminal" // the run has ended
	ClaimStale             Outcome = "stale"    // the turn was already committed
	ClaimStoreBehind       Outcome = "ahead"    // the store is older than the message
	ClaimWaiting           Outcome = "waiting"  // the run waits for a signal
	ClaimBusy              Outcome = "busy"     // another worker holds the lease
	ClaimDeferred          Outcome = "deferred" // ClaimRequest.Refuse excludes this attempt
	ClaimBehind            Outcome = "behind"   // the store is an older copy, and an operator must decide: see internal/restore
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
	Base    int64   // number of committed log entries; the rest are journaled
	Journal Journal // of the turn in flight
	Signals []Signal
	Abort   *Abort
	Attempt int
	Paused  int // number of attempts that ended because their worker was paused, see Release

	// TakenOver is the time, by the store's clock, at which the latest earlier attempt lost its
	// lease. Its worker may still report results. Zero if no attempt has lost its lease.
	TakenOver Time
	Now       time.Time // the store's clock; zero if the store answered from memory
}

// Lease is proof of a claim.
type Lease struct {
	Run     RunID
	Token   string
	Version int64
	Worker  string
}

// Journal is what earlier attempts recorded about a turn.
type Journal struct {
	Started map[string]bool  // by call id: the tool may have run
	Starts  map[string]Start // by call id: the latest Start; nil if there are none
	Results map[string]Entry // by call id: the tool.finished or tool.reused entry
}

// Start is the data that a worker needs to ask the tool's probe about a call.
type Start struct {
	CallID string `json:"call_id"`
	Key    string `json:"key"`   // its idempotency key
	Until  Time   `json:"until"` // time by which the tool must have ended, by the store's clock

	// Arguments are those that the tool received, if they differ from those in the log.
	Arguments string `json:"arguments,omitempty"`

	// Again reports whether the probe found that the previous start had no effect.
	Again bool `json:"again,omitempty"`

	// Token is the token of the lease under which the start was recorded. The store sets it.
	Token string `json:"token"`
}

// Record is a write to the journal of a turn.
type Record struct {
	// From is the length of the log before Entries. If the log is already longer by exactly these
	// entries, the call is a repetition and succeeds.
	From    int64
	Entries []Entry
	Started []string
	Starts  []Start // of calls that are also started; the last writer wins
	Results []Entry // keyed by CallID; the first writer wins

	// Awaits are waits to open now, before the turn ends, because the result of an asynchronous
	// tool may arrive earlier.
	Awaits []string
}

// Commit is the end of a turn.
type Commit struct {
	// ID names this commit; the store remembers the last one.
	ID string

	// State is the next header. Entries of its Log after From are appended.
	State State
	From  int64

	// Consumed is the number of signals, oldest first, that the turn has consumed.
	Consumed int

	// RequireInboxConsumed makes Commit return ErrUnconsumedSignals, instead of ending the
	// run, while the inbox holds unconsumed signals. Signals that arrived after an abort do
	// not count: they continue the run after its end.
	RequireInboxConsumed bool

	RedeliveryDelay time.Duration // see NewRun

	// EagerClaim, if not empty, is a token. The commit then also claims the next turn under it, for
	// the same worker and for RedeliveryDelay, if it leaves the run Queued without pending signals
	// or abort. Until the worker renews the lease or records under it, any other claim replaces it:
	// if another worker receives the turn message, it executes the turn.
	//
	// If the same process then calls Claim with that token, the store may answer from memory with
	// the run as the commit left it. In that case the first write shows whether the lease is still
	// valid and what has arrived for the run since.
	EagerClaim string
}

// Committed is the result of a commit.
type Committed struct {
	Status  Status
	Version int64
	Noisy   bool `json:"-"` // see NoisyAbove

	// Claimed reports whether the next turn is claimed under Commit.EagerClaim; for a repeated
	// commit, whether it still is. The claim is attempt 1, with an empty journal.
	Claimed bool `json:"-"`
}

// Abort is a request to end a run.
type Abort struct {
	Reason string `json:"reason"`
	By     *By    `json:"by,omitempty"`
}

// Signals delivers messages from outside to a run.
type Signals interface {
	// Signal puts sig into the inbox of a run and wakes the run. All waits that sig names must be
	// open, else Signal refuses the whole signal with a *NotWaitingError; of two signals for one
	// wait, exactly one succeeds. Signal accepts a user message in every status; it continues a run
	// that has ended. If the run has seen the signal's ID, Signal changes nothing and returns the
	// zero Wake and nil, or ErrIdempotencyConflict if both have fingerprints and they differ. It
	// refuses a signal that does not fit into the inbox with an *InboxFullError, and a message to a
	// run whose deletion has begun with ErrDeleting.
	Signal(ctx context.Context, id RunID, sig Signal, delay time.Duration) (Wake, error)

	// Abort marks a run to be ended and wakes it if it waits. Abort may be repeated; the first
	// abort stays. If the run has ended, Abort returns a *TerminalError.
	Abort(ctx context.Context, id RunID, abort Abort, delay time.Duration) (Wake, error)
}

// Wake is the turn that a caller must publish.
type Wake struct {
	Publish  bool // true if a turn message is needed
	Version  int64
	Priority Priority
	Tenant   string // the owner of the run
	Noisy    bool   // see NoisyAbove; an abort overtakes in either case
}

// NoisyAbove is the number of runs in flight (queued or running) that one tenant may have on one
// shard before the tenant is noisy there. A store marks each run that it queues while there are
// more, including that run; its turn goes to the queue that noisy tenants share. A tenant with a
// thousand runs in flight is noisy on nearly every shard, one with ten on none. The mark is a hint,
// not a promise.
const NoisyAbove = 2

// Schedule finds runs that need attention. A delay is the redelivery delay: the time that the
// message of a run's turn has before the run is due.
type Schedule interface {
	// Sweep returns up to limit due runs, each at most once per delay (backing off up to 64 times
	// that), and reschedules them: runs whose turn message or worker was lost, runs whose wait has
	// expired (Sweep queues them), and waiting or ended runs that are not finalized. It returns a
	// queued run that the backlog covers once, with Covered, in case its message was never
	// published; after that, Sweep checks it again much later.
	Sweep(ctx context.Context, limit int, delay time.Duration, backlog Backlog) ([]Due, error)

	// Evict ends up to limit of the leases that worker holds, counts the attempts, and returns the
	// runs, due at once. If it returns fewer than limit, no more leases remain. If several callers
	// evict the same worker, each gets a part.
	Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]Due, error)

	// Owners returns the workers that hold leases.
	Owners(ctx context.Context) ([]string, error)

	// Leases returns up to limit of the runs whose lease worker holds, as far as the index behind
	// Owners has them.
	Leases(ctx context.Context, worker string, limit int) ([]RunID, error)

	// Heartbeat records that a worker is alive, for the duration lasts. Alive reports whether a
	// worker is, as far as the store knows. A store on the system that also carries the heartbeats
	// between workers may record none; its Alive returns false.
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

// Backlog is, for each lane, the time at which its oldest unfetched message was queued, by the
// clock of the bus. A lane without one is empty. A run that was queued after that time, or at most
// MaxSkew before it, waits behind that message.
type Backlog map[Priority]time.Time

// MaxSkew is the maximum difference between the clocks of a deployment.
const MaxSkew = 5 * time.Second

// BacklogLook is the minimum number of redelivery delays before Sweep checks a run again that the
// backlog covers. If the run has waited longer than that, Sweep waits as long again, so that a long
// backlog costs sweeps less and less.
const BacklogLook = 16

// Covers reports whether the message of a run that was queued in lane at the given time is
// still in the backlog.
func (b Backlog) Covers(lane Priority, queued time.Time) bool {
	oldest, ok := b[lane]
	return ok && !queued.IsZero() && !queued.Before(oldest.Add(-MaxSkew))
}

// Due is a run that needs attention.
type Due struct {
	Run       RunID
	Version   int64
	Priority  Priority // High if the run has a pending abort
	Sweeps    int      // number of sweeps of this version, including this one
	NeedsTurn bool     // publish the turn that follows Version
	Covered   bool     // the backlog covers the run: publish under the turn's own id, so that the bus drops the message if it has it
	Noisy     bool     // selects the queue: see NoisyAbove
	Tenant    string

	// Finalize is true if the run is waiting or has ended, and its log is longer than
	// FinalizedSeq or the run waits for other runs.
	Finalize     bool
	FinalizedSeq int64 // see Schedule.MarkFinalized
}
