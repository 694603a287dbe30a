package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// seenLimit is the number of signal ids that a run keeps.
const seenLimit = 1000

// maxBackoff is the largest exponent of the sweeper's backoff: 64 times the delay.
const maxBackoff = 6

// Record is all that a store keeps of a run except its log: the header, the schedule, the inbox and the
// journal. Copies may share slices and maps, which methods therefore replace instead of changing them: a
// caller copies the record, calls a method of the copy, and stores it. It has many methods because stores
// share the rules of claims, commits and signals, and these are methods of the record that they change.
type Record struct {
	Header state.State `json:"header"`

	Status     state.Status `json:"status"`
	Version    int64        `json:"version"`
	Token      string       `json:"token,omitempty"`
	EagerToken string       `json:"eager_token,omitempty"` // of an eager claim, until it is used
	Owner      string       `json:"owner,omitempty"`
	LeaseEnd   state.Time   `json:"lease_end,omitzero"`
	Attempts   int          `json:"attempts,omitempty"`
	Paused     int          `json:"paused,omitempty"` // attempts that ended because their worker was paused
	StartedAt  state.Time   `json:"started_at,omitzero"`

	// Evicted are the tokens of ended leases on this version, latest first, and EvictedAt is the
	// time at which the latest ended.
	Evicted   []string   `json:"evicted,omitempty"`
	EvictedAt state.Time `json:"evicted_at,omitzero"`

	// Abort, and the number of signals in the inbox that came before it: the abort consumes those,
	// and not the later ones.
	Abort      *state.Abort `json:"abort,omitempty"`
	AbortReach int          `json:"abort_reach,omitempty"`

	// Interrupted reports that an interrupt has arrived since the turn in flight was claimed.
	Interrupted bool `json:"interrupted,omitempty"`

	Awaits []string       `json:"awaits,omitempty"`
	Inbox  []state.Signal `json:"inbox,omitempty"`
	// InboxBytes is the size of the inbox, encoded.
	InboxBytes int64    `json:"inbox_bytes,omitempty"`
	Seen       []string `json:"seen,omitempty"`

	// SeenMarks are the fingerprints of those signals among Seen that have one.
	SeenMarks map[string]string `json:"seen_marks,omitempty"`

	// The journal of the turn in flight.
	Started []string      `json:"started,omitempty"`
	Starts  []state.Start `json:"starts,omitempty"`
	Results []state.Entry `json:"results,omitempty"`

	CommitID  string          `json:"commit_id,omitempty"`
	Committed state.Committed `json:"committed,omitzero"`

	LogLen    int64 `json:"log_len"`   // journaled entries included
	Base      int64 `json:"base"`      // committed entries
	Finalized int64 `json:"finalized"` // entries at the time the run was last finalized

	Due    state.Time `json:"due,omitzero"`     // the time at which a sweep examines the run; zero is never
	WakeAt state.Time `json:"wake_at,omitzero"` // State.Due of a waiting run
	Sweeps int        `json:"sweeps,omitempty"` // see state.Due.Sweeps

	// CheckpointAt is a position in a store's stream: the run's first message after it is that of the log's checkpoint
	// (state.State.Checkpoint). CheckpointNext is the same of a checkpoint that is only journaled. Both are 0 in a
	// store that does not find entries by a position.
	CheckpointAt   uint64 `json:"checkpoint_at,omitempty"`
	CheckpointNext uint64 `json:"checkpoint_next,omitempty"`

	// Key is the name of the run's idempotency key, in a store that needs the name to delete the key.
	Key string `json:"key,omitempty"`

	// Indexed are the names of the run's metadata in the index of lists, see state.NewRun.IndexNames.
	Indexed []string `json:"indexed,omitempty"`

	// Sealed is the token of a deletion that has begun, see state.Deletions.
	Sealed string `json:"sealed,omitempty"`

	// QueuedAt is the time at which a queued run was last queued; its message is usually published right after that. It
	// is zero if no message was published, because a worker released the run. It means nothing if the run is not
	// queued.
	QueuedAt state.Time `json:"queued_at,omitzero"`
}

// New returns the record of a run that was just created, in the format that its state has.
func New(s state.State, now time.Time, delay time.Duration) Record {
	r := Record{Header: s, Status: s.Status, Version: s.Version, LogLen: s.LogLen(), Base: s.LogLen(), Awaits: s.Accepts()}
	r.schedule(now, delay)
	return r
}

// Read returns the run as a reader sees it.
func (r Record) Read() state.State { return r.Header.As(r.Status, r.StartedAt) }

// schedule sets the time at which a sweep examines the run if nothing happens before.
func (r *Record) schedule(now time.Time, delay time.Duration) {
	r.WakeAt = state.Time{}
	if due := r.Header.Due(); r.Status == state.Waiting && !due.IsZero() {
		r.WakeAt = state.At(due)
	}
	switch {
	case r.Status == state.Queued || r.Finalized < r.LogLen:
		r.QueuedAt = state.At(now)
		r.Due = state.At(now.Add(delay))
		if !r.WakeAt.IsZero() && r.WakeAt.Before(r.Due.Time) {
			r.Due = r.WakeAt
		}
	default:
		r.Due = r.WakeAt
	}
}

// queue makes the run claimable; a sweep examines it after delay.
func (r *Record) queue(now time.Time, delay time.Duration) {
	r.Status, r.Token, r.Owner, r.LeaseEnd, r.Sweeps = state.Queued, "", "", state.Time{}, 0
	r.Due, r.QueuedAt = state.At(now.Add(delay)), state.At(now)
}

func (r *Record) leased(now time.Time) bool {
	return r.Status == state.Running && now.Before(r.LeaseEnd.Time)
}

// idle reports whether the lease in force is an eager claim, and nothing was done under
// it.
func (r *Record) idle() bool {
	return r.Status == state.Running && r.EagerToken != "" && r.EagerToken == r.Token
}

// claimEagerly claims the turn after a commit for the worker that has made it.
func (r *Record) claimEagerly(l state.Lease, c state.Commit, now time.Time) bool {
	if c.EagerClaim == "" || r.Status != state.Queued || r.Abort != nil || len(r.Inbox) > 0 {
		return false
	}
	r.Status, r.Token, r.EagerToken, r.Owner, r.Attempts = state.Running, c.EagerClaim, c.EagerClaim, l.Worker, 1
	r.LeaseEnd = state.At(now.Add(c.RedeliveryDelay))
	r.Due = r.LeaseEnd
	return true
}

// Claim claims the lease, or returns the reason why not as Outcome. The caller must set the log of the
// returned state.
func (r *Record) Claim(q state.ClaimRequest, now time.Time) *state.Claim {
	c := &state.Claim{
		Status: r.Status, Version: r.Version, Priority: r.Header.Priority, FinalizedSeq: r.Finalized, LogLen: r.LogLen, Now: now,
	}
	switch {
	case r.Status.Terminal():
		c.Outcome = state.ClaimTerminal
	case q.Version < r.Version:
		c.Outcome = state.ClaimStale
	case q.Version > r.Version:
		c.Outcome = state.ClaimStoreBehind
	case r.Status == state.Waiting:
		c.Outcome = state.ClaimWaiting
	case r.leased(now) && r.Token != q.Token && !r.idle():
		c.Outcome, c.Busy = state.ClaimBusy, r.LeaseEnd.Sub(now)
	}
	if c.Outcome != "" {
		return c
	}
	// A claim repeated with its own token counts once, and an unused eager claim does not count.
	attempts := r.Attempts
	another := r.Token != q.Token && !(r.leased(now) && r.idle())
	if another {
		attempts++
	}
	if n := attempts - r.Paused; r.Abort == nil && n >= q.Refuse.From && n <= q.Refuse.To {
		c.Outcome = state.ClaimDeferred
		return c
	}
	if another && r.Status == state.Running {
		r.noteEvicted(now) // its lease has run out
	}
	r.Attempts = attempts
	r.Status, r.Token, r.EagerToken, r.Owner, r.Interrupted = state.Running, q.Token, "", q.Worker, false
	r.LeaseEnd = state.At(now.Add(q.Lease))
	r.Due = state.At(now.Add(q.Lease + q.RedeliveryDelay))
	if r.StartedAt.IsZero() {
		r.StartedAt = state.At(now)
	}
	c.Outcome, c.Status = state.Claimed, state.Running
	c.Lease = state.Lease{Run: q.Run, Token: q.Token, Version: r.Version, Worker: q.Worker}
	header := r.Header
	c.State = &header
	if c.State.StartedAt.IsZero() {
		c.State.StartedAt = r.StartedAt
	}
	c.Base, c.Attempt, c.Paused, c.TakenOver, c.Abort = r.Base, r.Attempts, r.Paused, r.EvictedAt, r.Abort
	inbox := r.Inbox
	if r.Abort != nil {
		inbox = inbox[:r.AbortReach]
	}
	c.Signals = append(c.Signals, inbox...)
	c.Journal = state.Journal{Started: map[string]bool{}, Results: map[string]state.Entry{}}
	for _, id := range r.Started {
		c.Journal.Started[id] = true
	}
	if len(r.Starts) > 0 {
		c.Journal.Starts = make(map[string]state.Start, len(r.Starts))
	}
	for _, start := range r.Starts {
		c.Journal.Starts[start.CallID] = start
	}
	for _, e := range r.Results {
		c.Journal.Results[e.CallID] = e
	}
	return c
}

// fence returns ErrFenced unless l is the lease in force.
func (r *Record) fence(l state.Lease) error {
	if r.Status != state.Running || r.Token != l.Token || r.Version != l.Version {
		return state.ErrFenced
	}
	return nil
}

// Renew makes the lease end lease from now.
func (r *Record) Renew(l state.Lease, lease, delay time.Duration, now time.Time) (*state.Abort, error) {
	if err := r.fence(l); err != nil {
		return nil, err
	}
	r.EagerToken = ""
	r.LeaseEnd, r.Due = state.At(now.Add(lease)), state.At(now.Add(lease+delay))
	return r.Pending(), nil
}

// Pending returns the pending abort or interrupt of a turn in flight, or nil.
func (r *Record) Pending() *state.Abort {
	if r.Abort == nil && r.Interrupted {
		return &state.Abort{Interrupt: true}
	}
	return r.Abort
}

// Record writes j to the journal. The caller must append the returned entries to the log, and return Pending; a
// repetition of j returns no entries. With ErrFenced it may have kept late results, see Late.
func (r *Record) Record(l state.Lease, j state.Record) ([]state.Entry, error) {
	if err := r.fence(l); err != nil {
		if r.wasEvicted(l) {
			// Keep the results of an evicted worker for its calls, if the journal has nothing newer
			// about them.
			r.keepResults(slices.DeleteFunc(slices.Clone(j.Results), func(e state.Entry) bool { return !r.startedBy(e.CallID, l.Token) }))
		}
		return nil, err
	}
	entries := j.Entries
	if len(entries) > 0 && r.LogLen == j.From+int64(len(entries)) {
		entries = nil // repeated
	} else if r.LogLen != j.From {
		return nil, &state.GapError{ID: l.Run, Have: r.LogLen, From: j.From}
	}
	r.EagerToken = ""
	for _, id := range j.Started {
		if !slices.Contains(r.Started, id) {
			r.Started = append(slices.Clip(r.Started), id)
		}
	}
	for _, start := range j.Starts {
		r.keepStart(start, l.Token)
	}
	r.keepResults(j.Results)
	for _, name := range j.Awaits {
		if !slices.Contains(r.Awaits, name) && !r.answered(name) {
			r.Awaits = append(slices.Clip(r.Awaits), name)
		}
	}
	r.LogLen += int64(len(entries))
	return entries, nil
}

// keepStart journals a start under a token. It replaces an earlier start of the call.
func (r *Record) keepStart(start state.Start, token string) {
	if !slices.Contains(r.Started, start.CallID) {
		r.Started = append(slices.Clip(r.Started), start.CallID)
	}
	start.Token = token
	r.Starts = slices.DeleteFunc(slices.Clone(r.Starts), func(have state.Start) bool { return have.CallID == start.CallID })
	r.Starts = append(r.Starts, start)
}

// startedBy reports whether a call was started, and not under another token than this one. A start mark
// without a Start has no token.
func (r *Record) startedBy(call, token string) bool {
	return slices.Contains(r.Started, call) &&
		!slices.ContainsFunc(r.Starts, func(s state.Start) bool { return s.CallID == call && s.Token != token })
}

// keepResults journals the results of calls that have none yet.
func (r *Record) keepResults(results []state.Entry) {
	for _, e := range results {
		if !slices.ContainsFunc(r.Results, func(have state.Entry) bool { return have.CallID == e.CallID }) {
			r.Results = append(slices.Clip(r.Results), e)
		}
	}
}

// maxEvicted is the number of tokens of evicted leases that a run keeps.
const maxEvicted = 8

// noteEvicted records that another party ended the lease in force, whose worker may only have been paused.
func (r *Record) noteEvicted(now time.Time) {
	r.Evicted = append([]string{r.Token}, r.Evicted...)
	r.Evicted = r.Evicted[:min(len(r.Evicted), maxEvicted)]
	r.EvictedAt = state.At(now)
}

// wasEvicted reports whether another party ended l, and its turn is not committed yet.
func (r *Record) wasEvicted(l state.Lease) bool {
	return (r.Status == state.Running || r.Status == state.Queued) && r.Version == l.Version && l.Token != "" && slices.Contains(r.Evicted, l.Token)
}

// Late calls apply, which applies a Record or a Release. If apply returns ErrFenced but has kept late results or
// counted a pause, Late returns that error as fenced, and err is nil: the caller must then store the record, and
// return fenced.
func (r *Record) Late(apply func() ([]state.Entry, error)) (entries []state.Entry, fenced, err error) {
	results, evicted := len(r.Results), len(r.Evicted)
	entries, err = apply()
	if errors.Is(err, state.ErrFenced) && (len(r.Results) != results || len(r.Evicted) != evicted) {
		return nil, err, nil
	}
	return entries, nil, err
}

// answered reports whether a signal in the inbox answers or closes a wait already.
func (r *Record) answered(name string) bool {
	return slices.ContainsFunc(r.Inbox, func(s state.Signal) bool {
		return slices.Contains(s.Names(), name) || s.Mode.Interrupts() && state.InterruptClosesWait(name)
	})
}

// Commit ends the turn, in the format that the state has. The caller must append the returned entries to
// the log; a repetition returns none.
func (r *Record) Commit(l state.Lease, c state.Commit, now time.Time) ([]state.Entry, state.Committed, error) {
	if r.CommitID == c.ID && c.ID != "" {
		done := r.Committed
		done.Claimed = c.EagerClaim != "" && r.Status == state.Running && r.Token == c.EagerClaim
		return nil, done, nil
	}
	if err := r.fence(l); err != nil {
		return nil, state.Committed{}, err
	}
	if r.LogLen != c.From {
		return nil, state.Committed{}, &state.GapError{ID: l.Run, Have: r.LogLen, From: c.From}
	}
	if c.From > c.State.LogLen() {
		return nil, state.Committed{}, fmt.Errorf("commit run %s: the new state has %d log entries, and the commit says that %d of them are already stored: report this bug in Turnpike", l.Run, c.State.LogLen(), c.From)
	}
	if c.RequireInboxConsumed && c.State.Status.Terminal() && r.unconsumed(c) {
		return nil, state.Committed{}, state.ErrUnconsumedSignals
	}
	entries := state.After(c.State.Log, c.From)
	r.Header = *c.State
	r.Header.Log = nil
	gone := max(0, min(c.Consumed, len(r.Inbox)))
	if c.State.Status.Terminal() {
		gone = max(gone, r.AbortReach)
	}
	r.Inbox = slices.Clone(r.Inbox[gone:])
	r.AbortReach = max(0, r.AbortReach-gone)
	r.Status, r.Version = c.State.Status, c.State.Version
	r.Awaits = c.State.Accepts()
	r.Started, r.Starts, r.Results, r.Evicted, r.Attempts, r.Sweeps = nil, nil, nil, nil, 0, 0
	r.Paused, r.EvictedAt = 0, state.Time{}
	r.Token, r.Owner, r.LeaseEnd = "", "", state.Time{}
	r.LogLen += int64(len(entries))
	r.Base = r.LogLen
	if r.Status.Terminal() {
		// Drop signals that arrived too late for the ended run, except user messages, which
		// continue it.
		r.Abort = nil
		r.Inbox = slices.DeleteFunc(r.Inbox, func(s state.Signal) bool { return s.Message == nil })
	}
	r.InboxBytes = 0
	for _, s := range r.Inbox {
		if b, err := json.Marshal(s); err == nil {
			r.InboxBytes += int64(len(b))
		}
	}
	// A pending signal whose wait the turn has reopened keeps it answered. Each wait is checked
	// alone: the turn may have opened only some of them.
	for _, s := range r.Inbox {
		for _, name := range s.Names() {
			if i := slices.Index(r.Awaits, name); i >= 0 {
				r.Awaits = slices.Delete(slices.Clone(r.Awaits), i, i+1)
			}
		}
		r.closeWaits(s)
	}
	if r.Status != state.Queued && (r.Abort != nil || len(r.Inbox) > 0) {
		r.queue(now, c.RedeliveryDelay)
	}
	r.schedule(now, c.RedeliveryDelay)
	done := state.Committed{Status: r.Status, Version: r.Version}
	r.CommitID, r.Committed = c.ID, done
	done.Claimed = r.claimEagerly(l, c, now)
	return entries, done, nil
}

// unconsumed reports whether the inbox holds signals that c, which ends the run, has not
// consumed. Signals that arrived after an abort do not count.
func (r *Record) unconsumed(c state.Commit) bool {
	reach := len(r.Inbox)
	if r.Abort != nil || c.State.Status == state.Cancelled {
		reach = r.AbortReach
	}
	return reach > c.Consumed
}

// Release ends the lease without counting the attempt. With ErrFenced it may have counted a pause, see Late.
func (r *Record) Release(l state.Lease, now time.Time, delay time.Duration) error {
	if err := r.fence(l); err != nil {
		if r.wasEvicted(l) {
			// The worker was only paused: its attempt does not count. Once.
			r.Evicted = slices.DeleteFunc(slices.Clone(r.Evicted), func(token string) bool { return token == l.Token })
			r.Paused++
		}
		return err
	}
	r.Attempts--
	r.queue(now, delay)
	r.QueuedAt = state.Time{} // nothing was published: no backlog explains that the run waits
	return nil
}

// Seal begins the deletion of the run.
func (r *Record) Seal(id state.RunID, token string) error {
	if !r.Status.Terminal() {
		return &state.NotEndedError{ID: id, Status: r.Status}
	}
	r.Sealed = token
	return nil
}

// Unseal removes a seal with this token, and reports whether there was one.
func (r *Record) Unseal(token string) bool {
	if r.Sealed != token {
		return false
	}
	r.Sealed = ""
	return true
}

// Sweep reschedules a run that is due, and returns what the caller must do; false means nothing. It may
// change the record in either case.
func (r *Record) Sweep(id state.RunID, now time.Time, delay time.Duration, backlog state.Backlog) (state.Due, bool) {
	if r.Due.IsZero() || now.Before(r.Due.Time) {
		return state.Due{}, false
	}
	d := r.due(id)
	switch {
	case r.leased(now):
		r.Due = state.At(r.LeaseEnd.Add(delay))
		return d, false
	case r.Status == state.Waiting && !r.WakeAt.IsZero() && !now.Before(r.WakeAt.Time):
		r.queue(now, delay)
		d.NeedsTurn = true
	case r.Status == state.Queued && backlog.Covers(d.Priority, r.QueuedAt.Time):
		r.Due = state.At(now.Add(max(delay*state.BacklogLook, now.Sub(r.QueuedAt.Time))))
		if r.Sweeps > 0 || r.Abort != nil { // the message of an abort has another id
			return d, false
		}
		r.Sweeps, d.Sweeps, d.NeedsTurn, d.Covered = 1, 1, true, true
		return d, true
	case r.Status == state.Queued || r.Status == state.Running:
		if r.Status == state.Running {
			r.noteEvicted(now)
		}
		r.Status, r.Token, r.Owner, r.QueuedAt = state.Queued, "", "", state.At(now)
		d.NeedsTurn = true
	case r.Finalized < r.LogLen || r.dependent():
		d.Finalize, d.FinalizedSeq = true, r.Finalized
	default:
		r.Due = r.WakeAt
		return d, false
	}
	r.Due = state.At(now.Add(delay << min(r.Sweeps, maxBackoff)))
	if d.Finalize && !r.WakeAt.IsZero() && r.WakeAt.Before(r.Due.Time) {
		r.Due = r.WakeAt
	}
	r.Sweeps++
	d.Sweeps = r.Sweeps
	return d, true
}

// Evict ends the lease of the run if worker holds it, and queues the run; false means that it does not.
func (r *Record) Evict(id state.RunID, worker string, now time.Time, delay time.Duration) (state.Due, bool) {
	if r.Status != state.Running || r.Owner != worker {
		return state.Due{}, false
	}
	r.noteEvicted(now)
	r.queue(now, delay)
	d := r.due(id)
	d.NeedsTurn, r.Sweeps, d.Sweeps = true, 1, 1
	return d, true
}

// due returns the Due of the run. A run with a pending abort overtakes others.
func (r *Record) due(id state.RunID) state.Due {
	d := state.Due{Run: id, Version: r.Version, Priority: r.Header.Priority, Tenant: r.Header.Tenant}
	if r.Abort != nil {
		d.Priority = state.High
	}
	return d
}

// NoteFinalized records that the run was finalized with seq entries in its log.
func (r *Record) NoteFinalized(seq int64) {
	r.Finalized = max(r.Finalized, min(seq, r.LogLen))
	if r.Finalized == r.LogLen && r.Status != state.Queued && r.Status != state.Running && !r.dependent() {
		r.Due = r.WakeAt
	}
}

// dependent reports whether the run waits for other runs. Such a run stays due, with growing delays: after a failover
// to an older copy of the store, the result of another run may be lost while the record that it was sent remains.
func (r *Record) dependent() bool {
	return r.Status == state.Waiting && slices.ContainsFunc(r.Awaits, state.AwaitsRun)
}

// Admit adds runs to tree, the descendants of a root run, each once, and returns the result. It refuses runs beyond
// limit, and all new ones if the root has ended or has a pending abort. tree does not change.
func (r Record) Admit(tree, runs []state.RunID, limit int) (next []state.RunID, a state.Admitted) {
	a.Ended = r.Status.Terminal() || r.Abort != nil
	next = slices.Clip(tree)
	for _, id := range runs {
		switch {
		case slices.Contains(next, id):
		case a.Ended || len(next) >= limit:
			a.Refused = append(a.Refused, id)
		default:
			next = append(next, id)
		}
	}
	return next, a
}
