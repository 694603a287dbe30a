package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// sweepBatch is how many due runs one pass takes at most.
const sweepBatch = 512

// sweep is the sweeper, a part of the protocol: it publishes the turns whose message or
// worker was lost, wakes runs whose time has come, and finalizes runs that came to rest.
// Any number of workers sweep, without agreeing on who does.
func (w *Worker) sweep(ctx context.Context) {
	var backlog state.Backlog
	var asked time.Time
	for pause(ctx, w.cfg.SweepInterval) {
		if time.Since(asked) >= w.cfg.RedeliveryDelay {
			known, err := w.bus.Backlog(ctx)
			if err == nil {
				asked = time.Now()
			}
			// A backlog of long ago would explain every wait for ever: without an answer
			// there is none.
			w.check(err, "read backlog")
			backlog = known
		}
		w.sweepOnce(ctx, backlog)
		if err := w.quotas.refresh(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Str("hint", "is the store reachable? it is asked again").Msg("rate limits not read")
		}
	}
}

// sweepOnce is one pass of the sweeper. While the bus takes no turns, a pass sweeps one run, which is
// then put off; the others stay due, and have their turn published as soon as the bus takes turns again.
func (w *Worker) sweepOnce(ctx context.Context, backlog state.Backlog) {
	limit := sweepBatch
	if !w.repeatRefused(ctx) {
		limit = 1
	}
	for {
		due, err := w.store.Sweep(ctx, limit, w.cfg.RedeliveryDelay, backlog)
		if err != nil {
			if ctx.Err() == nil {
				w.log.Warn().Err(err).Str("hint", "is the store reachable? it is asked again").Msg("sweep failed")
			}
			return
		}
		refused := w.republish(ctx, due, dispatch.Swept())
		if len(due) < limit || refused == len(due) {
			return
		}
		limit = sweepBatch
	}
}

// maxRefused bounds the turns that a worker keeps because the bus has not taken them. The store brings
// up the others again, later.
const maxRefused = 4096

// refused are turns that were due and that the bus has not taken. The store has put each off for up to
// 64 redelivery delays, so the worker repeats them.
type refused struct {
	mu  sync.Mutex
	due []dueRun // the oldest first
}

// dueRun is a run that is due, with the cause.
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

// take removes up to n turns, and returns them.
func (r *refused) take(n int) []dueRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.due))
	taken := r.due[:n:n]
	r.due = r.due[n:]
	return taken
}

// repeatRefused publishes the turns that the bus has not taken, one of them first. It returns false if
// the bus has not taken that one either.
func (w *Worker) repeatRefused(ctx context.Context) bool {
	if w.serve(ctx, w.refused.take(1)) > 0 {
		return false
	}
	w.serve(ctx, w.refused.take(maxRefused))
	return true
}

// sideBySide is how many due runs are served at once: with 50 ms to the bus, some 1,000 a
// second.
const sideBySide = 64

// republish does for each due run what its entry says. It returns the number of turns that the bus has
// not taken.
func (w *Worker) republish(ctx context.Context, due []state.Due, cause dispatch.Cause) (refused int) {
	all := make([]dueRun, len(due))
	for i, d := range due {
		all[i] = dueRun{d, cause}
	}
	return w.serve(ctx, all)
}

// serve serves due runs side by side. It keeps the turns that the bus has not taken, and returns their
// number. What fails otherwise is due again.
func (w *Worker) serve(ctx context.Context, due []dueRun) int {
	var refused atomic.Int64
	var serving errgroup.Group
	serving.SetLimit(sideBySide)
	for _, d := range due {
		serving.Go(func() error {
			err := w.republishOne(ctx, d.Due, d.cause)
			if err == nil {
				return nil
			}
			w.log.Warn().Err(err).Str("run_id", string(d.Run)).Str("hint", "it is tried again").Msg("due run not served")
			if !d.Finalize {
				refused.Add(1)
				w.refused.add(d)
			}
			return nil
		})
	}
	_ = serving.Wait()
	return int(refused.Load())
}

func (w *Worker) republishOne(ctx context.Context, d state.Due, cause dispatch.Cause) error {
	defer w.survive(d.Run) // it is due again, at this worker or another
	if d.Finalize {
		return w.finalizeRun(ctx, d.Run, d.FinalizedSeq)
	}
	if !d.Covered { // else the bus probably has its message
		w.metrics.swept.Inc()
	}
	return w.dispatch.Republish(ctx, d, cause)
}
