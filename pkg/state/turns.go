package state

import (
	"context"
	"time"
)

// Turns is the turn protocol: claim, record, commit.
type Turns interface {
	// Claim gives the caller the lease of a run for the turn that follows ClaimRequest.Version, unless
	// Outcome gives a reason not to. It checks, in this order: behind, missing, deleted, newer, terminal,
	// stale, ahead, waiting, busy, deferred. With any Outcome but Claimed it changes nothing. That no
	// such run exists, or that its format is newer, is an Outcome and not an error. If a store answers
	// the claim of a Commit.EagerClaim from memory, it changes nothing and misses later changes.
	//
	// With Claimed the run is Running, its lease ends ClaimRequest.Lease from now, and the run is due
	// ClaimRequest.RedeliveryDelay after that. If the run was Running under another token, and its
	// lease was over, this claim takes that lease away (see Record and Release).
	//
	// Attempt counts the claims of this version, including this one, without those whose lease Release has
	// ended. A repetition under the token of the lease in force counts once, and its lease ends
	// ClaimRequest.Lease from now. A Commit.EagerClaim that this claim replaces while its lease lasts
	// does not count, and its worker did not lose a lease.
	//
	// The Claim is new, so the caller may change it, and never nil: it is empty with an error. It is a pointer because the
	// layers of a worker would copy more than a kibibyte each, and the stack of each turn would grow for it.
	Claim(ctx context.Context, r ClaimRequest) (*Claim, error)

	// Renew makes a lease end lease from now, and the run due delay after that. It returns
	// the pending abort of the run, else its pending interrupt (Abort.Interrupt), or nil.
	//
	// Renew, Record, Commit and Release return ErrFenced if l is not in force, except a repetition of
	// the run's last Commit; for a run that does not exist they may return ErrNotFound instead. A lease stays
	// in force, even beyond its end, until Commit, Release, Evict, Sweep or a claim under another token ends it.
	Renew(ctx context.Context, l Lease, lease, delay time.Duration) (*Abort, error)

	// Record journals what must survive a crash of the turn: log entries (a model response, before
	// any of its tools starts), start marks and tool results. It is all or nothing, and fenced by
	// the lease (I3, I4). It returns a *GapError if the log has neither Record.From entries nor those
	// of a repetition, see Record.From. After a *TooLargeError for results the turn can still be
	// committed without them. Like Renew, Record returns a pending abort or interrupt, or nil; if there
	// is one, the store has recorded everything, and the caller must not start anything that the record
	// precedes. A repetition succeeds and changes nothing, unless a later Record has added entries: then
	// the error is a *GapError.
	//
	// If Evict, Sweep or a claim under another token ended the lease, its worker may only have been
	// paused. While the version is the same and the run Queued or Running, the store then keeps late
	// results for the worker that takes over the turn, if their calls were started, have no result
	// yet, and have no Start under another token. It keeps nothing else, and nothing after a Release of that
	// lease. Record returns ErrFenced in any case. A store may forget all but the last eight leases of a
	// version that were ended so.
	Record(ctx context.Context, l Lease, r Record) (*Abort, error)

	// Commit ends the turn: it appends entries, replaces the header, deletes the consumed signals and the
	// journaled start marks and results, ends the lease and reschedules the run. Attempts, pauses, sweeps and
	// ended leases count from zero again. Commit changes nothing and returns ErrFenced if the lease is not
	// in force, else a *GapError if the log does not have Commit.From entries, else
	// ErrUnconsumedSignals if Commit.RequireInboxConsumed demands it.
	//
	// The resulting status is that of the header, except that a run that would wait becomes Queued if signals or
	// an abort are pending, and one that would end if user messages are left. Such a run keeps the header with the
	// wait or the end, which Claim returns for the next turn; State.As hides the wait or the end from readers.
	//
	// A commit that ends the run also clears the abort, and deletes from the inbox all signals that
	// arrived before the latest abort request, and all others but user messages: they came too late
	// for the run. Messages remain pending and continue it.
	//
	// The open waits are then State.Accepts of the header, without those that a
	// signal still in the inbox answers or, because it interrupts the run, closes.
	//
	// A repetition with the Commit.ID of the run's last commit returns the same Status and Version,
	// whatever but a deletion has happened to the run since, and changes nothing. Claimed then says whether the
	// eager claim is still in force. With Commit.EagerClaim, the same step may also claim the next
	// turn.
	Commit(ctx context.Context, l Lease, c Commit) (Committed, error)

	// Release ends a lease without counting the attempt, and queues the run. The run is due after
	// delay; no backlog covers it, because the worker may have acknowledged its message. The journal
	// stays. If Evict, Sweep or a claim under another token has ended the lease, Release returns
	// ErrFenced; if Record would still keep late results, Release also records, once, that the worker
	// was only paused (Claim.Paused). A repetition also returns ErrFenced, and changes nothing.
	Release(ctx context.Context, l Lease, delay time.Duration) error
}

// ClaimRequest asks for a run's lease.
type ClaimRequest struct {
	Run     RunID
	Version int64 // of the state that the turn follows

	// Token is random, unique to this claim, and not empty. A counter could repeat after a failover.
	// A repeated claim has the same token.
	Token  string
	Worker string

	Lease           time.Duration // the lease duration without Renew
	RedeliveryDelay time.Duration // time from the end of the lease until the sweeper checks the run

	// Refuse makes Claim return ClaimDeferred, and change nothing, if the attempt would be one of
	// these: a worker that dies between a claim and its release would have used up an attempt that
	// it did not mean to make. Claim ignores Refuse if the run has a pending abort.
	Refuse Attempts

	// MaxLogBytes, if positive, lets Claim leave the log of a run with more State.LogBytes in the store: see
	// Claim.LogOmitted.
	MaxLogBytes int64
}

// Omits reports whether Claim may return the run without its log.
func (r ClaimRequest) Omits(s *State) bool { return r.MaxLogBytes > 0 && s.LogBytes > r.MaxLogBytes }

// Attempts is a range of attempt numbers, both ends included; the number of an attempt is
// Claim.Attempt less Claim.Paused. Zero is empty.
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

// Claim is the result of a ClaimRequest. Status, Version, Priority, FinalizedSeq, LogLen and Now
// describe the run for every outcome but ClaimMissing, ClaimDeleted, ClaimUnsupportedFormat and
// ClaimBehind. The store sets Busy only for ClaimBusy, and the other fields only for Claimed. If it
// answers an eager claim from memory, FinalizedSeq may be 0 and Now may be zero.
type Claim struct {
	Outcome      Outcome
	Status       Status
	Version      int64
	Priority     Priority
	FinalizedSeq int64         // see Schedule.MarkFinalized
	LogLen       int64         // entries in the log
	Busy         time.Duration // the time until the other worker's lease ends

	Lease Lease // for ClaimRequest.Version, under its token

	// State is the last committed header as it was committed: a run that a signal woke still has its wait
	// or its end. A StartedAt that no commit has set is the time of the run's first claim. State.Log is
	// the log from the entry number State.Checkpoint on, or all of it if that is 0, journaled entries
	// included; the entries with numbers above Base are journaled. They are not folded into the header:
	// the worker does that. A journaled checkpoint therefore does not shorten the log yet. The store may
	// keep *State, so the caller must not change it. State is nil unless the outcome is Claimed.
	State *State
	Base  int64

	// LogOmitted reports that State has no log, because ClaimRequest.MaxLogBytes has excluded it. The run is claimed.
	// The same claim without MaxLogBytes returns the log, once the worker has the memory for it.
	LogOmitted bool

	// LogRead is the number of entries of State.Log that the store had to read from its servers. It has the others in
	// memory. It serves metrics only.
	LogRead int64

	Journal Journal // of the turn in flight

	// Signals are the pending signals, oldest first. If the run has a pending abort, those that
	// arrived after the latest abort request are not among them. A claim removes none from the inbox.
	Signals []Signal
	Abort   *Abort // that is pending, or nil

	Attempt int
	Paused  int // number of attempts that ended because their worker was paused, see Release

	// TakenOver is the time, by the store's clock, at which the latest earlier attempt lost its
	// lease. Its worker may still report results. Zero if no attempt has lost its lease.
	TakenOver Time
	Now       time.Time // the store's clock
}

// Lease is proof of a claim.
type Lease struct {
	Run     RunID
	Token   string
	Version int64
	Worker  string
}

// Journal is what earlier attempts recorded about a turn. Its maps may be nil if they are empty.
type Journal struct {
	Started map[string]bool  // by call id: the tool may have run
	Starts  map[string]Start // by call id: the latest Start
	Results map[string]Entry // by call id: the tool.finished or tool.reused entry
}

// Start is the data that a worker needs to ask the tool's probe about a call.
type Start struct {
	CallID string `json:"call_id"`
	Key    string `json:"key"`   // the idempotency key of the call
	Until  Time   `json:"until"` // time by which the tool must have ended, by the store's clock

	// Arguments are those that the tool received, if they differ from those in the log.
	Arguments string `json:"arguments,omitempty"`

	// Again reports whether the probe found that the previous start had no effect.
	Again bool `json:"again,omitempty"`

	// Token is the token of the lease that recorded the start. The store sets it.
	Token string `json:"token"`
}

// Record is a write to the journal of a turn.
type Record struct {
	// From is the length of the log before Entries, journaled entries included, also without Entries. If the log is
	// already longer by exactly the number of Entries, the store takes the call as a repetition and does not append
	// them again. It applies the rest of the record in either case.
	From    int64
	Entries []Entry
	Started []string // call ids to mark as started, in addition to those of Starts
	Starts  []Start  // each also marks its call as started; of a call, the last one stays
	Results []Entry  // keyed by CallID; of a call, the first one stays

	// Awaits are names of waits to open now, before the turn ends, because the result of an
	// asynchronous tool may arrive earlier. A wait that is open, or that a signal in the inbox has
	// answered or closed, is not opened again.
	Awaits []string
}

// Commit is the end of a turn.
type Commit struct {
	// ID identifies this commit and must not be empty. The store keeps that of the run's last commit.
	ID string

	// State is the next header, with the log from its checkpoint on. From is the length of the log in the
	// store, journaled entries included; the entries of State.Log with higher numbers (After) are appended. The
	// journaled ones stay as they are. The store reads State until Commit returns, and never changes it.
	State *State
	From  int64

	// Consumed is the number of signals of the inbox, oldest first, that the turn has consumed. A
	// larger number than the inbox has counts as all.
	Consumed int

	// RequireInboxConsumed makes Commit return ErrUnconsumedSignals, instead of ending the
	// run, while the inbox holds more signals than Consumed. If the run has a pending abort
	// or State is Cancelled, only signals from before the latest abort request count: later
	// user messages continue the run after its end. It has no effect if State has not ended.
	RequireInboxConsumed bool

	// Figures are added to the sums of the tenant for the current hour, see HourlyFigures. The store adds
	// them in the same atomic step that ends the run, and not again if the commit is repeated. It ignores
	// them if State has not ended.
	Figures []FigureSeries

	RedeliveryDelay time.Duration // see NewRun

	// EagerClaim, if not empty, is a token. The commit then also claims the next turn under it, for
	// the same worker and for RedeliveryDelay, if it leaves the run Queued without pending signals
	// or abort. The run is due at the end of that lease. Until the first write under the token (a Claim,
	// Renew or Record), any other claim replaces it: if another worker receives the turn message, it
	// executes the turn.
	//
	// If the same process then calls Claim with that token, the store may answer from memory with
	// the run as the commit left it, and writes nothing. In that case the first write under the lease shows
	// whether it is still in force, and Renew and Record return an abort or interrupt that has arrived
	// since. Other signals that have arrived stay in the inbox.
	EagerClaim string
}

// Committed is the result of a commit.
type Committed struct {
	Status  Status // before an eager claim: Queued rather than Running
	Version int64
	Noisy   bool `json:"-"` // see NoisyAbove

	// Claimed reports whether the next turn is claimed under Commit.EagerClaim; for a repeated
	// commit, whether it still is. The claim is attempt 1, with an empty journal.
	Claimed bool `json:"-"`
}
