package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// shortWait is how long a turn waits for its quota itself. A longer wait gives
	// the turn back (I6).
	shortWait = 2 * time.Second

	// blindWait is the wait where the store does not answer.
	blindWait = 5 * time.Second

	// quotaTimeout bounds what is told to the store after a call.
	quotaTimeout = 5 * time.Second
)

// quotas are the rate limits that this worker shares with all others (A17). For a
// model without a limit it asks nobody, unless a provider has said that it has
// enough.
type quotas struct {
	store   state.Quotas
	limits  model.RateLimits
	metrics *metrics
	random  random.Source

	mu   sync.Mutex
	slow map[string]bool // keys that a provider's 429 has slowed down
}

func newQuotas(store state.Quotas, limits model.RateLimits, m *metrics, r random.Source) *quotas {
	return &quotas{store: store, limits: limits, metrics: m, random: r, slow: map[string]bool{}}
}

// refresh learns which quotas other workers were told to leave alone.
func (q *quotas) refresh(ctx context.Context) error {
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

// reservation is a turn's way past the quota of its model.
type reservation struct {
	*quotas

	who    string
	key    string
	quota  state.Quota
	exempt bool // nobody counts these calls
	asks   bool // whether or not somebody was told to wait
	tokens int64
	at     int64

	// elsewhere says that another model takes over while this one's provider wants
	// to be left alone.
	elsewhere bool
}

// reservation returns the way past the quota of a model. What a script says is no
// provider's word: scripted models are exempt unless a limit names them.
func (t *turn) reservation(a *agent.Agent, m agent.Model, req model.Request) *reservation {
	p := &reservation{quotas: t.w.quotas, who: strings.TrimSpace(m.Provider + " " + m.Name)}
	p.key, p.quota, p.asks = p.limits.For(m.Provider, m.BaseURL, m.Name, req.APIKey)
	p.exempt = t.w.cfg.MockResponses != nil || m.Provider == "scripted" && !p.asks
	p.elsewhere = a.ModelAt(t.s.Fallback+1) != nil
	if t.s.Reservation != nil && t.s.Reservation.Key == p.key {
		p.at = t.s.Reservation.At
	}
	if p.quota.Tokens > 0 {
		p.tokens = estimateInput(req) + expectedAnswer(req, t.s.Log)
	}
	return p
}

// delayedError says that a call has to wait for its quota.
type delayedError struct {
	wait   time.Duration
	at     *state.Reservation
	detail string
}

func (e *delayedError) Error() string { return fmt.Sprintf("%s: capacity in %s", e.detail, e.wait) }

// errNoCapacity refuses a second try: the first has failed, and its failure says what
// follows.
var errNoCapacity = errors.New("no capacity for another try")

// enter returns nil when the call may be made. It waits for that if the wait is
// short. again says that the call is a second try, for which nothing is reserved.
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
			return p.delayed(blindWait+p.random.UpTo(blindWait), p.at, "rate limits are out of reach: "+err.Error())
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

// refused says what follows from a long wait; nil is to ask for a place.
func (p *reservation) refused(got state.Taken, again bool) error {
	switch {
	case again:
		return errNoCapacity
	case p.elsewhere && got.Paused:
		return &model.Error{
			Class: model.RateLimited, Provider: p.who, RetryAfter: got.Wait,
			Message: p.who + " has told another worker to wait",
		}
	case p.elsewhere:
		// The quota is a delay and no failure: the run queues for the model it has.
		p.elsewhere = false
		return nil
	}
	wait, detail := got.Wait, "rate limit of "+p.who
	if got.Paused {
		detail = p.who + " has enough for now"
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

// done tells the quota what came of a call that was let in.
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
		p.slow[p.key] = true
		p.mu.Unlock()
	}
	if off := p.off(usage, failure); off != 0 {
		errs = append(errs, p.store.Correct(ctx, p.key, p.quota, off))
	}
	return errors.Join(errs...)
}

// off is by how many tokens the estimate was wrong, as far as anybody knows.
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

// What a token is, in bytes of a request, and what an image and a first answer are,
// in tokens: no more than a guess, which is corrected after the call.
const (
	bytesPerToken  = 4
	tokensPerImage = 1000
	firstAnswer    = 512
)

// estimateInput guesses how many tokens a request has.
func estimateInput(req model.Request) int64 {
	size, images := 0, 0
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			size += len(p.Text) + len(p.Content) + len(p.Arguments)
			images += len(p.Images)
			if p.Type == state.PartImage {
				images++
			}
		}
	}
	for _, t := range req.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return int64(size/bytesPerToken + images*tokensPerImage)
}

// expectedAnswer guesses how many tokens a response will have: as many as the run's last one.
func expectedAnswer(req model.Request, log []state.Entry) int64 {
	answer := int64(firstAnswer)
	if req.MaxOutputTokens > 0 {
		answer = min(answer, req.MaxOutputTokens)
	}
	for _, e := range slices.Backward(log) {
		if e.Type == state.EntryModel && e.Usage != nil {
			answer = e.Usage.OutputTokens
			break
		}
	}
	return answer
}

// modelDelayed is the event of a call that has to wait.
func (t *turn) modelDelayed(e *delayedError, purpose loop.Purpose) loop.ModelDelayed {
	return loop.ModelDelayed{At: t.w.clock.Now(), Wait: e.wait, Reservation: e.at, Detail: e.detail, Purpose: purpose}
}
