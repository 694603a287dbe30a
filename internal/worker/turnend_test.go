package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// generator is a model.
type generator func(ctx context.Context, r model.Request) (model.Response, error)

func (g generator) Generate(ctx context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	return g(ctx, r)
}

// A turn that an abort ends while the store is asked whether the tenant may use the model has not failed for its model.
func TestAbortBeforeTheModelCall(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	asked := make(chan struct{}, 1)
	cfg := s.config()
	cfg.Policy = func(ctx context.Context, _ string) (policy.Policy, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return policy.Policy{}, ctx.Err()
	}
	s.work(cfg)
	id := s.submit(state.Limits{}, nil, model.Scripted{Text: "done"})
	<-asked
	s.abort(id)
	if st := s.await(id, "ended", func(st state.State) bool { return st.Status.Terminal() }); st.Status != state.Cancelled || st.Usage.ModelCalls > 0 || len(st.Open) > 0 {
		t.Errorf("the run ended %s: %s", st.Transition.Reason, st.Transition.Detail)
	}
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(log, func(e state.Entry) bool { return e.Reason == state.ModelRetry || e.Reason == state.WaitingSchedule }) {
		t.Errorf("the aborted turn waits to call its model again: %+v", log)
	}
}

// What ends a turn says nothing about its provider: the breaker stays closed, whatever the provider returns then.
func TestBreakerIgnoresEndsOfTurns(t *testing.T) {
	for name, interrupted := range map[string]func(context.Context) error{
		"its own error":            func(ctx context.Context) error { return model.Interrupted("other", ctx.Err()) },
		"the error of its context": func(ctx context.Context) error { return ctx.Err() },
	} {
		for _, end := range []string{"abort", "deadline"} {
			t.Run(name+" after "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newDeployment(t)
					called := make(chan struct{}, 1)
					var calls atomic.Int64
					s.model = generator(func(ctx context.Context, _ model.Request) (model.Response, error) {
						if calls.Add(1) > 1 {
							return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "done"}}}, nil
						}
						called <- struct{}{}
						<-ctx.Done()
						return model.Response{}, interrupted(ctx)
					})
					cfg := s.config()
					cfg.Providers["other"] = s.model
					cfg.Breakers = model.BreakerPolicy{Failures: 1, Rest: time.Hour}
					s.work(cfg)
					def := agent.Definition{Name: "a", Model: agent.Model{Provider: "other", Name: "m"}}
					limits := state.Limits{}
					if end == "deadline" {
						limits.DeadlineAt = state.At(time.Now().Add(time.Minute))
					}
					id := s.start(s.createFor(def, limits))
					<-called
					if end == "abort" {
						s.abort(id)
					}
					s.await(id, "ended", func(st state.State) bool { return st.Status.Terminal() })
					s.awaitReason(s.start(s.createFor(def, state.Limits{})), state.EndCompleted)
				})
			})
		}
	}
}
