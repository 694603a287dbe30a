package state

import (
	"context"
	"time"
)

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
