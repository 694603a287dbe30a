package sqlitestore

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxSeen is the number of signals of a run whose keys a store keeps.
const maxSeen = 1000

// Signal implements state.Signals.
func (s *Store) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (w state.Wake, err error) {
	err = s.update(ctx, func(t *tx) error {
		r, err := t.load(id)
		if err != nil {
			return err
		}
		var fingerprint string
		seen, err := t.get(`SELECT fingerprint FROM seen WHERE run = ? AND key = ?`, []any{id, sig.Key()}, &fingerprint)
		if err != nil {
			return err
		}
		if seen {
			if fingerprint != "" && sig.Fingerprint != "" && fingerprint != sig.Fingerprint {
				return state.ErrIdempotencyConflict
			}
			return nil
		}
		if sig.Mode == state.Reject && inFlight(r.status) {
			return &state.BusyError{ID: id, Status: r.status}
		}
		if b := sig.Basis; b != nil && *b != (state.Basis{Status: r.status, Version: r.header.Version, LogLen: r.logLen}) {
			return state.ErrMoved
		}
		for _, name := range sig.Names() {
			i := slices.Index(r.turn.Awaits, name)
			if i < 0 {
				return &state.NotWaitingError{ID: id, Status: r.status, Name: name}
			}
			r.turn.Awaits = slices.Delete(r.turn.Awaits, i, i+1)
		}
		if r.turn.Sealed != "" {
			return state.ErrDeleting
		}
		if err := t.put(id, sig); err != nil {
			return err
		}
		if sig.Mode.Interrupts() {
			r.turn.Awaits = slices.DeleteFunc(r.turn.Awaits, state.InterruptClosesWait)
			r.turn.Interrupted = r.turn.Interrupted || r.status == state.Running
		}
		w = r.wake(t.now, delay)
		if w.Noisy, err = t.noisyAfter(r); err != nil {
			return err
		}
		return nil
	})
	return w, err
}

// put adds a signal to the inbox of a run and to the keys that it has seen.
func (t *tx) put(id state.RunID, sig state.Signal) error {
	data, err := json.Marshal(sig)
	if err != nil {
		return err
	}
	full := state.InboxFullError{ID: id, Limit: state.MaxSignalBytes}
	if _, err := t.get(`SELECT count(*), coalesce(sum(length(CAST(data AS BLOB))), 0) FROM inbox WHERE run = ?`, []any{id}, &full.Signals, &full.Bytes); err != nil {
		return err
	}
	full.Signals++
	full.Bytes += int64(len(data))
	if full.Signals > state.MaxSignals || full.Bytes > state.MaxSignalBytes {
		return &full
	}
	if err := t.exec(`INSERT INTO inbox (run, data) VALUES (?, ?)`, id, string(data)); err != nil {
		return err
	}
	if err := t.exec(`INSERT INTO seen (run, key, fingerprint) VALUES (?, ?, ?)`, id, sig.Key(), sig.Fingerprint); err != nil {
		return err
	}
	return t.exec(`DELETE FROM seen WHERE run = ?1 AND n <= (SELECT n FROM seen WHERE run = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)`, id, maxSeen)
}

// wake queues a run that waits or has ended.
func (r *run) wake(now time.Time, delay time.Duration) state.Wake {
	w := state.Wake{Version: r.header.Version, Priority: r.header.Priority, Tenant: r.header.Tenant}
	if !inFlight(r.status) {
		r.queue(now, delay)
		w.Publish = true
	}
	return w
}

// noisyAfter saves a run and reports whether its tenant is noisy.
func (t *tx) noisyAfter(r *run) (bool, error) {
	if err := t.save(r); err != nil {
		return false, err
	}
	return t.noisy(r)
}

// Abort implements state.Signals.
func (s *Store) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (w state.Wake, err error) {
	err = s.update(ctx, func(t *tx) error {
		r, err := t.load(id)
		if err != nil {
			return err
		}
		if r.status.Terminal() {
			return &state.TerminalError{ID: id, Status: r.status}
		}
		if r.turn.Abort == nil {
			r.turn.Abort = &abort
		}
		if _, err := t.get(`SELECT coalesce(max(n), 0) FROM inbox WHERE run = ?`, []any{id}, &r.turn.AbortReach); err != nil {
			return err
		}
		queued := r.status == state.Queued
		w = r.wake(t.now, delay)
		w.Publish = w.Publish || queued
		w.Noisy, err = t.noisyAfter(r)
		return err
	})
	return w, err
}
