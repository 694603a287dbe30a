package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// claim claims the turn of a delivery. An abort, a lost lease and a shutdown end the
// context of the turn. Without a turn there is none to take: the message was answered, or is
// left to be delivered again.
func (w *Worker) claim(ctx context.Context, d bus.TurnDelivery) (*turn, context.Context, error) {
	msg := d.Turn()
	expected := w.leases.Expect(msg.Run)
	defer expected() // after Add, so that no abort in between is missed
	ask := state.ClaimRequest{
		Run: msg.Run, Version: msg.Version, Token: w.random.Token(), Worker: w.cfg.ID, Lease: w.cfg.LeaseDuration, RedeliveryDelay: w.cfg.RedeliveryDelay,
	}
	ask.Refuse.From, ask.Refuse.To = w.quarantine.Refused()
	at := time.Now()
	own, claimed, eager := w.leases.TakeEager(msg)
	if eager {
		ask.Token, at = own.Token, claimed
	}
	c, err := w.store.Claim(ctx, ask)
	if err != nil {
		w.runLog(msg.Run).Warn("claim failed", "error", err, "hint", "check that the store is reachable; the worker retries the turn")
		w.disclaim(ctx, ask)
		return nil, ctx, d.Nak(w.retryDelay(d.Delivered()))
	}
	w.clock.Hear(c.Now)
	w.metrics.claims.WithLabelValues(string(c.Outcome)).Inc()
	if d.Delivered() > 1 {
		w.metrics.redeliveries.Inc()
	}
	if c.Outcome != state.Claimed {
		return nil, ctx, w.reject(ctx, d, c)
	}
	if wait := w.mayGetResults(msg, c); wait > 0 {
		return nil, ctx, w.postpone(ctx, d, c, wait)
	}
	admitted, ok := w.quarantine.Admit(c.Attempt-c.Paused, c.Abort != nil)
	if !ok {
		return nil, ctx, w.deferTurn(ctx, d, c)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	l := upkeep.NewLease(c.Lease, c.State.Tenant, d, c.Abort != nil, cancel)
	t := w.newTurn(d, c, l)
	t.admitted = admitted
	ctx, t.span = t.traceTurn(ctx, msg)
	// From here on an abort is for this turn. If the claim were expected until the turn's end, an
	// abort would end the next turn, too.
	w.leases.Add(l, at, eager)
	w.metrics.inFlight.Inc()
	return t, ctx, nil
}

// end undoes what claim has begun.
func (t *turn) end() {
	t.endSpan()
	t.w.metrics.inFlight.Dec()
	t.w.leases.End(t.lease)
	t.effects.End()
	t.admitted()
}

// newTurn returns the turn that was claimed.
func (w *Worker) newTurn(d bus.TurnDelivery, c state.Claim, l *upkeep.Lease) *turn {
	t := &turn{
		w: w, delivery: d, lease: l, started: time.Now(), s: replayed(c),
		claim: claimed{
			Attempt: c.Attempt, Paused: c.Paused, Version: c.Version, Base: c.Base, FinalizedSeq: c.FinalizedSeq, Journal: c.Journal, Signals: c.Signals, Abort: c.Abort,
			Open: c.State.Open, Usage: c.State.Usage,
		},
	}
	t.journal = journal{store: w.store, lease: l, attempt: c.Attempt, timeout: w.cfg.LeaseDuration / 2, readers: t, log: w.log, length: c.State.LogLen()}
	t.effects = effect.Turn{Run: &t.s, Attempt: c.Attempt, Starts: c.Journal.Starts, Journal: &t.journal, Lease: l}
	return t
}

// replayed returns the committed header with what earlier attempts at the turn
// have journaled folded into it: the state in which the last of them stood (F4).
func replayed(c state.Claim) state.State {
	s, journaled := c.State, c.State.Log[c.Base:]
	s.Log = s.Log[:c.Base]
	for _, e := range journaled {
		s = s.Append(e)
	}
	return s
}

// deferTurn gives up a turn that must not be beside others here, one of which has come between
// the question and the claim. The sweeper brings it back, with a message of its own.
func (w *Worker) deferTurn(ctx context.Context, d bus.TurnDelivery, c state.Claim) error {
	log := w.runLog(d.Turn().Run)
	if err := w.store.Release(ctx, c.Lease, 0); err != nil {
		log.Warn("release failed", "error", err, "hint", "check that the store is reachable; the lease expires")
		return nil
	}
	log.Info("turn deferred: workers were lost with it, and others like it are in flight here", "attempt", c.Attempt)
	return d.Ack()
}

// mayGetResults returns how long results of calls may still come in whose worker has lost its
// lease on this turn: it may only have been paused or cut off. Without the results the
// outcome is unknown, and no call is started twice. A turn waits for them once, from the time
// at which it was taken over, so that a turn whose workers die again and again gets on.
func (w *Worker) mayGetResults(msg bus.Turn, c state.Claim) time.Duration {
	if c.Attempt != 2 || c.Abort != nil || w.cfg.LateResults < 0 {
		return 0
	}
	for id := range c.Journal.Started {
		if _, ok := c.Journal.Results[id]; !ok {
			return w.stillLate(msg, c)
		}
	}
	return 0
}

// lateTimes is how many times as long results are waited for of a worker that is back: it may
// have those of all its turns to hand in, while it has a lot to catch up with.
const lateTimes = 4

// stillLate returns how long a turn that was taken over waits from now on, by the store's clock,
// however its worker was found to be gone and whichever of its messages this is.
func (w *Worker) stillLate(msg bus.Turn, c state.Claim) time.Duration {
	if c.TakenOver.IsZero() {
		return 0
	}
	until := c.TakenOver.Add(w.cfg.LateResults)
	if w.members.Back(msg.TakenFrom) {
		until = c.TakenOver.Add(lateTimes * w.cfg.LateResults)
	}
	return min(w.cfg.LateResults, until.Sub(c.Now))
}

// postpone gives up a turn for as long as results of it may come in. It holds no slot
// meanwhile, and no attempt is counted.
func (w *Worker) postpone(ctx context.Context, d bus.TurnDelivery, c state.Claim, wait time.Duration) error {
	log := w.runLog(d.Turn().Run)
	if err := w.store.Release(ctx, c.Lease, wait+w.cfg.RedeliveryDelay); err != nil {
		log.Warn("release failed", "error", err, "hint", "check that the store is reachable; the lease expires")
		return nil
	}
	log.Info("turn postponed: its worker was lost during calls, and may hand in what they came to")
	return d.Nak(wait)
}

// disclaim gives back a claim of unknown outcome as soon as the store answers: if it
// was made, a run of a worker that lives would wait for the end of its lease.
func (w *Worker) disclaim(ctx context.Context, q state.ClaimRequest) {
	ctx, cancel := context.WithTimeout(ctx, q.Lease)
	defer cancel()
	l := state.Lease{Run: q.Run, Token: q.Token, Version: q.Version, Worker: q.Worker}
	for {
		err := w.store.Release(ctx, l, 0)
		if err == nil || upkeep.LeaseOver(err) || !clock.Pause(ctx, storePause) {
			return
		}
	}
}

// retryDelay is how long a turn whose store does not answer is left alone: longer each
// time, so that a backlog does not keep everybody busy. When the store is back, the
// sweeper does not wait for it.
func (w *Worker) retryDelay(delivered int) time.Duration {
	return min(w.cfg.SweepInterval<<min(delivered-1, 10), w.cfg.LeaseDuration)
}

// patience is how often a message may come that is ahead of the store.
const patience = 3

// reject answers a message whose turn this worker may not take.
func (w *Worker) reject(ctx context.Context, d bus.TurnDelivery, c state.Claim) error {
	msg := d.Turn()
	log := func(level slog.Level, message string, more ...any) {
		if w.log.Enabled(ctx, level) {
			w.runLog(msg.Run).With("outcome", c.Outcome, "message_version", msg.Version, "version", c.Version).Log(ctx, level, message, more...)
		}
	}
	switch c.Outcome {
	case state.ClaimBusy:
		log(slog.LevelDebug, "turn rejected")
		return d.Nak(min(c.Busy+w.cfg.SweepInterval, w.cfg.LeaseDuration))
	case state.ClaimDeferred:
		log(slog.LevelInfo, "turn deferred: workers were lost with it, and others like it are in flight here")
		return d.Nak(w.cfg.SweepInterval)
	case state.ClaimBehind:
		log(slog.LevelDebug, "turn rejected") // the process logs that it waits
		return d.Nak(w.cfg.RedeliveryDelay)
	case state.ClaimUnsupportedFormat:
		// Nothing was claimed, so no attempt is counted. It is asked again ever more
		// slowly: there may be no newer worker for a while.
		log(slog.LevelWarn, "run was written by a newer build and is left to its workers", "knows_format", state.Format, "hint", "upgrade this worker")
		return d.Nak(min(time.Duration(d.Delivered())*w.cfg.SweepInterval, w.cfg.LeaseDuration))
	case state.ClaimStoreBehind, state.ClaimMissing:
		// The store is older than the message: a replica that was just promoted,
		// or a loss. It gets some time to catch up; then the store's word counts,
		// and the sweeper drives the run from where the store has it.
		if d.Delivered() <= patience {
			return d.Nak(w.catchUpDelay(d, c))
		}
		log(slog.LevelWarn, "store is older than the message", "hint", "docs/how-to/troubleshoot.md#lost-runs")
		if c.Outcome == state.ClaimMissing {
			return w.finalizer.BuryLost(ctx, d)
		}
	case state.ClaimDeleted:
		// A message of before the deletion. Its worker may have died before it removed what it had
		// published behind the deletion.
		if w.feed != nil {
			if err := w.feed.Recheck(ctx, msg.Tenant, msg.Run); err != nil {
				log(slog.LevelWarn, "events of a deleted run not removed", "error", err, "hint", "check that the store and NATS are reachable; NATS redelivers the message")
				return nil
			}
		}
		log(slog.LevelDebug, "turn rejected")
	case state.ClaimStale, state.ClaimTerminal, state.ClaimWaiting:
		// Whoever took the turn may have died before it published what follows.
		if err := w.follow(ctx, c, msg); err != nil {
			log(slog.LevelWarn, "publish what follows failed", "error", err, "hint", "check that the store and NATS are reachable; NATS redelivers the message")
			return nil
		}
		log(slog.LevelDebug, "turn rejected")
	default:
		log(slog.LevelError, "unknown outcome of a claim", "hint", "upgrade this worker: another build wrote the store")
		return nil
	}
	return d.Ack()
}

// follow does for a run what a worker does after its commit.
func (w *Worker) follow(ctx context.Context, c state.Claim, msg bus.Turn) error {
	switch {
	case c.Status == state.Queued:
		return w.dispatch.Follow(ctx, msg, c.Version, c.Priority)
	case c.Status == state.Running || c.FinalizedSeq == c.LogLen:
		return nil
	default:
		return w.finalizer.FinalizeRun(ctx, msg.Run, c.FinalizedSeq)
	}
}

// catchUpDelay is the delay of a message whose run the store has in an older version. It is longer for
// a missing run: if another run waits for it, the sweeper looks at that run first, which knows more.
func (w *Worker) catchUpDelay(d bus.TurnDelivery, c state.Claim) time.Duration {
	delay := time.Duration(d.Delivered()) * w.cfg.SweepInterval
	if c.Outcome == state.ClaimMissing {
		delay = max(delay, w.cfg.RedeliveryDelay)
	}
	return delay
}
