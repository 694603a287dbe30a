package worker

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// A run is sticky while its next turn costs least on the worker that took the last one: that worker has claimed the
// turn with its commit and has the log in memory. The message of such a turn goes to the worker's own queue. It is a
// message like any other: if the worker dies, its eviction publishes the turn in its lane.

const (
	// stickyAhead is the number of messages that the worker fetches in advance from its own queue, which no other
	// worker could take.
	stickyAhead = 63

	// stickyWait is the time that a turn from the worker's own queue waits for a slot. Then any worker may take it.
	stickyWait = 50 * time.Millisecond

	// stickyDrain is the time without a message after which a worker that stops regards its own queue as empty.
	stickyDrain = 100 * time.Millisecond
)

// openSticky opens the worker's own queue. Without it the worker publishes all turns in the lanes.
func (w *Worker) openSticky(ctx context.Context) {
	if w.cfg.Without.EagerClaims || w.cfg.Without.Sticky {
		return
	}
	own, err := w.bus.StickyTurns(ctx, w.cfg.ID)
	if err != nil {
		w.log.Warn("this worker has no queue of its own, so any worker continues its runs, which costs more; it works without until it restarts", "error", err, "hint", "permit this process to create the stream and the consumer, and restart it")
		return
	}
	own.SetPrefetch(stickyAhead)
	w.own = own
}

// nextTurn implements turn.Config.Next. The next turn of a run stays with this worker if it has a free slot and not more
// than its share of all turns. No turn that waits in a lane is overtaken: a worker with a free slot takes it at once. A
// worker that is alone gets the next turn from the lane.
func (w *Worker) nextTurn() (claim, sticky bool) {
	switch {
	case w.inFlight.Load() >= int64(w.cfg.Slots):
		return false, false
	case w.own == nil || w.members.Alone():
		return true, false
	default:
		ours := !w.members.OverShare()
		return ours, ours
	}
}

// mayStay implements turn.Config.MayStay. If tenants share this worker, the turns of noisy ones wait for each other in
// their lane.
func (w *Worker) mayStay(tenant string, noisy bool) bool {
	return !w.tenants.Shared() || !noisy && !w.tenants.Noisy(tenant)
}

// pullSticky starts the turns of the worker's own queue until ctx ends.
func (w *Worker) pullSticky(ctx, turnCtx context.Context) {
	for {
		d, err := w.own.Next(ctx)
		switch {
		case err == nil && w.slots.TryAcquire(d.Turn().Queue()):
			w.start(turnCtx, d)
		case err == nil:
			w.turns.Go(func() { w.startLater(ctx, turnCtx, d) })
		case ctx.Err() != nil || errors.Is(err, bus.ErrClosed):
			return
		default:
			w.log.Warn("turn messages not received from NATS; the worker retries", "error", err, "queue", "sticky", "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation")
			if !clock.Pause(ctx, w.cfg.SweepInterval) {
				return
			}
		}
	}
}

// startLater starts a turn of the worker's own queue as soon as a slot is free, or gives it back.
func (w *Worker) startLater(ctx, turnCtx context.Context, d bus.TurnDelivery) {
	brief, cancel := context.WithTimeout(ctx, stickyWait)
	defer cancel()
	if w.slots.Acquire(brief, d.Turn().Queue()) != nil {
		w.giveBack(turnCtx, d)
		return
	}
	w.start(turnCtx, d)
}

// giveBack publishes a turn of the worker's own queue in its lane. If that fails, the message stays with this worker
// until the ack wait ends, or the sweeper finds the run due.
func (w *Worker) giveBack(ctx context.Context, d bus.TurnDelivery) {
	err := w.dispatch.GiveBack(ctx, d.Turn())
	if err == nil {
		err = d.Ack()
	}
	w.check(err, "give a turn back")
}

// drainSticky gives back what arrives in the worker's own queue until ended is closed and the queue is empty.
func (w *Worker) drainSticky(ctx context.Context, ended <-chan struct{}) {
	for {
		brief, cancel := context.WithTimeout(ctx, stickyDrain)
		d, err := w.own.Next(brief)
		empty := brief.Err() != nil
		cancel()
		switch {
		case err == nil:
			w.giveBack(ctx, d)
			continue
		case ctx.Err() != nil || !empty:
			return
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}
