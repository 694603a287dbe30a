package effect_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Failure hooks run for a failed call that has ended the run. A run that waits for its next try has not failed.
func TestFailureHooksAreForRunsThatEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failure model.Scripted
		calls   int64
	}{
		"the run ends":  {model.Scripted{Error: model.Auth}, 1},
		"the run waits": {model.Scripted{Error: model.RateLimited, RetryAfter: model.Duration(time.Hour)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				var calls atomic.Int64
				s.hooks["failed"] = hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
					calls.Add(1)
					return hook.Answer{}, nil
				})
				s.open(agent.Definition{Hooks: &agent.Hooks{StopFailure: named("failed")}}, tt.failure)
				if next := s.respond(); next != nil || s.s.Status.Terminal() != (tt.calls > 0) {
					t.Fatalf("the failure leads to %T, and the run is %s", next, s.s.Status)
				}
				if err := s.Failed(s.ctx, &s.turn); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := calls.Load(); n != tt.calls {
					t.Errorf("the hook is called %d times, want %d", n, tt.calls)
				}
			})
		})
	}
}

// A failed call that was not the last one of its turn has not failed the run: failure hooks do not run if the call for
// a summary fails and the turn then ends with an answer.
func TestFailureHooksIgnoreAFailedSummary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var calls atomic.Int64
		s.hooks["failed"] = hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
			calls.Add(1)
			return hook.Answer{}, nil
		})
		s.open(agent.Definition{Hooks: &agent.Hooks{StopFailure: named("failed")}}, model.Scripted{Error: model.Auth}, model.Scripted{Text: "end"})
		call, ok := s.begin().(loop.CallModel)
		if !ok {
			t.Fatal("the turn does not begin with a call")
		}
		summary := call
		summary.Purpose = loop.ForSummary
		if _, failed := s.do(summary).(loop.ModelFailed); !failed {
			t.Fatal("the call for the summary does not fail")
		}
		s.s.ModelRequests++ // as the loop counts it
		if next := s.step(s.do(call)); next != nil || s.s.Status != state.Completed {
			t.Fatalf("the answer leads to %T, and the run is %s", next, s.s.Status)
		}
		if err := s.Failed(s.ctx, &s.turn); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := calls.Load(); n != 0 {
			t.Errorf("the hook is called %d times", n)
		}
	})
}

// A reservation is valid only for its own limit: a run whose model or API key has changed does not wait for
// another limit's time.
func TestReservationOfAnotherLimit(t *testing.T) {
	t.Parallel()
	limits := model.RateLimits{{Provider: "scripted", Quota: state.Quota{Requests: 60}}}
	own, _, _ := limits.For("scripted", "", "", "")
	for key, waits := range map[string]bool{own: true, "another": false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.cfg.Models.RateLimits = limits
			s.open(agent.Definition{}, model.Scripted{Text: "end"})
			s.s.Reservation = &state.Reservation{Key: key, At: time.Now().Add(time.Hour).UnixMicro()}
			ev := s.do(s.begin())
			if _, delayed := ev.(loop.ModelDelayed); delayed != waits {
				t.Errorf("with the reservation of limit %q the call becomes %T", key, ev)
			}
		})
	}
}

// failing is a model whose calls fail with an error of this class.
type failing model.Class

func (f failing) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	return model.Response{}, &model.Error{Class: model.Class(f)}
}

// A call that certainly used no tokens gives back those that it had reserved. One that may have used them does not.
func TestFailedCallReturnsItsTokens(t *testing.T) {
	t.Parallel()
	for class, waits := range map[model.Class]bool{model.Auth: false, model.InvalidRequest: false, model.Timeout: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			// One call of the run fits: it is estimated at 512 tokens of output and some of input.
			s.cfg.Models.RateLimits = model.RateLimits{{Provider: "scripted", Quota: state.Quota{Tokens: 600}}}
			s.model = failing(class)
			s.open(agent.Definition{})
			call := s.begin()
			if ev, failed := s.do(call).(loop.ModelFailed); !failed || ev.Err.Class != class {
				t.Fatalf("%s: the first call becomes %+v", class, ev)
			}
			ev := s.do(call)
			if _, delayed := ev.(loop.ModelDelayed); delayed != waits {
				t.Errorf("%s: the next call becomes %T, want it to wait: %t", class, ev, waits)
			}
		})
	}
}

// heard is a model that records its requests.
type heard struct{ requests []model.Request }

func (h *heard) Generate(_ context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	h.requests = append(h.requests, r)
	return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "ok"}}, Stop: model.StopEnd}, nil
}

// The stop texts of an agent end its answers. They would cut a summary.
func TestSummaryHasNoStopTexts(t *testing.T) {
	t.Parallel()
	s, h := newStage(t), &heard{}
	s.model = h
	def := agent.Definition{}
	def.Model.Stop = []string{"END"}
	s.open(def)
	call, ok := s.begin().(loop.CallModel)
	if !ok {
		t.Fatal("the turn does not begin with a call")
	}
	s.do(call)
	call.Purpose = loop.ForSummary
	s.do(call)
	if len(h.requests) != 2 || len(h.requests[0].Stop) != 1 || len(h.requests[1].Stop) != 0 {
		t.Errorf("the requests %+v, want the stop texts in the first only", h.requests)
	}
}
