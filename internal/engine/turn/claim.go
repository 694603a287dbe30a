package turn

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// claim claims the turn of a delivery. The context that it returns is cancelled by an abort, an interrupt, a
// lost lease or a shutdown. If it returns no turn, it has answered the message or left it for redelivery.
func (k *Taker) claim(ctx context.Context, d bus.TurnDelivery) (*turn, context.Context, error) {
	msg, leases := d.Turn(), k.cfg.Upkeep.Leases
	expected := leases.Expect(msg.Run)
	defer expected() // after Add, so that no abort in between is missed
	own, eager := leases.TakeEager(msg)
	at, token := time.Now(), ""
	if eager {
		at, token = own.Sent, own.Token
	}
	c, err := k.ask(ctx, msg, token)
	if err != nil {
		return nil, ctx, d.Nak(k.retryDelay(d.Delivered()))
	}
	k.cfg.Clock.Hear(c.Now)
	k.metrics.claims.WithLabelValues(string(c.Outcome)).Inc()
	if d.Delivered() > 1 {
		k.metrics.redeliveries.Inc()
	}
	if c.Outcome != state.Claimed {
		return nil, ctx, k.reject(ctx, d, c)
	}
	if c.FinalizedSeq == 0 { // the store did not look: without the number all events would be announced again
		c.FinalizedSeq = own.FinalizedSeq
	}
	if wait := k.mayGetResults(msg, c); wait > 0 {
		return nil, ctx, k.postpone(ctx, d, c, wait)
	}
	admitted, ok := k.cfg.Quarantine.Admit(c.Attempt-c.Paused, c.Abort != nil)
	if !ok {
		return nil, ctx, k.deferTurn(ctx, d, c)
	}
	t, ctx := k.begin(ctx, d, c)
	t.admitted = admitted
	// From here on an abort is for this turn. If the claim were expected until the turn's end, an
	// abort would end the next turn as well.
	leases.Add(t.lease, at, eager)
	k.metrics.inFlight.Inc()
	k.metrics.begin(msg, c)
	return t, ctx, nil
}

// ask claims a turn in the store, with the token of an eager claim if there is one.
func (k *Taker) ask(ctx context.Context, msg bus.Turn, token string) (*state.Claim, error) {
	q := state.ClaimRequest{
		Run: msg.Run, Version: msg.Version, Token: token, Worker: k.cfg.Worker, Lease: k.cfg.Periods.Lease, RedeliveryDelay: k.cfg.Periods.RedeliveryDelay,
		MaxLogBytes: smallView,
	}
	if token == "" {
		q.Token = k.cfg.Random.Token()
	}
	q.Refuse.From, q.Refuse.To = k.cfg.Quarantine.Refused()
	c, err := k.store.Claim(ctx, q)
	if err != nil {
		k.runLog(msg.Run).Warn("turn not started, because this worker could not claim it in the store; a worker retries it", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
		k.disclaim(ctx, q)
	}
	return c, err
}

// begin returns the turn that was claimed, with its span, and its context.
func (k *Taker) begin(ctx context.Context, d bus.TurnDelivery, c *state.Claim) (*turn, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := k.newTurn(d, c, upkeep.NewLease(c.Lease, c.State.Tenant, d, c.Abort != nil, cancel))
	ctx, t.span = k.startSpan(ctx, t, d.Turn())
	return t, ctx
}

// end ends the span, the lease, the effects, the memory and the admission of the turn, after its commit or without one.
func (t *turn) end() {
	t.endSpan()
	t.taker.metrics.inFlight.Dec()
	t.taker.cfg.Upkeep.Leases.End(t.lease)
	t.effects.End()
	t.view.Release()
	t.admitted()
}

// newTurn returns the turn that was claimed.
func (k *Taker) newTurn(d bus.TurnDelivery, c *state.Claim, l *upkeep.Lease) *turn {
	t := &turn{
		taker: k, delivery: d, lease: l, started: time.Now(),
		claim: claimed{
			Attempt: c.Attempt, Paused: c.Paused, Version: c.Version, Base: c.Base, FinalizedSeq: c.FinalizedSeq, Journal: c.Journal, Signals: c.Signals, Abort: c.Abort,
			Open: c.State.Open, Usage: c.State.Usage, LogOmitted: c.LogOmitted,
		},
	}
	t.replay(c)
	t.journal = NewJournal(k.store, l, JournalConfig{
		Attempt: c.Attempt, Length: c.LogLen, Timeout: k.cfg.Periods.Lease / 2, Outlive: k.outlive, Readers: t, Log: k.cfg.Log,
	})
	t.effects = effect.Turn{Run: t.s, Attempt: c.Attempt, Starts: c.Journal.Starts, Journal: &t.journal, Lease: l}
	return t
}

// replay sets the state of the turn to the committed header with the journal entries of earlier attempts folded into
// it: the state that the last of them had reached (F4).
func (t *turn) replay(c *state.Claim) {
	s := c.State
	if s.LogLen() > c.Base {
		replayed := *s
		replayed.Log = state.Through(s.Log, c.Base)
		for _, e := range state.After(s.Log, c.Base) {
			replayed.Extend(&e)
		}
		s = &replayed
	}
	t.become(s)
}

// began returns the first event of the turn, with the findings of the claim.
func (c *claimed) began(at state.Time, worker string, maxAttempts int) loop.TurnBegan {
	began := loop.TurnBegan{
		At: at, Worker: worker, Attempt: c.Attempt, Signals: c.Signals, Abort: c.Abort,
		Poisoned: c.Attempt-c.Paused > maxAttempts,
	}
	for _, id := range slices.Sorted(maps.Keys(c.Journal.Results)) {
		e := c.Journal.Results[id]
		began.Results = append(began.Results, loop.ToolResult{
			CallID: id, Name: e.Name, Content: contentOf(e), Images: e.Message.Parts[0].Images, Files: e.Message.Parts[0].Files, Origin: e.Message.Parts[0].Origin, IsError: e.IsError, Reused: e.Type == state.EntryReused,
			Duration: time.Duration(e.DurationMS) * time.Millisecond, At: e.At,
		})
	}
	for _, id := range slices.Sorted(maps.Keys(c.Journal.Started)) {
		if _, done := c.Journal.Results[id]; !done {
			began.Started = append(began.Started, id)
		}
	}
	return began
}

func contentOf(e state.Entry) string {
	if e.Message == nil || len(e.Message.Parts) == 0 {
		return ""
	}
	return e.Message.Parts[0].Content
}

// deferTurn releases a turn that the quarantine does not admit: another turn was admitted between the
// request and the claim. The sweeper publishes the turn again.
func (k *Taker) deferTurn(ctx context.Context, d bus.TurnDelivery, c *state.Claim) error {
	log := k.runLog(d.Turn().Run)
	ctx, cancel := k.outlive(ctx, k.cfg.Periods.Lease)
	defer cancel()
	if err := k.store.Release(ctx, c.Lease, 0); err != nil {
		log.Warn("lease of a turn not released; when it has expired, a worker continues the turn", "error", err, "hint", releaseHint)
		return nil
	}
	if _, again := k.cfg.Quarantine.Defer(c.Lease.Run, c.Lease.Version, time.Now(), 0); again {
		log.Info(deferredLog, "attempt", c.Attempt)
	}
	return d.Ack()
}

// deferredLog is logged once a minute at most for each turn.
const deferredLog = "turn deferred: it was in flight on workers that died, and another such turn is in flight on this worker"

// mayGetResults returns the time for which the worker must postpone the turn; at 0 or less the turn continues. A turn
// waits if the first attempt lost its lease and has started a call that is not idempotent and has no result: its worker
// may only have been paused or cut off, and may still report the result. Without a result the outcome is unknown,
// unless the tool has a probe. Only the second attempt waits, and the time counts from the takeover, so a turn whose
// workers die again and again makes progress. An aborted turn does not wait. If LateResults is negative, no turn waits.
func (k *Taker) mayGetResults(msg bus.Turn, c *state.Claim) time.Duration {
	if c.Attempt != 2 || c.Abort != nil || k.cfg.Periods.LateResults < 0 {
		return 0
	}
	for id := range c.Journal.Started {
		if _, ok := c.Journal.Results[id]; !ok {
			return k.stillLate(msg, c)
		}
	}
	return 0
}

// lateTimes multiplies the wait for the results of a worker whose heartbeats have resumed: it may have results
// of all its turns to hand in, and much other work.
const lateTimes = 4

// stillLate returns how much longer a turn that was taken over must wait, by the store's clock; 0 or less means that
// the wait is over. The wait lasts LateResults from the takeover, or lateTimes as long if the message names the
// earlier worker (TakenFrom) and that worker sends heartbeats again. The result is at most LateResults: the worker
// may return during the wait, so the caller must ask again after it.
func (k *Taker) stillLate(msg bus.Turn, c *state.Claim) time.Duration {
	if c.TakenOver.IsZero() {
		return 0
	}
	late := k.cfg.Periods.LateResults
	until := c.TakenOver.Add(late)
	if k.cfg.Upkeep.Members.Back(msg.TakenFrom) {
		until = c.TakenOver.Add(lateTimes * late)
	}
	return min(late, until.Sub(c.Now))
}

// postpone releases a turn for as long as late results may arrive. Until then it holds no slot, and the attempt
// does not count.
func (k *Taker) postpone(ctx context.Context, d bus.TurnDelivery, c *state.Claim, wait time.Duration) error {
	log := k.runLog(d.Turn().Run)
	ctx, cancel := k.outlive(ctx, k.cfg.Periods.Lease)
	defer cancel()
	if err := k.store.Release(ctx, c.Lease, wait+k.cfg.Periods.RedeliveryDelay); err != nil {
		log.Warn("lease of a turn not released; when it has expired, a worker continues the turn", "error", err, "hint", releaseHint)
		return nil
	}
	log.Info("turn postponed: the worker that had it was lost during tool calls and may still report their results; a worker continues the turn later")
	return d.Nak(wait)
}

// disclaim releases a claim with an unknown outcome as soon as the store answers: if the claim was made,
// the run would wait for the end of its lease although the worker is alive.
func (k *Taker) disclaim(ctx context.Context, q state.ClaimRequest) {
	ctx, cancel := k.outlive(ctx, q.Lease)
	defer cancel()
	l := state.Lease{Run: q.Run, Token: q.Token, Version: q.Version, Worker: q.Worker}
	for {
		err := k.store.Release(ctx, l, 0)
		if err == nil || upkeep.LeaseOver(err) || !clock.Pause(ctx, storePause) {
			return
		}
	}
}

// retryDelay returns the delay before the bus redelivers a turn whose claim the store did not answer. It doubles with
// each delivery, up to the duration of a lease, so that a backlog does not keep all workers busy. When the store
// answers again, the sweeper publishes due turns without waiting for the delay.
func (k *Taker) retryDelay(delivered int) time.Duration {
	return min(k.cfg.Periods.Sweep<<min(delivered-1, 10), k.cfg.Periods.Lease)
}
