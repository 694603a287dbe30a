package sqlitestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Claim implements state.Turns.
func (s *Store) Claim(ctx context.Context, q state.ClaimRequest) (c *state.Claim, err error) {
	err = s.update(ctx, func(t *tx) error {
		r, err := t.load(q.Run)
		if err != nil {
			return err
		}
		if c = r.claim(q, t.now); c.Outcome != state.Claimed {
			return nil
		}
		if c.State.Log, err = t.log(q.Run, c.State.Checkpoint-1, -1); err != nil {
			return err
		}
		if c.Signals, err = t.inbox(q.Run, r.reach()); err != nil {
			return err
		}
		if c.Journal.Results, err = t.results(q.Run); err != nil {
			return err
		}
		return t.save(r)
	})
	switch {
	case errors.Is(err, state.ErrDeleted):
		return &state.Claim{Outcome: state.ClaimDeleted}, nil
	case errors.Is(err, state.ErrNotFound):
		return &state.Claim{Outcome: state.ClaimMissing}, nil
	case errors.Is(err, state.ErrFormat):
		return &state.Claim{Outcome: state.ClaimUnsupportedFormat}, nil
	case err != nil:
		return new(state.Claim), err
	}
	return c, nil
}

// claim gives the lease of a run away, unless the outcome gives a reason not to.
func (r *run) claim(q state.ClaimRequest, now time.Time) *state.Claim {
	c := &state.Claim{
		Outcome: state.Claimed, Status: r.status, Version: r.header.Version, Priority: r.header.Priority, FinalizedSeq: r.turn.Finalized, LogLen: r.logLen, Now: now,
	}
	t := &r.turn
	leased := r.status == state.Running && now.Before(t.LeaseEnd.Time)
	repeated := r.status == state.Running && t.Token == q.Token
	eager := leased && t.Eager // nobody has used the lease yet
	next := t.Attempts + 1
	if eager || repeated {
		next = t.Attempts
	}
	switch {
	case r.status.Terminal():
		c.Outcome = state.ClaimTerminal
	case q.Version < r.header.Version:
		c.Outcome = state.ClaimStale
	case q.Version > r.header.Version:
		c.Outcome = state.ClaimStoreBehind
	case r.status == state.Waiting:
		c.Outcome = state.ClaimWaiting
	case leased && !repeated && !eager:
		c.Outcome, c.Busy = state.ClaimBusy, t.LeaseEnd.Sub(now)
	case t.Abort == nil && q.Refuse.From <= next-t.Paused && next-t.Paused <= q.Refuse.To:
		c.Outcome = state.ClaimDeferred
	}
	if c.Outcome != state.Claimed {
		return c
	}
	if r.status == state.Running && !repeated && !eager {
		r.evict(now)
	}
	r.status, t.Attempts = state.Running, next
	t.Token, t.Owner, t.Eager, t.LeaseEnd = q.Token, q.Worker, false, state.At(now.Add(q.Lease))
	t.Interrupted = false
	r.due = state.At(t.LeaseEnd.Add(q.RedeliveryDelay))
	if t.StartedAt.IsZero() {
		t.StartedAt = state.At(now)
	}
	c.Status = r.status
	c.Lease = state.Lease{Run: q.Run, Token: q.Token, Version: q.Version, Worker: q.Worker}
	header := r.header
	c.State, c.Base = &header, t.Base
	if c.State.StartedAt.IsZero() {
		c.State.StartedAt = t.StartedAt
	}
	c.Journal = state.Journal{Started: map[string]bool{}, Starts: t.Starts}
	for _, call := range t.Started {
		c.Journal.Started[call] = true
	}
	c.Abort, c.Attempt, c.Paused, c.TakenOver = t.Abort, t.Attempts, t.Paused, t.EvictedAt
	return c
}

// Renew implements state.Turns.
func (s *Store) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (abort *state.Abort, err error) {
	err = s.update(ctx, func(t *tx) error {
		return t.change(l.Run, func(r *run) error {
			if !r.held(l) {
				return state.ErrFenced
			}
			abort = r.turn.pending()
			r.turn.LeaseEnd, r.turn.Eager = state.At(t.now.Add(lease)), false
			r.due = state.At(r.turn.LeaseEnd.Add(delay))
			return nil
		})
	})
	return abort, err
}

// Record implements state.Turns.
func (s *Store) Record(ctx context.Context, l state.Lease, rec state.Record) (abort *state.Abort, err error) {
	fenced := false
	err = s.update(ctx, func(t *tx) error {
		return t.change(l.Run, func(r *run) error {
			if !r.held(l) {
				if !r.evicted(l) {
					return state.ErrFenced
				}
				fenced = true
				return t.late(r, l, rec.Results)
			}
			abort = r.turn.pending()
			return t.record(r, l, rec)
		})
	})
	if err == nil && fenced {
		err = state.ErrFenced
	}
	return abort, err
}

func (t *tx) record(r *run, l state.Lease, rec state.Record) error {
	switch r.logLen {
	case rec.From:
		if err := t.append(r, rec.Entries); err != nil {
			return err
		}
	case rec.From + int64(len(rec.Entries)): // a repetition
	default:
		return &state.GapError{ID: l.Run, Have: r.logLen, From: rec.From}
	}
	r.turn.Eager = false
	for _, call := range rec.Started {
		r.turn.start(call)
	}
	for _, start := range rec.Starts {
		if r.turn.Starts == nil {
			r.turn.Starts = map[string]state.Start{}
		}
		start.Token = l.Token
		r.turn.Starts[start.CallID] = start
		r.turn.start(start.CallID)
	}
	if len(rec.Awaits) > 0 {
		answered, err := t.answered(l.Run)
		if err != nil {
			return err
		}
		for _, name := range rec.Awaits {
			if !slices.Contains(r.turn.Awaits, name) && !answered(name) {
				r.turn.Awaits = append(r.turn.Awaits, name)
			}
		}
	}
	return t.keep(l.Run, rec.Results)
}

// keep stores results of calls that have none.
func (t *tx) keep(id state.RunID, results []state.Entry) error {
	for _, e := range results {
		e.Seq = 0 // it has no place in the log yet
		data, err := state.EncodeEntry(&e)
		if err != nil {
			return err
		}
		if err := t.exec(`INSERT INTO results VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, id, e.CallID, data); err != nil {
			return err
		}
	}
	return nil
}

// late stores the results of a worker that has lost its lease, of calls that were started and that
// no other worker has started since.
func (t *tx) late(r *run, l state.Lease, results []state.Entry) error {
	return t.keep(l.Run, slices.DeleteFunc(slices.Clone(results), func(e state.Entry) bool {
		start, has := r.turn.Starts[e.CallID]
		return !slices.Contains(r.turn.Started, e.CallID) || has && start.Token != l.Token
	}))
}

func (t *tx) results(id state.RunID) (map[string]state.Entry, error) {
	results := map[string]state.Entry{}
	err := each(t, func(data []byte) error {
		e, err := state.DecodeEntry(0, data)
		results[e.CallID] = e
		return err
	}, `SELECT data FROM results WHERE run = ?`, id)
	return results, err
}

// Commit implements state.Turns.
func (s *Store) Commit(ctx context.Context, l state.Lease, c state.Commit) (done state.Committed, err error) {
	err = s.update(ctx, func(t *tx) error {
		r, err := t.load(l.Run)
		if err != nil {
			return err
		}
		if r.turn.CommitID == c.ID && c.ID != "" {
			done = r.turn.Committed
			done.Claimed = c.EagerClaim != "" && r.status == state.Running && r.turn.Token == c.EagerClaim
		} else if done, err = t.commit(r, l, c, s.Written()); err != nil {
			return err
		}
		done.Noisy, err = t.noisy(r)
		return err
	})
	return done, err
}

func (t *tx) commit(r *run, l state.Lease, c state.Commit, format int) (done state.Committed, err error) {
	switch {
	case !r.held(l):
		return done, state.ErrFenced
	case r.logLen != c.From:
		return done, &state.GapError{ID: l.Run, Have: r.logLen, From: c.From}
	case c.From > c.State.LogLen():
		return done, fmt.Errorf("commit run %s: the new state has %d log entries, fewer than the %d already stored: report this bug in Turnpike", l.Run, c.State.LogLen(), c.From)
	}
	ends := c.State.Status.Terminal()
	if c.RequireInboxConsumed && ends {
		if left, err := t.unconsumed(r, c); err != nil || left {
			return done, errors.Join(err, state.ErrUnconsumedSignals)
		}
	}
	if err := t.append(r, state.After(c.State.Log, c.From)); err != nil {
		return done, err
	}
	if err := t.empty(r, c.Consumed, ends); err != nil {
		return done, err
	}
	if ends {
		if err := t.addFigures(c.State.Tenant, c.Figures); err != nil {
			return done, err
		}
	}
	r.header = *c.State.Formatted(format)
	r.status = c.State.Status
	awaits := r.header.Accepts()
	answered, err := t.answered(l.Run)
	if err != nil {
		return done, err
	}
	awaits = slices.DeleteFunc(awaits, answered)
	abort := r.turn.Abort
	if ends {
		abort = nil
	}
	r.header.Log = nil
	r.turn = turn{
		Base: r.logLen, Finalized: r.turn.Finalized, StartedAt: r.turn.StartedAt, Awaits: awaits, Abort: abort, AbortReach: r.turn.AbortReach,
		CommitID: c.ID, Sealed: r.turn.Sealed,
	}
	pending := 0
	if _, err := t.get(`SELECT count(*) FROM inbox WHERE run = ?`, []any{l.Run}, &pending); err != nil {
		return done, err
	}
	if r.status != state.Queued && (abort != nil || pending > 0) {
		r.status = state.Queued
	}
	r.schedule(t.now, c.RedeliveryDelay)
	done = state.Committed{Status: r.status, Version: r.header.Version}
	r.turn.Committed = done
	if c.EagerClaim != "" && r.status == state.Queued && pending == 0 && abort == nil {
		done.Claimed = true
		r.status = state.Running
		r.turn.Token, r.turn.Owner, r.turn.Eager, r.turn.Attempts = c.EagerClaim, l.Worker, true, 1
		r.turn.LeaseEnd = state.At(t.now.Add(c.RedeliveryDelay))
		r.due = r.turn.LeaseEnd
	}
	header, err := state.EncodeState(r.header)
	if err != nil {
		return done, err
	}
	if err := t.exec(`UPDATE runs SET header = ?, format = ? WHERE id = ?`, header, r.header.Format, l.Run); err != nil {
		return done, err
	}
	if err := t.exec(`DELETE FROM results WHERE run = ?`, l.Run); err != nil {
		return done, err
	}
	return done, t.save(r)
}

// Release implements state.Turns.
func (s *Store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	fenced := false
	err := s.update(ctx, func(t *tx) error {
		return t.change(l.Run, func(r *run) error {
			switch {
			case r.held(l):
				r.turn.Attempts--
				r.queue(t.now, delay)
				r.turn.QueuedAt = state.Time{}
			case r.evicted(l):
				fenced = true
				r.turn.Evicted = slices.DeleteFunc(r.turn.Evicted, func(token string) bool { return token == l.Token })
				r.turn.Paused++
			default:
				return state.ErrFenced
			}
			return nil
		})
	})
	if err == nil && fenced {
		err = state.ErrFenced
	}
	return err
}

// start marks a call as started.
func (t *turn) start(call string) {
	if !slices.Contains(t.Started, call) {
		t.Started = append(t.Started, call)
	}
}

// reach returns the number of the last signal that a turn gets: an abort hides those that came after.
func (r *run) reach() int64 {
	if r.turn.Abort != nil {
		return r.turn.AbortReach
	}
	return math.MaxInt64
}

// inbox returns the pending signals of a run up to one, oldest first.
func (t *tx) inbox(id state.RunID, reach int64) (signals []state.Signal, err error) {
	err = each(t, func(data []byte) error {
		var sig state.Signal
		err := json.Unmarshal(data, &sig)
		signals = append(signals, sig)
		return err
	}, `SELECT data FROM inbox WHERE run = ? AND n <= ? ORDER BY n`, id, reach)
	return signals, err
}

// answered returns a function that reports whether a pending signal answers or closes a wait.
func (t *tx) answered(id state.RunID) (func(name string) bool, error) {
	signals, err := t.inbox(id, math.MaxInt64)
	return func(name string) bool {
		return slices.ContainsFunc(signals, func(sig state.Signal) bool {
			return slices.Contains(sig.Names(), name) || sig.Mode.Interrupts() && state.InterruptClosesWait(name)
		})
	}, err
}

// pending returns the pending abort or interrupt of a turn in flight, or nil.
func (t *turn) pending() *state.Abort {
	if t.Abort == nil && t.Interrupted {
		return &state.Abort{Interrupt: true}
	}
	return t.Abort
}

// unconsumed reports whether the inbox has signals that a turn that ends its run must consume.
func (t *tx) unconsumed(r *run, c state.Commit) (bool, error) {
	reach := r.reach()
	if c.State.Status == state.Cancelled {
		reach = r.turn.AbortReach
	}
	var n int
	_, err := t.get(`SELECT count(*) FROM inbox WHERE run = ? AND n <= ?`, []any{c.State.ID, reach}, &n)
	return n > c.Consumed, err
}

// empty deletes what a turn has consumed from the inbox. A turn that ends its run has also dealt with
// all that came before an abort, and only messages of users can continue the run.
func (t *tx) empty(r *run, consumed int, ends bool) error {
	id := r.header.ID
	if err := t.exec(`DELETE FROM inbox WHERE n IN (SELECT n FROM inbox WHERE run = ? ORDER BY n LIMIT ?)`, id, max(consumed, 0)); err != nil || !ends {
		return err
	}
	return t.exec(`DELETE FROM inbox WHERE run = ? AND (n <= ? OR json_extract(data, '$.message') IS NULL)`, id, r.turn.AbortReach)
}
