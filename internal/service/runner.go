package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// messagesAtOnce is the maximum number of messages of one trigger that a gateway fetches at once.
	messagesAtOnce = 8

	// fetchTime bounds how long a request for messages waits at the server. It is short, because the server does
	// not report that the consumer was deleted.
	fetchTime = 10 * time.Second

	// messageTime bounds the processing of a message, so that it ends before NATS delivers the message again.
	messageTime = 15 * time.Second

	// holdInterval is the time between two reports to NATS that a gateway still processes a message.
	holdInterval = 10 * time.Second

	// maxTries is the number of deliveries after which a refused message becomes a dead letter.
	maxTries = 5

	// minRetry and maxRetry bound the delay before the next delivery, which grows by the factor retryGrowth.
	minRetry    = 2 * time.Second
	maxRetry    = time.Minute
	retryGrowth = 4
)

// Outcomes of a delivery, values of a label of a metric.
const (
	outcomeTaken   = "taken"   // it started a run or sent a signal, now or at an earlier delivery
	outcomeIgnored = "ignored" // the filter ignored it
	outcomeRetried = "retried"
	outcomeDead    = "dead"
	outcomeGone    = "gone" // the stream deleted the message before the gateway read it
)

// retryDelay returns the delay before the delivery that follows delivery n; n starts at 1.
func retryDelay(n int) time.Duration {
	delay := minRetry
	for ; n > 1 && delay < maxRetry; n-- {
		delay *= retryGrowth
	}
	return min(delay, maxRetry)
}

// run fetches and processes messages until ctx ends.
func (r *runner) run(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		consumer, err := r.open(ctx)
		for err == nil && ctx.Err() == nil {
			var busy bool
			if busy, err = r.round(ctx, consumer); err == nil {
				failures = 1
			}
			if busy { // do not try the rest of the stream message by message while something is unavailable
				wait(ctx, minRetry)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if failures > 1 { // the first may be a restart of the server
			r.s.log.Warn("trigger cannot read its stream, the gateway retries", "error", err, "tenant", r.key.tenant, "trigger", r.key.name, "hint", "do what the error says; if it has no remedy, check that the stream exists and that the gateway's NATS user may read it, and run `turnpike doctor`")
			r.fail(ctx, err, 0)
		}
		wait(ctx, retryDelay(failures)/2)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// open returns the consumer of the trigger, and creates a missing one.
func (r *runner) open(ctx context.Context) (StreamConsumer, error) {
	ctx, cancel := context.WithTimeout(ctx, messageTime)
	defer cancel()
	s, spec := r.s, r.s.consumer(r.key.tenant, r.key.name, r.stored)
	if _, err := s.inspect(ctx, r.key.tenant, r.allowed, r.stored.TriggerSettings); err != nil {
		return nil, err
	}
	consumer, err := s.cfg.Streams.Open(ctx, spec)
	if err != nil {
		return nil, streamError(err)
	}
	// The trigger may have been deleted with its consumer just before this created one.
	now, _, err := s.load(ctx, r.key.tenant, r.key.name)
	if errors.Is(err, state.ErrNotFound) || err == nil && (now.Deleted || now.ID != r.stored.ID) {
		err = errors.Join(errors.New("the trigger was deleted while its consumer was created: nothing to do"), s.cfg.Streams.Remove(ctx, spec.Stream, spec.Name))
	}
	return consumer, err
}

// round fetches messages once and processes them concurrently. busy reports that some were not processed because
// something is unavailable.
func (r *runner) round(ctx context.Context, consumer StreamConsumer) (busy bool, err error) {
	most := messagesAtOnce
	if perMinute := rateOf(r.stored.MaxPerMinute); perMinute < 30*messagesAtOnce {
		most = 1 + perMinute/30 // the others stay in the stream
	}
	fetching, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	var group sync.WaitGroup
	var mu sync.Mutex
	err = streamError(consumer.Fetch(fetching, most, func(m StreamMessage) {
		group.Go(func() {
			var unavailable bool
			_ = r.s.guarded(func() error {
				unavailable = r.take(ctx, m)
				return nil
			})() // after a panic NATS delivers the message again
			mu.Lock()
			defer mu.Unlock()
			busy = busy || unavailable
		})
	}))
	group.Wait()
	return busy, err
}

// take processes a message and acknowledges it. It reports whether something was unavailable.
func (r *runner) take(ctx context.Context, m StreamMessage) (unavailable bool) {
	outcome, err := r.attempt(ctx, m)
	if err != nil {
		outcome, unavailable = r.refused(ctx, m, err)
	} else if err := m.Ack(); err != nil {
		r.s.log.Debug("ack", "error", err) // NATS delivers it again, without further effect
	}
	if outcome != "" {
		r.s.outcomes.WithLabelValues(outcome).Inc()
	}
	return unavailable
}

// attempt processes a message once the tenant has a free share and max_per_minute allows it.
func (r *runner) attempt(ctx context.Context, m StreamMessage) (outcome string, err error) {
	if err := r.s.readable(r.key.tenant, r.allowed, r.stored.Stream, m.Subject()); err != nil {
		return "", err
	}
	if limit := r.s.cfg.MaxBody; m.Size() > limit {
		return "", problem(tooLarge, api.CodeBodyTooLarge, "the message has %d bytes, at most %d are allowed: publish smaller messages", m.Size(), limit)
	}
	for at := (time.Time{}); ; { // at is the time at which max_per_minute allows it
		var delay time.Duration
		outcome, err := r.inTurn(ctx, m, func(ctx context.Context, d delivery) (string, error) {
			if wanted, err := d.wanted(); err != nil || !wanted {
				return outcomeIgnored, err
			}
			if at.IsZero() {
				at = r.limiter.reserve(rateOf(r.stored.MaxPerMinute))
				if delay = time.Until(at); delay > 0 {
					return "", nil
				}
			}
			return outcomeTaken, r.deliver(ctx, d)
		})
		if err != nil || delay <= 0 {
			return outcome, err
		}
		if err := hold(ctx, m, delay); err != nil {
			r.limiter.cancel(at)
			return "", err
		}
	}
}

// hold waits for delay, and tells NATS in the meantime that the message is being processed.
func hold(ctx context.Context, m StreamMessage, delay time.Duration) error {
	for until := time.Now().Add(delay); ; {
		wait(ctx, min(holdInterval, time.Until(until)))
		if err := ctx.Err(); err != nil || !time.Now().Before(until) {
			return err
		}
		if err := m.InProgress(); err != nil {
			return &BusError{err}
		}
	}
}

// errLate reports a message that has waited so long for a share that NATS may deliver it to another gateway.
var errLate = errors.New("the message waited too long for its run: nothing to do, NATS delivers it again")

// inTurn reads a message and calls fn with it once the tenant has a free share. It returns errLate if that took too
// long.
func (r *runner) inTurn(ctx context.Context, m StreamMessage, fn func(context.Context, delivery) (string, error)) (string, error) {
	came := time.Now()
	leave, err := r.s.share.enter(ctx, r.key.tenant, m.Size())
	if err != nil {
		return "", err
	}
	defer leave()
	if time.Since(came) > StreamAckWait-messageTime {
		return "", errLate
	}
	ctx, cancel := context.WithTimeout(ctx, messageTime-time.Second)
	defer cancel()
	body, err := m.Body(ctx)
	if errors.Is(err, ErrNoMessage) {
		return outcomeGone, nil
	}
	if err != nil {
		return "", &BusError{err}
	}
	e := hookin.Message(m.ID(), m.Subject(), m.Headers(), body)
	return fn(ctx, delivery{tenant: r.key.tenant, name: r.key.name, trace: e.Headers["traceparent"], Event: e, mapping: r.mapping, values: evaluationOf(e)})
}

// deliver starts the run or sends the signal.
func (r *runner) deliver(ctx context.Context, d delivery) error {
	c := r.caller()
	if err := r.s.permit(ctx, c, DeliverTrigger); err != nil {
		return err
	}
	st, err := r.s.deliver(ctx, c, d)
	r.s.note(ctx, c, DeliverTrigger, string(st.ID), err)
	return err
}

// refused lets NATS deliver a message again later, or makes a dead letter of it.
func (r *runner) refused(ctx context.Context, m StreamMessage, err error) (outcome string, unavailable bool) {
	if ctx.Err() != nil || errors.Is(err, errLate) {
		_ = m.Nak(0) // another gateway may process it at once
		return "", false
	}
	p := ProblemOf(err)
	temporary := passes(p) || errors.Is(err, errUnreadable)
	final := p.Code == api.CodeBodyTooLarge || p.Code == api.CodeInvalidDelivery // another attempt has the same result
	if temporary || m.Delivered() < maxTries && !final {
		_ = m.Nak(retryDelay(m.Delivered())) // without a Nak, NATS delivers it after StreamAckWait
		r.fail(ctx, err, 0)
		return outcomeRetried, temporary
	}
	if err := r.bury(ctx, m, p); err != nil {
		r.s.log.Warn("storing a dead letter failed, NATS redelivers the message", "error", err, "hint", "run `turnpike doctor`: NATS may be unreachable, have no storage left or refuse the operation")
		_ = m.Nak(retryDelay(m.Delivered()))
		return outcomeRetried, true
	}
	r.s.log.Warn("trigger could not process a message, it is now a dead letter", "error", p, "tenant", r.key.tenant, "trigger", r.key.name, "delivery", m.ID(), "hint", "do what the error says; then, if the letter holds the message, replay it: turnpike dead ls, turnpike dead replay")
	_ = m.Terminate(p.Code)
	r.fail(ctx, p, 1)
	return outcomeDead, false
}

// passes reports whether the cause of a refusal may end by itself: a message with such a refusal is retried without
// limit. A full inbox is not such a cause, because otherwise the user of one run could delay the signals to all other
// runs.
func passes(p *api.Problem) bool {
	switch p.Code {
	case api.CodeTenantSuspended, api.CodeRunBusy, api.CodeRunBeingDeleted:
		return true
	}
	return Unavailable(p)
}
