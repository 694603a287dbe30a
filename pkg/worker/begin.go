package worker

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// begin claims the turn of a delivery. It returns nil if there is none to take; else
// done must be called in the end.
func (w *Worker) begin(ctx context.Context, d bus.TurnDelivery) (t *turn, turnCtx context.Context, done func()) {
	msg := d.Turn()
	claimed := w.held.expect(msg.Run)
	defer claimed()
	ask := state.ClaimRequest{Run: msg.Run, Version: msg.Version, Token: w.random.token(), Worker: w.cfg.ID, Lease: w.cfg.Lease, Grace: w.cfg.Grace}
	own, isKept := w.held.takeKept(msg)
	if isKept {
		ask.Token = own.lease.Token
	}
	claim, err := w.store.Claim(ctx, ask)
	if err != nil {
		w.runLog(msg.Run).Warn().Err(err).Msg("claim")
		w.disclaim(ctx, ask)
		w.check(d.Nak(w.again(d.Delivered())), "nak")
		return nil, nil, nil
	}
	w.metrics.claims.WithLabelValues(string(claim.Outcome)).Inc()
	if d.Delivered() > 1 {
		w.metrics.redeliveries.Inc()
	}
	if claim.Outcome != state.Claimed {
		w.decline(ctx, d, claim)
		return nil, nil, nil
	}

	admitted, ok := w.suspects.admit(claim)
	if !ok {
		w.putOff(ctx, d, claim)
		return nil, nil, nil
	}
	begun := false
	defer func() {
		if !begun {
			admitted()
		}
	}()
	t = w.turn(claim)
	turnCtx, t.lease.cancel = context.WithCancelCause(ctx)
	t.lease.delivery = d
	t.lease.kept, t.lease.renewed = isKept, own.since
	// A worker publishes the next turn after it has announced its own, so its message
	// is the proof.
	if msg.Announced && claim.Attempt == 1 {
		t.announced = max(t.announced, claim.Base)
	}
	turnCtx, span := t.traceTurn(turnCtx, msg)
	w.held.add(t.lease)
	w.tenants.enter(t.s.Tenant)
	// From here on an abort is for this turn. Kept until its end it would strike the
	// next one, too.
	claimed()
	w.metrics.underWay.Inc()
	begun = true
	return t, turnCtx, func() {
		span.End() // after a panic; else it has ended
		w.metrics.underWay.Dec()
		w.held.remove(t.lease)
		w.tenants.leave(t.s.Tenant)
		t.lease.cancel(nil)
		admitted()
	}
}

// putOff gives up a turn that must not be beside others here. The sweeper brings it
// back, with a message of its own.
func (w *Worker) putOff(ctx context.Context, d bus.TurnDelivery, c state.Claim) {
	log := w.runLog(d.Turn().Run)
	if err := w.store.Release(ctx, c.Lease); err != nil {
		log.Warn().Err(err).Msg("release")
		return
	}
	w.check(d.Ack(), "ack")
	log.Info().Int("attempt", c.Attempt).Msg("turn put off: workers were lost with it, and with others in hand here")
}

// turn returns the turn that was claimed.
func (w *Worker) turn(c state.Claim) *turn {
	return &turn{
		w: w, started: time.Now(), s: replayed(c), recorded: c.State.LogLen(), announced: c.Finalized, lease: &lease{Lease: c.Lease},
		claim: claimed{
			Attempt: c.Attempt, Version: c.Version, Base: c.Base, Journal: c.Journal, Signals: c.Signals, Abort: c.Abort,
			Open: c.State.Open, Usage: c.State.Usage,
		},
	}
}

// disclaim gives back a claim of unknown outcome as soon as the store answers: if it
// was made, a run of a worker that lives would wait for the end of its lease.
func (w *Worker) disclaim(ctx context.Context, q state.ClaimRequest) {
	ctx, cancel := context.WithTimeout(ctx, q.Lease)
	defer cancel()
	l := state.Lease{Run: q.Run, Token: q.Token, Version: q.Version, Worker: q.Worker}
	for {
		err := w.store.Release(ctx, l)
		if err == nil || errors.Is(err, state.ErrFenced) || errors.Is(err, state.ErrNotFound) || !pause(ctx, storePause) {
			return
		}
	}
}

// again is how long a turn whose store does not answer is left alone: longer each
// time, so that a backlog does not keep everybody busy. When the store is back, the
// sweeper does not wait for it.
func (w *Worker) again(delivered int) time.Duration {
	return min(w.cfg.SweepEvery<<min(delivered-1, 10), w.cfg.Lease)
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
