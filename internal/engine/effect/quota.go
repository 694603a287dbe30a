package effect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// shortWait is the longest wait for a quota inside a turn. A longer wait
	// ends the turn, and the run waits in the schedule (I6).
	shortWait = 2 * time.Second

	// blindWait is the minimum wait if the store does not answer.
	blindWait = 5 * time.Second

	// quotaTimeout bounds the report to the store after a call.
	quotaTimeout = 5 * time.Second
)

// quotas are the rate limits that this worker shares with all others. For a model without a limit the worker does not
// ask the store before a call, unless it knows that the provider has recently refused calls. quotas is safe for
// concurrent use.
type quotas struct {
	store   state.Quotas
	limits  model.RateLimits
	metrics *metrics
	random  random.Source

	mu   sync.Mutex
	slow map[string]bool // keys that a provider's 429 has slowed down; nil before the first refresh
}

func newQuotas(store state.Quotas, limits model.RateLimits, m *metrics, r random.Source) *quotas {
	return &quotas{store: store, limits: limits, metrics: m, random: r}
}

// refresh reads which quotas providers have paused at any worker, and replaces what this worker knows. If the worker is
// alone and knows of none, there is nothing to read.
func (q *quotas) refresh(ctx context.Context, alone bool) error {
	q.mu.Lock()
	calm := q.slow != nil && len(q.slow) == 0
	q.mu.Unlock()
	if alone && calm {
		return nil
	}
	keys, err := q.store.Paused(ctx)
	if err != nil {
		return err
	}
	slow := make(map[string]bool, len(keys))
	for _, key := range keys {
		slow[key] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slow = slow
	return nil
}

func (q *quotas) isSlow(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slow[key]
}

// reservation is the permission of a turn to call its model within the quota.
type reservation struct {
	*quotas

	who    string
	key    string
	quota  state.Quota
	exempt bool // these calls are not counted
	asks   bool // the model has a limit, so each call asks the store
	tokens int64
	at     int64

	// elsewhere reports whether the run has another model to which it can switch while this one's provider
	// pauses.
	elsewhere bool
}

// reserve returns the reservation for calls of a model. Scripted models are exempt unless a limit names
// them.
func (ms *models) reserve(s *state.State, a *agent.Agent, m *agent.Model, req *model.Request) *reservation {
	p := &reservation{quotas: ms.quotas, who: strings.TrimSpace(m.Provider + " " + m.Name)}
	p.key, p.quota, p.asks = p.limits.For(m.Provider, m.BaseURL, m.Name, req.APIKey)
	p.exempt = ms.cfg.Mock != nil || m.Provider == "scripted" && !p.asks
	p.elsewhere = a.ModelAt(s.Fallback+1) != nil
	if s.Reservation != nil && s.Reservation.Key == p.key {
		p.at = s.Reservation.At
	}
	if p.quota.Tokens > 0 {
		p.tokens = estimateInput(req) + expectedAnswer(req, s.Log)
	}
	return p
}

// delayedError reports that a call has to wait, for its quota or for the trial of another run.
type delayedError struct {
	wait   time.Duration
	at     *state.Reservation
	detail string
}

func (e *delayedError) Error() string {
	return fmt.Sprintf("%s: the worker retries the call in %s", e.detail, e.wait)
}

// errNoCapacity refuses a further try; the failure of the try before decides what follows.
var errNoCapacity = errors.New("the rate limit of the model has no capacity for another attempt: wait, or raise the limit")

// enter returns nil when the call may be made. It waits for up to shortWait. again marks a repeated try, which gets
// no reservation. The error is a *delayedError, errNoCapacity, a *model.Error that makes the run switch to its next
// model, or that of ctx.
func (p *reservation) enter(ctx context.Context, again bool) error {
	if p.exempt || !p.asks && p.at == 0 && !p.isSlow(p.key) {
		return nil
	}
	began := time.Now()
	for {
		got, err := p.store.Take(ctx, p.key, state.Take{Quota: p.quota, Tokens: p.tokens, Reservation: p.at, NoReservation: again || p.elsewhere})
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && again:
			return errNoCapacity
		case err != nil:
			return p.delayed(blindWait+p.random.UpTo(blindWait), p.at, "rate limits cannot be read from the store: "+err.Error())
		case got.Wait == 0:
			p.at = 0
			return nil
		}
		if time.Since(began)+got.Wait <= shortWait {
			p.metrics.waited("turn", got.Wait)
			if got.Reservation != 0 {
				p.at = got.Reservation
			}
			if !clock.Pause(ctx, got.Wait) {
				return ctx.Err()
			}
			continue
		}
		if err := p.refused(got, again); err != nil {
			return err
		}
	}
}

// refused returns the error for a long wait; nil makes enter ask for a reservation.
func (p *reservation) refused(got state.Taken, again bool) error {
	switch {
	case again:
		return errNoCapacity
	case p.elsewhere && got.Paused:
		return &model.Error{
			Class: model.RateLimited, Provider: p.who, RetryAfter: got.Wait,
			Message: fmt.Sprintf("%s accepts no more calls for %s, so the worker calls the next fallback model", p.who, got.Wait),
		}
	case p.elsewhere:
		// The quota is a delay and no failure: the run queues for the model it has.
		p.elsewhere = false
		return nil
	}
	wait, detail := got.Wait, "rate limit of "+p.who
	if got.Paused {
		detail = p.who + " accepts no more calls for now"
	}
	if got.Reservation == 0 {
		wait += p.random.UpTo(wait)
	}
	p.metrics.waited("schedule", wait)
	return p.delayed(wait, got.Reservation, detail)
}

func (p *reservation) delayed(wait time.Duration, at int64, detail string) *delayedError {
	e := &delayedError{wait: (wait + time.Millisecond - 1).Truncate(time.Millisecond), detail: detail}
	if at != 0 {
		e.at = &state.Reservation{Key: p.key, At: at}
	}
	return e
}

// done reports the outcome of an admitted call to the store: the tokens that it used, and whether the provider
// refused it with a rate limit.
func (p *reservation) done(ctx context.Context, usage state.Usage, failure *model.Error) error {
	if p.exempt {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quotaTimeout)
	defer cancel()
	var errs []error
	if failure != nil && failure.Class == model.RateLimited {
		p.metrics.ratePauses.Inc()
		errs = append(errs, p.store.Pause(ctx, p.key, failure.RetryAfter))
		p.mu.Lock()
		if p.slow == nil {
			p.slow = map[string]bool{}
		}
		p.slow[p.key] = true
		p.mu.Unlock()
	}
	if off := p.off(usage, failure); off != 0 {
		errs = append(errs, p.store.Correct(ctx, p.key, p.quota, off))
	}
	return errors.Join(errs...)
}

// off returns the known error of the estimate, in tokens: negative if the call used fewer, 0 if that is
// unknown.
func (p *reservation) off(usage state.Usage, failure *model.Error) int64 {
	switch {
	case p.quota.Tokens == 0:
		return 0
	case failure == nil:
		return usage.InputTokens + usage.OutputTokens - p.tokens
	case failure.Streamed || failure.Class == model.Timeout || failure.Class == model.Cancelled:
		return 0 // it may have used all of them
	default:
		return -p.tokens
	}
}
