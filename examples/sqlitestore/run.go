package sqlitestore

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// run is a row of the table of that name, without the log, the results and the inbox.
type run struct {
	header state.State // as the last transition left it, without its log
	status state.Status
	logLen int64
	due    state.Time // zero: never
	size   int        // of the encoded header and turn, as they were read
	turn   turn
}

// turn is what the schedule knows of the turn that follows the header.
type turn struct {
	Base      int64      // entries of the log that are committed
	Finalized int64      // entries of the log that are finalized
	StartedAt state.Time // of the run
	QueuedAt  state.Time // zero: no message was published
	WakeAt    state.Time // zero: never

	Token, Owner string // of the lease
	LeaseEnd     state.Time
	Eager        bool // a commit has claimed the turn, and the worker has not used the lease yet

	Attempts  int      // claims of this version
	Paused    int      // those whose worker was only paused
	Evicted   []string // tokens of leases that were taken away, the latest first
	EvictedAt state.Time
	Sweeps    int

	Awaits  []string // the waits that are open
	Started []string
	Starts  map[string]state.Start

	Abort      *state.Abort
	AbortReach int64 // the number of the last signal before the latest abort request

	Interrupted bool // an interrupt has arrived since the turn was claimed

	CommitID  string
	Committed state.Committed
	Sealed    string
}

// maxEvicted bounds the leases whose workers may report late.
const maxEvicted = 8

// maxBackoff bounds the doublings of the delay between sweeps.
const maxBackoff = 6

// load reads a run. The error is ErrNotFound, ErrDeleted or ErrFormat if the caller cannot use one.
func (t *tx) load(id state.RunID) (*run, error) {
	var r run
	var header, turn []byte
	var due sql.NullInt64
	found, err := t.get(`SELECT header, status, log_len, due, turn FROM runs WHERE id = ?`, []any{id}, &header, &r.status, &r.logLen, &due, &turn)
	if err == nil && !found {
		err = t.absent(id)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	r.size = len(header) + len(turn)
	if r.header, err = state.DecodeState(header); err != nil {
		return nil, err
	}
	if due.Valid {
		r.due = state.At(time.UnixMilli(due.Int64))
	}
	return &r, json.Unmarshal(turn, &r.turn)
}

// absent returns the error of a run that there is not.
func (t *tx) absent(id state.RunID) error {
	var until int64
	found, err := t.get(`SELECT until FROM deleted WHERE run = ?`, []any{id}, &until)
	if err != nil {
		return err
	}
	if found && millis(t.now) < until {
		return state.ErrDeleted
	}
	return state.ErrNotFound
}

// save writes all of a run but its header.
func (t *tx) save(r *run) error {
	turn, err := json.Marshal(r.turn)
	if err != nil {
		return err
	}
	return t.exec(`UPDATE runs SET status = ?, log_len = ?, due = ?, owner = ?, turn = ? WHERE id = ?`,
		r.status, r.logLen, dueOf(r), r.turn.Owner, turn, r.header.ID)
}

func dueOf(r *run) sql.NullInt64 {
	return sql.NullInt64{Int64: millis(r.due.Time), Valid: !r.due.IsZero()}
}

// change loads a run, changes and saves it.
func (t *tx) change(id state.RunID, f func(*run) error) error {
	r, err := t.load(id)
	if err != nil {
		return err
	}
	if err := f(r); err != nil {
		return err
	}
	return t.save(r)
}

// append adds entries to the log of a run.
func (t *tx) append(r *run, entries []state.Entry) error {
	for _, e := range entries {
		data, err := state.EncodeEntry(&e)
		if err != nil {
			return err
		}
		r.logLen++
		if err := t.exec(`INSERT INTO entries VALUES (?, ?, ?)`, r.header.ID, r.logLen, data); err != nil {
			return err
		}
	}
	return nil
}

// log reads up to limit entries of a run's log after the first ones; a negative limit reads all.
func (t *tx) log(id state.RunID, after int64, limit int) (entries []state.Entry, err error) {
	seq := max(after, 0)
	err = each(t, func(data []byte) error {
		seq++
		e, err := state.DecodeEntry(seq, data)
		entries = append(entries, e)
		return err
	}, `SELECT data FROM entries WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?`, id, max(after, 0), limit)
	return entries, err
}

// page returns a page of the log, and whether the log has more entries.
func (t *tx) page(id state.RunID, after int64, limit, bytes int) (entries []state.Entry, more bool, err error) {
	errFull := errors.New("page is full")
	seq, size := max(after, 0), 0
	err = each(t, func(data []byte) error {
		if bytes > 0 && size >= bytes {
			return errFull
		}
		seq, size = seq+1, size+len(data)
		e, err := state.DecodeEntry(seq, data)
		entries = append(entries, e)
		return err
	}, `SELECT data FROM entries WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?`, id, max(after, 0), limit)
	if err != nil && !errors.Is(err, errFull) {
		return nil, false, err
	}
	var last int64
	_, err = t.get(`SELECT coalesce(max(seq), 0) FROM entries WHERE run = ?`, []any{id}, &last)
	return entries, seq < last, err
}

// noisy reports whether a run is in flight and its tenant has too many in flight on the run's shard.
func (t *tx) noisy(r *run) (bool, error) {
	if !inFlight(r.status) {
		return false, nil
	}
	var n int
	_, err := t.get(`SELECT count(*) FROM runs WHERE tenant = ? AND shard = ? AND status IN ('queued', 'running')`,
		[]any{r.header.Tenant, r.header.ID.Shard()}, &n)
	return n > state.NoisyAbove, err
}

func inFlight(s state.Status) bool { return s == state.Queued || s == state.Running }

// read returns a run as readers see it.
func (r *run) read() state.State { return r.header.As(r.status, r.turn.StartedAt) }

// queue lets a run wait for a worker.
func (r *run) queue(now time.Time, delay time.Duration) {
	r.status = state.Queued
	r.turn.Token, r.turn.Owner, r.turn.LeaseEnd, r.turn.Eager = "", "", state.Time{}, false
	r.turn.QueuedAt, r.turn.Sweeps = state.At(now), 0
	r.due = state.At(now.Add(delay))
}

// schedule sets the times of a run after a transition.
func (r *run) schedule(now time.Time, delay time.Duration) {
	r.turn.WakeAt = state.Time{}
	if r.status == state.Queued {
		r.queue(now, delay)
		return
	}
	if wake := r.header.Due(); !wake.IsZero() {
		r.turn.WakeAt = state.At(wake)
	}
	r.due = r.orWake(now.Add(delay))
}

// orWake returns at, or the time at which the run wakes if that is earlier.
func (r *run) orWake(at time.Time) state.Time {
	if !r.turn.WakeAt.IsZero() && r.turn.WakeAt.Before(at) {
		return r.turn.WakeAt
	}
	return state.At(at)
}

// dependent reports whether a run waits for other runs.
func (r *run) dependent() bool {
	return r.status == state.Waiting && slices.ContainsFunc(r.turn.Awaits, state.AwaitsRun)
}

// evict ends the lease of a run, whose worker may have been paused only.
func (r *run) evict(now time.Time) {
	r.turn.Evicted = append([]string{r.turn.Token}, r.turn.Evicted...)
	r.turn.Evicted = r.turn.Evicted[:min(len(r.turn.Evicted), maxEvicted)]
	r.turn.EvictedAt = state.At(now)
}

// held reports whether l is the lease of a run. A lease is held after its end until another call
// ends it.
func (r *run) held(l state.Lease) bool {
	return r.status == state.Running && r.turn.Token == l.Token && r.header.Version == l.Version
}

// evicted reports whether l was a lease of the turn that is in flight now.
func (r *run) evicted(l state.Lease) bool {
	return inFlight(r.status) && r.header.Version == l.Version && slices.Contains(r.turn.Evicted, l.Token)
}
