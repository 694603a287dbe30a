package natsstore

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// schedule has the runs of the index by due time, and by the holder of their leases. The cost of a
// search depends on the runs found, not on the size of the index.
type schedule struct {
	due    dueHeap[state.RunID]
	owners map[string]map[state.RunID]bool // of leases
}

func newSchedule() schedule {
	return schedule{due: newDueHeap[state.RunID](), owners: map[string]map[state.RunID]bool{}}
}

// move records that the record of a run was replaced. from is the zero Record for a new run, and to for a
// deleted one.
func (s *schedule) move(id state.RunID, from, to record.Record) {
	s.due.set(id, to.Due.Time)
	was, is := holder(from), holder(to)
	if was == is {
		return
	}
	if held := s.owners[was]; held != nil {
		if delete(held, id); len(held) == 0 {
			delete(s.owners, was)
		}
	}
	if is == "" {
		return
	}
	if s.owners[is] == nil {
		s.owners[is] = map[state.RunID]bool{}
	}
	s.owners[is][id] = true
}

// holder returns the worker that has the lease of a run, or "".
func holder(r record.Record) string {
	if r.Status != state.Running {
		return ""
	}
	return r.Owner
}

// dueHeap has the run, or the timer, with the earliest due time on top.
type dueHeap[K comparable] struct {
	all []dueItem[K]
	at  map[K]int // index of each
}

type dueItem[K comparable] struct {
	id  K
	due time.Time
}

func newDueHeap[K comparable]() dueHeap[K] { return dueHeap[K]{at: map[K]int{}} }

func (h *dueHeap[K]) Len() int           { return len(h.all) }
func (h *dueHeap[K]) Less(i, j int) bool { return h.all[i].due.Before(h.all[j].due) }

func (h *dueHeap[K]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.at[h.all[i].id], h.at[h.all[j].id] = i, j
}

// Push implements heap.Interface.
func (h *dueHeap[K]) Push(x any) {
	r := x.(dueItem[K]) //nolint:forcetypeassert // of this file
	h.at[r.id] = len(h.all)
	h.all = append(h.all, r)
}

// Pop implements heap.Interface.
func (h *dueHeap[K]) Pop() any {
	last := len(h.all) - 1
	r := h.all[last]
	h.all = h.all[:last]
	delete(h.at, r.id)
	return r
}

// set sets the due time of an id; the zero time means never.
func (h *dueHeap[K]) set(id K, due time.Time) {
	i, there := h.at[id]
	switch {
	case !there && !due.IsZero():
		heap.Push(h, dueItem[K]{id, due})
	case there && due.IsZero():
		heap.Remove(h, i)
	case there && !h.all[i].due.Equal(due):
		h.all[i].due = due
		heap.Fix(h, i)
	}
}

// until returns up to limit ids that are due and not in without, in no defined order, and the number of
// ids examined.
func (h *dueHeap[K]) until(now time.Time, limit int, without map[K]bool) (ids []K, looked int) {
	below := []int{0}
	for len(below) > 0 && len(ids) < limit {
		i := below[len(below)-1]
		below = below[:len(below)-1]
		if i >= len(h.all) {
			continue
		}
		looked++
		r := h.all[i]
		if now.Before(r.due) {
			continue
		}
		if !without[r.id] {
			ids = append(ids, r.id)
		}
		below = append(below, 2*i+1, 2*i+2)
	}
	return ids, looked
}

// spread is the factor between the runs that a call of the schedule chooses from and those that it
// returns, so that concurrent workers seldom choose the same ones.
const spread = 8

// each applies fn to runs that find returns, up to limit answers. find returns up to n runs that are not in tried.
// An error of one run does not affect the others: each returns the last one together with the answers.
func (s *Store) each(ctx context.Context, limit int, find func(n int, tried map[state.RunID]bool) []state.RunID, fn func(*record.Record, state.RunID, time.Time) (state.Due, bool)) ([]state.Due, error) {
	var due []state.Due
	var failed error
	tried := map[state.RunID]bool{}
	for len(due) < limit {
		s.mu.Lock()
		ids := find(spread*limit, tried)
		s.mu.Unlock()
		if len(ids) == 0 {
			break
		}
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, id := range ids {
			if len(due) == limit {
				break
			}
			tried[id] = true
			d, ok, err := s.look(ctx, id, fn)
			if ctx.Err() != nil {
				return due, ctx.Err()
			}
			if err != nil {
				failed = err
			}
			if ok {
				due = append(due, d)
			}
		}
	}
	return due, failed
}

// look applies fn to a run.
func (s *Store) look(ctx context.Context, id state.RunID, fn func(*record.Record, state.RunID, time.Time) (state.Due, bool)) (d state.Due, ok bool, err error) {
	err = s.update(ctx, id, func(rec *record.Record, now time.Time) ([]state.Entry, error) {
		before := rec.Due
		if d, ok = fn(rec, id, now); !ok && rec.Due == before {
			return nil, errUnchanged
		}
		return nil, nil
	})
	switch {
	case errors.Is(err, state.ErrFormat):
		return d, false, nil
	case errors.Is(err, state.ErrNotFound):
		// Its messages are gone from the stream: by a purge, or with a disk.
		s.forget(id)
		return d, false, nil
	case err != nil:
		return d, false, err
	}
	if ok {
		d.Noisy = s.noisy(id)
	}
	return d, ok, nil
}

// Sweep implements state.Schedule. Its cost depends on the number of due runs. It returns an error of a run only if no
// other run is due.
func (s *Store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	now := s.clock.now()
	due, err := s.each(ctx, limit,
		func(n int, tried map[state.RunID]bool) []state.RunID {
			ids, _ := s.schedule.due.until(now, n, tried)
			return ids
		},
		func(rec *record.Record, id state.RunID, now time.Time) (state.Due, bool) {
			return rec.Sweep(id, now, delay, backlog)
		})
	if len(due) > 0 && ctx.Err() == nil {
		err = nil
	}
	return due, err
}

// Evict implements state.Workers. Its cost depends on the number of the worker's leases.
func (s *Store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	return s.each(ctx, limit,
		func(n int, tried map[state.RunID]bool) (ids []state.RunID) {
			for id := range s.schedule.owners[worker] {
				if len(ids) == n {
					break
				}
				if !tried[id] {
					ids = append(ids, id)
				}
			}
			return ids
		},
		func(rec *record.Record, id state.RunID, now time.Time) (state.Due, bool) {
			return rec.Evict(id, worker, now, delay)
		})
}

// Owners implements state.Workers, from the index.
func (s *Store) Owners(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.schedule.owners)), nil
}

// Leases implements state.Workers, from the index.
func (s *Store) Leases(_ context.Context, worker string, limit int) ([]state.RunID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := slices.Sorted(maps.Keys(s.schedule.owners[worker]))
	return held[:min(len(held), limit)], nil
}

// Heartbeat implements state.Workers. It does nothing: workers exchange heartbeats over the same
// NATS that stores the runs, so a stored one would add no information.
func (*Store) Heartbeat(context.Context, string, time.Duration) error { return nil }

// Alive implements state.Workers.
func (*Store) Alive(context.Context, string) (bool, error) { return false, nil }

// MarkFinalized implements state.Schedule.
func (s *Store) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	return s.update(ctx, id, func(rec *record.Record, _ time.Time) ([]state.Entry, error) {
		rec.NoteFinalized(seq)
		return nil, nil
	})
}
