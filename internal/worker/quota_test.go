package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// counted is a store that counts quota requests.
type counted struct {
	state.Store

	calls  atomic.Int64
	broken atomic.Bool
}

func (c *counted) Take(ctx context.Context, key string, t state.Take) (state.Taken, error) {
	c.calls.Add(1)
	if c.broken.Load() {
		return state.Taken{}, errors.New("no answer")
	}
	return c.Store.Take(ctx, key, t)
}

func (c *counted) Correct(ctx context.Context, key string, q state.Quota, tokens int64) error {
	c.calls.Add(1)
	return c.Store.Correct(ctx, key, q, tokens)
}

func limits(t *testing.T, text string) model.RateLimits {
	t.Helper()
	l, err := model.ParseRateLimits([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fill uses up a quota for about the given time.
func (s *deployment) fill(l model.RateLimits, provider, name string, d time.Duration) (key string) {
	s.t.Helper()
	key, q, _ := l.For(provider, "", name, "")
	if _, err := s.store.Take(s.t.Context(), key, state.Take{Quota: q, Tokens: int64((d + 3*time.Second).Seconds() * float64(q.Tokens) / 63)}); err != nil {
		s.t.Fatal(err)
	}
	return key
}

// refusing is a model that fails as configured, and then answers.
type refusing struct {
	mu       sync.Mutex
	failures []model.Error
	calls    []time.Time
}

func (p *refusing) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, time.Now())
	if len(p.failures) > 0 {
		e := p.failures[0]
		p.failures = p.failures[1:]
		return model.Response{}, &e
	}
	return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "hi"}}, Stop: model.StopEnd, Usage: state.Usage{InputTokens: 10, OutputTokens: 10}}, nil
}

func (p *refusing) made() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.calls...)
}

// A model without a limit makes no quota request, and neither does a scripted model that no limit names.
func TestNoLimitAsksNobody(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	store := &counted{Store: s.store}
	cfg := s.config()
	cfg.Providers["openai"] = &refusing{}
	cfg.RateLimits = limits(t, "- {provider: openai, model: ^big, requests_per_minute: 1}")
	s.workOn(store, cfg)
	for _, m := range []agent.Model{{Provider: "scripted", Responses: []model.Scripted{{Text: "hi"}}}, {Provider: "openai", Name: "small"}} {
		s.awaitReason(s.submitTo(agent.Definition{Name: "a", Model: m}), state.EndCompleted)
	}
	if n := store.calls.Load(); n != 0 {
		t.Errorf("the worker made %d quota requests", n)
	}
}

// A run that waits for its quota occupies no worker. It keeps its reservation when the worker stops, and makes
// its call on another. The wait does not count as a failed call: the script continues where it was (A17, I6).
func TestWaitsForQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		l := limits(t, "- {provider: scripted, tokens_per_minute: 60000}")
		s.fill(l, "scripted", "", 7*time.Second)
		cfg := s.config()
		cfg.RateLimits, cfg.Registry = l, prometheus.NewRegistry()
		stop := s.work(cfg)
		id := s.submit(state.Limits{}, nil, model.Scripted{Text: "first"}, model.Scripted{Text: "second"})
		st := s.awaitReason(id, state.WaitingSchedule)
		if st.Reservation == nil || st.Failures != 0 || st.ModelRequests != 0 {
			t.Errorf("the run has reservation %v, %d failures, %d calls", st.Reservation, st.Failures, st.ModelRequests)
		}
		families, err := cfg.Registry.Gather()
		if err != nil || !hasMetric(families, "turnpike_rate_limit_waits_total") {
			t.Errorf("the metrics show no wait: %v", err)
		}
		stop()
		next := s.config()
		next.RateLimits = l
		s.work(next)
		if st = s.awaitReason(id, state.EndCompleted); *st.Output != "first" || st.Reservation != nil {
			t.Errorf("the run ends with %q, reservation %v", *st.Output, st.Reservation)
		}
	})
}

func hasMetric[F interface{ GetName() string }](families []F, name string) bool {
	return slices.ContainsFunc(families, func(f F) bool { return f.GetName() == name })
}

// A short quota wait happens inside the turn.
func TestShortWaitForQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		l := limits(t, "- {provider: scripted, tokens_per_minute: 60000}")
		s.fill(l, "scripted", "", 300*time.Millisecond)
		cfg := s.config()
		cfg.RateLimits = l
		s.work(cfg)
		id := s.submit(state.Limits{}, nil, model.Scripted{Text: "first"})
		if st := s.awaitReason(id, state.EndCompleted); st.Version != 2 {
			t.Errorf("the run took %d transitions, want the submission and the end", st.Version)
		}
	})
}

// If a provider asks one worker to wait, all workers comply. A run with a fallback model uses that instead, as
// it would if it had received the answer itself. It does not do so for a limit of our own (A17).
func TestProviderSaysWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		p := &refusing{failures: []model.Error{{Class: model.RateLimited, RetryAfter: 3 * time.Second}}}
		stores := make([]*polled, 3)
		for i := range stores {
			stores[i] = &polled{Store: s.store, seen: make(chan struct{}, 1000)}
			cfg := s.config()
			cfg.Providers["openai"] = p
			cfg.Providers["anthropic"] = &refusing{}
			s.workOn(stores[i], cfg)
		}
		live := agent.Definition{Name: "a", Model: agent.Model{Provider: "openai", Name: "m"}}
		told := s.submitTo(live)
		s.awaitReason(told, state.WaitingSchedule)
		for _, store := range stores {
			// Every worker has read the pause once it asks again.
			<-store.seen
			<-store.seen
		}
		var others []state.RunID
		for range 20 {
			others = append(others, s.submitTo(live))
		}
		lucky := live
		lucky.Model.Fallback = []agent.Model{{Provider: "anthropic", Name: "m"}}
		if st := s.awaitReason(s.submitTo(lucky), state.EndCompleted); st.Fallback != 1 || st.ModelRequests != 1 {
			t.Errorf("with a fallback the run ends with model %d after %d calls", st.Fallback, st.ModelRequests)
		}
		for _, id := range others {
			if st := s.awaitReason(id, state.EndCompleted); st.ModelRequests != 1 {
				t.Errorf("a run that had not received the answer itself made %d calls", st.ModelRequests)
			}
		}
		s.awaitReason(told, state.EndCompleted)
		calls := p.made()
		if len(calls) != 22 {
			t.Errorf("%d calls, want one refused call and 21 more", len(calls))
		}
		for _, at := range calls[1:] {
			if after := at.Sub(calls[0]); after < 3*time.Second {
				t.Errorf("a call was made %s after the provider asked for three seconds", after)
			}
		}
	})
}

// polled is a store that reports when a worker has read which quotas are paused.
type polled struct {
	state.Store

	seen chan struct{}
}

func (p *polled) Paused(ctx context.Context) ([]string, error) {
	keys, err := p.Store.Paused(ctx)
	if len(keys) > 0 {
		defer func() { p.seen <- struct{}{} }()
	}
	return keys, err
}

// A long wait for a limit of our own does not switch to the fallback model.
func TestQuotaWaitDoesNotFallBack(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	l := limits(t, "- {provider: scripted, model: ^slow, tokens_per_minute: 60000}")
	s.fill(l, "scripted", "slow", time.Hour)
	cfg := s.config()
	cfg.RateLimits = l
	s.work(cfg)
	answers := []model.Scripted{{Text: "hi"}}
	id := s.submitTo(agent.Definition{Name: "a", Model: agent.Model{
		Provider: "scripted", Name: "slow", Responses: answers, Fallback: []agent.Model{{Provider: "scripted", Name: "fast", Responses: answers}},
	}})
	if st := s.awaitReason(id, state.WaitingSchedule); st.Fallback != 0 || st.Reservation == nil {
		t.Errorf("the run uses model %d, reservation %v", st.Fallback, st.Reservation)
	}
}

// A retry beyond the limit is not made. The failure of the first try counts, so a failing model is not called
// forever.
func TestNoCapacityForAnotherTry(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	p := &refusing{failures: []model.Error{{Class: model.Transport, Message: "gone"}}}
	cfg := s.config()
	cfg.Providers["openai"] = p
	cfg.RateLimits = limits(t, "- {provider: openai, requests_per_minute: 1}")
	s.work(cfg)
	st := s.awaitReason(s.submitTo(agent.Definition{Name: "a", Model: agent.Model{Provider: "openai", Name: "m"}}), state.WaitingSchedule)
	if st.Failures != 1 || st.Reservation != nil || len(p.made()) != 1 {
		t.Errorf("%d failures, reservation %v, %d calls; want the failure to count", st.Failures, st.Reservation, len(p.made()))
	}
}

// If the store does not answer, the worker cannot check the limit: the run waits a moment.
func TestQuotaOutOfReach(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	store := &counted{Store: s.store}
	store.broken.Store(true)
	p := &refusing{}
	cfg := s.config()
	cfg.Providers["openai"] = p
	cfg.RateLimits = limits(t, "- {provider: openai, requests_per_minute: 100}")
	s.workOn(store, cfg)
	st := s.awaitReason(s.submitTo(agent.Definition{Name: "a", Model: agent.Model{Provider: "openai", Name: "m"}}), state.WaitingSchedule)
	if len(p.made()) != 0 || st.Failures != 0 {
		t.Errorf("%d calls, %d failures", len(p.made()), st.Failures)
	}
}

// An abort ends a quota wait at once (I7).
func TestAbortWhileWaitingForQuota(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	l := limits(t, "- {provider: scripted, tokens_per_minute: 60000}")
	s.fill(l, "scripted", "", time.Hour)
	cfg := s.config()
	cfg.RateLimits = l
	s.work(cfg)
	id := s.submit(state.Limits{}, nil, model.Scripted{Text: "never"})
	s.awaitReason(id, state.WaitingSchedule)
	w, err := s.store.Abort(t.Context(), id, state.Abort{Reason: "enough"}, s.delay())
	if err != nil || !w.Publish {
		t.Fatalf("Abort = %+v, %v", w, err)
	}
	s.awaitReason(id, state.EndAbortedWaiting)
}
