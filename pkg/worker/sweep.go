package worker

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/dispatch"
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
		for {
			due, err := w.store.Sweep(ctx, sweepBatch, w.cfg.RedeliveryDelay, backlog)
			if err != nil {
				if ctx.Err() == nil {
					w.log.Warn().Err(err).Str("hint", "is the store reachable? it is asked again").Msg("sweep failed")
				}
				break
			}
			w.republish(ctx, due, dispatch.Swept())
			if len(due) < sweepBatch {
				break
			}
		}
		if err := w.quotas.refresh(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Str("hint", "is the store reachable? it is asked again").Msg("rate limits not read")
		}
	}
}

// sideBySide is how many due runs are served at once: with 50 ms to the bus, some 1,000 a
// second.
const sideBySide = 64

// republish does for each due run what its entry says, side by side. What fails now is due
// again.
func (w *Worker) republish(ctx context.Context, due []state.Due, cause dispatch.Cause) {
	var serving errgroup.Group
	serving.SetLimit(sideBySide)
	for _, d := range due {
		serving.Go(func() error {
			if err := w.republishOne(ctx, d, cause); err != nil {
				w.log.Warn().Err(err).Str("run_id", string(d.Run)).Str("hint", "it is tried again").Msg("due run not served")
			}
			return nil
		})
	}
	_ = serving.Wait()
}

func (w *Worker) republishOne(ctx context.Context, d state.Due, cause dispatch.Cause) error {
	defer w.survive(d.Run) // it is due again, at this worker or another
	if d.Finalize {
		return w.finalizeRun(ctx, d.Run, d.FinalizedSeq)
	}
	w.metrics.swept.Inc()
	return w.dispatch.Republish(ctx, d, cause)
}
