package upkeep

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// sweepBatch is the maximum number of due runs of one request.
const sweepBatch = 512

type sweepStore interface {
	Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error)
}

type sweepBus interface {
	Backlog(ctx context.Context) (state.Backlog, error)
}

// Sweeper publishes turns whose message or worker was lost, wakes runs at their time, and finalizes runs that wait or
// have ended. The protocol depends on it: if nothing else continues a run, a sweep does. Any number of workers sweep
// without coordination. A Sweeper is safe for concurrent use.
type Sweeper struct {
	store     sweepStore
	bus       sweepBus
	dispatch  *dispatch.Dispatcher
	finalizer finalizing
	periods   Periods
	published prometheus.Counter // turns whose message is not in the backlog
	log       *slog.Logger
	refused   refused
}

// NewSweeper returns a sweeper of the runs in store. published counts the turns that it publishes whose message
// is not in the backlog.
func NewSweeper(store sweepStore, b sweepBus, d *dispatch.Dispatcher, f finalizing, periods Periods, published prometheus.Counter, log *slog.Logger) *Sweeper {
	return &Sweeper{store: store, bus: b, dispatch: d, finalizer: f, periods: periods, published: published, log: log}
}

// sweepers is the number of workers that sweep in an interval, on average. A sweep asks every shard of the store, so
// more of them cost the store much and find little.
const sweepers = 4

// Run sweeps, and calls after once in each interval, until ctx ends. members returns the number of workers. With more
// than sweepers of them each sweeps in a random part of the intervals only, so that no agreement is needed about who
// sweeps, and the end of a worker does not matter. A worker that retains rejected turns sweeps in each.
func (s *Sweeper) Run(ctx context.Context, members func() int, after func(context.Context)) {
	var backlog state.Backlog
	var asked time.Time
	for clock.Pause(ctx, s.periods.Sweep) {
		n := members()
		if n > sweepers && s.refused.none() && rand.IntN(n) >= sweepers { //nolint:gosec // not a secret
			after(ctx)
			continue
		}
		if time.Since(asked) >= s.periods.RedeliveryDelay {
			known, err := s.bus.Backlog(ctx)
			if err == nil {
				asked = time.Now()
			}
			// An old backlog would explain every wait indefinitely, so use none if the bus does not
			// answer.
			debug(s.log, err, "read backlog")
			backlog = known
		}
		s.sweep(ctx, backlog)
		after(ctx)
	}
}

// sweep is one pass. It takes runs that are due in parts, until a part has fewer than it asked for or the bus rejects
// all turns of a part. If the bus again rejects a turn that it has rejected before, the first part is a single run: the
// store defers the next check of each run that a pass takes. The other runs stay due, so that their turns are published
// as soon as the bus accepts them again.
func (s *Sweeper) sweep(ctx context.Context, backlog state.Backlog) {
	limit := sweepBatch
	if !s.repeatRefused(ctx) {
		limit = 1
	}
	for {
		due, err := s.store.Sweep(ctx, limit, s.periods.RedeliveryDelay, backlog)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("due and lost turns could not be read from the store; the worker retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
			}
			return
		}
		refused := s.Republish(ctx, due, dispatch.Swept())
		if len(due) < limit || refused == len(due) {
			return
		}
		limit = sweepBatch
	}
}

// maxRefused bounds the rejected turns that a worker retains. The store returns the others again,
// later.
const maxRefused = 4096

// refused are due turns that the bus rejected. The store has deferred each for up to 64 redelivery
// delays, so the worker retries them.
type refused struct {
	mu  sync.Mutex
	due []dueRun // the oldest first
}

// dueRun is a due run with the cause of its publication.
type dueRun struct {
	state.Due

	cause dispatch.Cause
}

func (r *refused) add(d dueRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = append(r.due, d)
	r.due = r.due[max(0, len(r.due)-maxRefused):]
}

func (r *refused) none() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.due) == 0
}

// take removes and returns up to n turns.
func (r *refused) take(n int) []dueRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.due))
	taken := r.due[:n:n]
	r.due = r.due[n:]
	return taken
}

// repeatRefused publishes the rejected turns, one of them first. It returns false if the bus
// rejects that one again.
func (s *Sweeper) repeatRefused(ctx context.Context) bool {
	if s.serve(ctx, s.refused.take(1)) > 0 {
		return false
	}
	s.serve(ctx, s.refused.take(maxRefused))
	return true
}

// sideBySide is the number of due runs served concurrently: some 1,000 a second with 50 ms to the
// bus.
const sideBySide = 64

// Republish publishes the turn of each due run, or finalizes the run. It returns the number of
// turns that the bus rejected; the sweeper retries those.
func (s *Sweeper) Republish(ctx context.Context, due []state.Due, cause dispatch.Cause) (refused int) {
	all := make([]dueRun, len(due))
	for i, d := range due {
		all[i] = dueRun{d, cause}
	}
	return s.serve(ctx, all)
}

// serve serves due runs concurrently. It keeps the turns that the bus has rejected, and returns their number.
// Runs whose finalization failed become due again.
func (s *Sweeper) serve(ctx context.Context, due []dueRun) int {
	var refused atomic.Int64
	var serving errgroup.Group
	serving.SetLimit(sideBySide)
	for _, d := range due {
		serving.Go(func() error {
			err := s.republishOne(ctx, d.Due, d.cause)
			if err == nil {
				return nil
			}
			s.log.Warn("publishing the turn of a due run, or finalizing the run, failed; a worker retries it", "error", err, "run_id", d.Run, "hint", "if the error says that something panicked, report the bug; otherwise run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
			if !d.Finalize {
				refused.Add(1)
				s.refused.add(d)
			}
			return nil
		})
	}
	_ = serving.Wait()
	return int(refused.Load())
}

func (s *Sweeper) republishOne(ctx context.Context, d state.Due, cause dispatch.Cause) error {
	defer Survive(s.log, d.Run) // it is due again, at this worker or another
	if d.Finalize {
		return s.finalizer.FinalizeRun(ctx, d.Run, d.FinalizedSeq)
	}
	if !d.Covered { // else the bus probably has its message
		s.published.Inc()
	}
	return s.dispatch.Republish(ctx, d, cause)
}
