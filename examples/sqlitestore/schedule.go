package sqlitestore

import (
	"context"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Sweep implements state.Schedule.
func (s *Store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) (list []state.Due, err error) {
	err = s.update(ctx, func(t *tx) error {
		ids, err := all[state.RunID](t, `SELECT id FROM runs WHERE due <= ? AND format <= ? ORDER BY due LIMIT ?`, millis(t.now), state.Format, limit)
		if err != nil {
			return err
		}
		for _, id := range ids {
			r, err := t.load(id)
			if err != nil {
				return err
			}
			d, due := r.sweep(t.now, delay, backlog)
			if d.Noisy, err = t.noisyAfter(r); err != nil {
				return err
			}
			if due {
				list = append(list, d)
			}
		}
		return nil
	})
	return list, err
}

// sweep looks at a run that is due, and sets the time at which it is due again.
func (r *run) sweep(now time.Time, delay time.Duration, backlog state.Backlog) (d state.Due, due bool) {
	t := &r.turn
	d = r.dueNow()
	switch {
	case r.status == state.Running && now.Before(t.LeaseEnd.Time):
		r.due = state.At(t.LeaseEnd.Add(delay))
		return d, false
	case r.status == state.Waiting && !t.WakeAt.IsZero() && !now.Before(t.WakeAt.Time):
		r.queue(now, delay)
		d.NeedsTurn = true
	case r.status == state.Queued && backlog.Covers(d.Priority, t.QueuedAt.Time):
		r.due = state.At(now.Add(max(state.BacklogLook*delay, now.Sub(t.QueuedAt.Time))))
		if t.Sweeps > 0 || t.Abort != nil { // the message of an abort has an id of its own
			return d, false
		}
		t.Sweeps = 1
		d.Sweeps, d.NeedsTurn, d.Covered = 1, true, true
		return d, true
	case r.status == state.Running:
		r.evict(now)
		sweeps := t.Sweeps
		r.queue(now, delay)
		t.Sweeps = sweeps
		d.NeedsTurn = true
	case r.status == state.Queued:
		t.QueuedAt = state.At(now)
		d.NeedsTurn = true
	case t.Finalized < r.logLen || r.dependent():
		d.Finalize, d.FinalizedSeq = true, t.Finalized
	default:
		r.due = t.WakeAt
		return d, false
	}
	r.due = state.At(now.Add(delay << min(t.Sweeps, maxBackoff)))
	if d.Finalize {
		r.due = r.orWake(r.due.Time)
	}
	t.Sweeps++
	d.Sweeps = t.Sweeps
	return d, true
}

func (r *run) dueNow() state.Due {
	d := state.Due{Run: r.header.ID, Version: r.header.Version, Priority: r.header.Priority, Tenant: r.header.Tenant}
	if r.turn.Abort != nil {
		d.Priority = state.High
	}
	return d
}

// MarkFinalized implements state.Schedule.
func (s *Store) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	return s.update(ctx, func(t *tx) error {
		return t.change(id, func(r *run) error {
			r.turn.Finalized = max(r.turn.Finalized, min(seq, r.logLen))
			if r.turn.Finalized == r.logLen && !inFlight(r.status) && !r.dependent() {
				r.due = r.turn.WakeAt
			}
			return nil
		})
	})
}

// Counts implements state.Schedule.
func (s *Store) Counts(ctx context.Context) (map[state.Status]int64, error) {
	counts := map[state.Status]int64{}
	err := s.update(ctx, func(t *tx) error {
		rows, err := t.sql.QueryContext(ctx, `SELECT status, count(*) FROM runs GROUP BY status`)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var status state.Status
			var n int64
			if err := rows.Scan(&status, &n); err != nil {
				return err
			}
			counts[status] = n
		}
		return rows.Err()
	})
	return counts, err
}

// Evict implements state.Workers.
func (s *Store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) (list []state.Due, err error) {
	err = s.update(ctx, func(t *tx) error {
		ids, err := t.leases(worker, limit)
		if err != nil {
			return err
		}
		for _, id := range ids {
			r, err := t.load(id)
			if err != nil {
				return err
			}
			r.evict(t.now)
			r.queue(t.now, delay)
			r.turn.Sweeps = 1
			d := r.dueNow()
			d.NeedsTurn, d.Sweeps = true, 1
			if d.Noisy, err = t.noisyAfter(r); err != nil {
				return err
			}
			list = append(list, d)
		}
		return nil
	})
	return list, err
}

func (t *tx) leases(worker string, limit int) ([]state.RunID, error) {
	if worker == "" {
		return nil, nil
	}
	return all[state.RunID](t, `SELECT id FROM runs WHERE owner = ? AND format <= ? LIMIT ?`, worker, state.Format, limit)
}

// Owners implements state.Workers.
func (s *Store) Owners(ctx context.Context) (owners []string, err error) {
	err = s.update(ctx, func(t *tx) error {
		owners, err = all[string](t, `SELECT DISTINCT owner FROM runs WHERE owner <> '' ORDER BY owner`)
		return err
	})
	return owners, err
}

// Leases implements state.Workers.
func (s *Store) Leases(ctx context.Context, worker string, limit int) (ids []state.RunID, err error) {
	err = s.update(ctx, func(t *tx) error {
		ids, err = t.leases(worker, limit)
		return err
	})
	return ids, err
}

// Heartbeat implements state.Workers.
func (s *Store) Heartbeat(ctx context.Context, worker string, lasts time.Duration) error {
	return s.update(ctx, func(t *tx) error {
		return t.exec(`INSERT INTO heartbeats VALUES (?, ?) ON CONFLICT DO UPDATE SET until = excluded.until`, worker, millis(t.now.Add(lasts)))
	})
}

// Alive implements state.Workers.
func (s *Store) Alive(ctx context.Context, worker string) (alive bool, err error) {
	err = s.update(ctx, func(t *tx) error {
		var until int64
		found, err := t.get(`SELECT until FROM heartbeats WHERE worker = ?`, []any{worker}, &until)
		alive = found && millis(t.now) < until
		return err
	})
	return alive, err
}
