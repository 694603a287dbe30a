package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// recovering is a model that fails once. The test decides when its first answer returns.
type recovering struct {
	refusing

	tried   chan struct{}
	release chan struct{}
}

func (p *recovering) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	resp, err := p.refusing.Generate(ctx, r, onDelta)
	if len(p.made()) == 2 {
		close(p.tried)
		select {
		case <-p.release:
		case <-ctx.Done():
			return model.Response{}, &model.Error{Class: model.Cancelled, Message: "cancelled", Err: ctx.Err()}
		}
	}
	return resp, err
}

// While one run tests whether a model answers again, other runs wait, however long the answer takes. The wait
// does not count as a failure, so none of them ends (A17).
func TestWaitsForTrial(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	p := &recovering{
		refusing: refusing{failures: []model.Error{{Class: model.Overloaded, Streamed: true, RetryAfter: time.Millisecond}}},
		tried:    make(chan struct{}), release: make(chan struct{}),
	}
	cfg := s.config()
	cfg.Providers["openai"] = p
	cfg.Providers["anthropic"] = &refusing{}
	cfg.Breakers = model.BreakerPolicy{Failures: 1, Rest: 30 * time.Millisecond}
	s.work(cfg)
	def := agent.Definition{Name: "a", Model: agent.Model{Provider: "openai", Name: "m"}}
	first := s.submitTo(def)
	<-p.tried
	other := s.submitTo(def)
	st := s.await(other, "many waits", func(st state.State) bool { return st.Version > 20 || st.Status.Terminal() })
	if st.Status.Terminal() || st.Failures != 0 || st.ModelRequests != 0 {
		t.Errorf("the waiting run is %s (%s) after %d failures and %d calls", st.Status, st.Transition.Reason, st.Failures, st.ModelRequests)
	}
	def.Model.Fallback = []agent.Model{{Provider: "anthropic", Name: "m"}}
	if st := s.awaitReason(s.submitTo(def), state.EndCompleted); st.Fallback != 1 {
		t.Errorf("the run with a fallback ends with model %d", st.Fallback)
	}
	close(p.release)
	for _, id := range []state.RunID{first, other} {
		s.awaitReason(id, state.EndCompleted)
	}
}

// A tenant decides how its calls fail, for example by the timeout of its agents. That closes no model to another tenant.
func TestBreakerOfATenant(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var down atomic.Bool
	down.Store(true)
	cfg := s.config()
	cfg.Providers["openai"] = generator(func(context.Context, model.Request) (model.Response, error) {
		if down.Load() {
			return model.Response{}, &model.Error{Class: model.Timeout, Message: "no answer"}
		}
		return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "done"}}}, nil
	})
	cfg.Breakers = model.BreakerPolicy{Failures: 1, Rest: time.Hour}
	s.work(cfg)
	fallbacks := func(tenant string) int {
		s.tenant = tenant
		id := s.createFor(agent.Definition{Name: "a", Model: agent.Model{
			Provider: "openai", Name: "m", Fallback: []agent.Model{{Provider: "scripted", Responses: []model.Scripted{{Text: "instead"}}}},
		}}, state.Limits{})
		s.publishOf(id, tenant, false)
		return s.awaitReason(id, state.EndCompleted).Fallback
	}
	first := fallbacks("failing")
	down.Store(false)
	for tenant, want := range map[string]int{"failing": 1, "other": 0} {
		if n := fallbacks(tenant); first != 1 || n != want {
			t.Errorf("a run of the tenant %s ends with model %d, want %d", tenant, n, want)
		}
	}
}

// A test of a model that a rate limit delays does not keep others from testing it, nor the run itself later.
func TestRateLimitDelaysTrial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		p := &refusing{failures: []model.Error{{Class: model.Overloaded, Streamed: true, RetryAfter: time.Millisecond}}}
		cfg := s.config()
		cfg.Providers["openai"] = p
		cfg.Breakers = model.BreakerPolicy{Failures: 1, Rest: time.Second}
		cfg.RateLimits = limits(t, "- {provider: openai, requests_per_minute: 6}")
		s.work(cfg)
		id := s.submitTo(agent.Definition{Name: "a", Model: agent.Model{Provider: "openai", Name: "m"}})
		s.await(id, "a wait for the rate limit", func(st state.State) bool { return st.Reservation != nil })
		if st := s.awaitReason(id, state.EndCompleted); len(p.made()) != 2 || st.ModelRequests != 2 {
			t.Errorf("%d calls were made, the run has %d; want 2", len(p.made()), st.ModelRequests)
		}
	})
}
