package service

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// reachableFor limits how long a worker counts as reachable after a heartbeat, in addition to the interval that
	// the heartbeat names: longer than four heartbeat intervals, the rule that workers apply too.
	reachableFor = 2 * time.Second

	// workingFor limits how long a worker counts as working after a heartbeat: longer than the default lease, and so
	// than four intervals of any worker with that lease, also one whose heartbeats come every few seconds.
	workingFor = 30 * time.Second

	// shownFor limits how long a worker without heartbeats or leases stays in the list.
	shownFor = 10 * time.Minute

	// leasesShown is the maximum number of a worker's runs that the list names. The count includes
	// all.
	leasesShown = 10
)

// workers holds the latest heartbeat that this gateway has received from each worker.
type workers struct {
	mu    sync.Mutex
	heard map[string]heardWorker
}

type heardWorker struct {
	bus.Heartbeat

	at time.Time
}

func (h heardWorker) reachable(now time.Time) bool { return now.Sub(h.at) <= reachableFor+h.Interval }

// hear records a heartbeat that arrived at now. It ignores heartbeats of gateways, and removes a worker that is
// leaving.
func (w *workers) hear(h bus.Heartbeat, now time.Time) {
	if h.Gateway {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Leaving {
		delete(w.heard, h.Worker)
		return
	}
	if w.heard == nil {
		w.heard = map[string]heardWorker{}
	}
	if _, known := w.heard[h.Worker]; !known {
		maps.DeleteFunc(w.heard, func(_ string, o heardWorker) bool { return now.Sub(o.at) > shownFor })
	}
	w.heard[h.Worker] = heardWorker{h, now}
}

// list returns the workers whose heartbeats arrived within shownFor, by id.
func (w *workers) list(now time.Time) map[string]api.Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[string]api.Worker, len(w.heard))
	for id, h := range w.heard {
		v := api.Worker{ID: id, Status: api.WorkerAlive, Version: h.Version, Slots: h.Slots, HeardAt: state.At(h.at)}
		if !h.reachable(now) {
			v.Status = api.WorkerUnreachable
		}
		if now.Sub(h.at) <= shownFor {
			all[id] = v
		}
	}
	return all
}

// turns returns the number of turns in flight in each lane, on workers that are reachable.
func (w *workers) turns(now time.Time) map[state.Priority]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	lanes := map[state.Priority]int64{}
	for _, h := range w.heard {
		if !h.reachable(now) {
			continue
		}
		for lane, n := range h.Turns {
			lanes[lane] += int64(n)
		}
	}
	return lanes
}

// Fleet reports on the workers and queues that serve all tenants.
type Fleet struct {
	*core

	workers *workers
	lag     *lag
}

// Hear records a heartbeat of a worker that arrived at now.
func (s *Fleet) Hear(h bus.Heartbeat, now time.Time) { s.workers.hear(h, now) }

// Working reports whether a heartbeat of any worker has arrived within workingFor.
func (s *Fleet) Working() bool {
	now := time.Now()
	for _, w := range s.workers.list(now) {
		if now.Sub(w.HeardAt.Time) <= workingFor {
			return true
		}
	}
	return false
}

// Workers returns a page, by id, of the workers whose heartbeats have reached this gateway within 10 minutes (shownFor)
// or that hold leases, expired ones included. A worker that has announced its end to this gateway is listed only while
// it holds leases. A worker from which this gateway has received no heartbeat within 2 s (reachableFor) is unreachable.
// Each has the number of runs on which it holds leases, and the ids of up to ten of them.
func (s *Fleet) Workers(ctx context.Context, c access.Caller, p Page) (api.Page[api.Worker], error) {
	if err := s.permit(ctx, c, ReadWorkers); err != nil {
		return api.Page[api.Worker]{}, err
	}
	known := s.workers.list(time.Now())
	owners, err := s.store.Owners(ctx)
	if err != nil {
		return api.Page[api.Worker]{}, err
	}
	for _, id := range owners {
		if _, heard := known[id]; !heard {
			known[id] = api.Worker{ID: id, Status: api.WorkerUnreachable}
		}
	}
	all := make([]api.Worker, 0, len(known))
	for _, id := range slices.Sorted(maps.Keys(known)) {
		all = append(all, known[id])
	}
	page, err := Cut(p, all)
	if err != nil {
		return api.Page[api.Worker]{}, err
	}
	err = s.readEach(ctx, len(page.Items), func(ctx context.Context, i int) error {
		return s.holds(ctx, &page.Items[i], slices.Contains(owners, page.Items[i].ID))
	})
	return page, err
}

func (s *Fleet) holds(ctx context.Context, worker *api.Worker, some bool) error {
	worker.Runs = []string{}
	if !some {
		return nil
	}
	held, err := s.store.Leases(ctx, worker.ID, math.MaxInt)
	if err != nil {
		return err
	}
	worker.Holds = len(held)
	for _, id := range held[:min(len(held), leasesShown)] {
		worker.Runs = append(worker.Runs, string(id))
	}
	return nil
}

// Queues returns, for each lane, the number of turns that wait or are in flight and the
// time at which the oldest waiting one was queued, and the number of runs by status.
// The error is a *BusError if the bus accepts no writes or does not report its queues.
func (s *Fleet) Queues(ctx context.Context, c access.Caller) (api.Queues, error) {
	if err := s.permit(ctx, c, ReadQueues); err != nil {
		return api.Queues{}, err
	}
	now := s.lag.figures()
	if now.lanes == nil {
		return api.Queues{}, &BusError{errNoFigures}
	}
	counts, err := s.store.Counts(ctx)
	if err != nil {
		return api.Queues{}, err
	}
	lanes := make([]api.Queue, 0, len(now.lanes))
	for _, lane := range state.Priorities() {
		q := api.Queue{Lane: string(lane), Backlog: now.lanes[lane]}
		if since, waits := now.since[lane]; waits {
			q.OldestAt, q.OldestSeconds = state.At(since), max(0, time.Since(since).Seconds())
		}
		lanes = append(lanes, q)
	}
	return api.Queues{Page: api.NewPage(lanes, ""), Runs: counts}, nil
}
