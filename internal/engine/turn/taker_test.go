package turn_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// One turn makes exactly these calls of the store and the bus, in this order.
func TestOrderOfATurn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		response model.Scripted
		hooks    *agent.Hooks
		want     string
	}{
		"an answer":      {model.Scripted{Text: "end"}, nil, "claim commit ack"},
		"a tool":         {calls("pay", "c1"), nil, "claim record call commit publish ack"},
		"two tools":      {calls("pay", "c1", "c2"), nil, "claim record call record call commit publish ack"},
		"a tool, a hook": {calls("pay", "c1"), &agent.Hooks{PreTool: named("guard")}, "claim record hook record call commit publish ack"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
				return tool.Result{Content: "PAID"}, s.note("call")
			})
			s.hooks["guard"] = hook.Func(func(context.Context, hook.Request) (hook.Answer, error) { return hook.Answer{}, s.note("hook") })
			s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay", Concurrency: "serial"}}, Hooks: tt.hooks}, tt.response)
			s.next(t.Context(), "w1")
			if got := strings.Join(s.steps, " "); got != tt.want {
				t.Errorf("steps: %s\nwant:  %s", got, tt.want)
			}
		})
	}
}

// A result is durable before the turn waits for a hook's notes (I3).
func TestResultIsRecordedBeforeAHookWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "PAID"}, nil })
		release := make(chan struct{})
		s.hooks["slow"] = hook.Func(func(context.Context, hook.Request) (hook.Answer, error) { <-release; return hook.Answer{}, nil })
		s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}, Hooks: &agent.Hooks{PostSampling: named("slow")}}, calls("pay", "c1"))
		done := make(chan struct{})
		go func() { defer close(done); s.next(t.Context(), "w1") }()
		synctest.Wait()
		if !s.has("c1") || s.record().Version != 1 {
			t.Errorf("the turn waits, and the store has the result: %v; version %d", s.has("c1"), s.record().Version)
		}
		close(release)
		<-done
		if s.record().Version != 2 {
			t.Errorf("the run has version %d after the turn", s.record().Version)
		}
	})
}

// forgetful is a loop that ends the run without recording the model's response.
type forgetful struct{ loop.Loop }

func (f forgetful) Step(s state.State, ev loop.Event) loop.Decision {
	if r, ok := ev.(loop.ModelResponded); ok {
		return loop.Fail(s, r.At, state.EndModelError, "not what was asked for")
	}
	return f.Loop.Step(s, ev)
}

// No post_sampling hook is called for a response that the log does not have (I3).
func TestNoHookForAnUnrecordedResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.loops["forgetful"] = func(a *agent.Agent) loop.Loop { return forgetful{loop.React(a)} }
		s.hooks["watch"] = hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
			t.Errorf("the hook receives %+v", r)
			return hook.Answer{}, nil
		})
		s.submit(agent.Definition{Loop: agent.Loop{Type: "forgetful"}, Hooks: &agent.Hooks{PostSampling: named("watch")}}, model.Scripted{Text: "end"})
		s.next(t.Context(), "w1")
		synctest.Wait()
		if r := s.record(); r.Status != state.Failed {
			t.Errorf("the run is %s", r.Status)
		}
	})
}

// asksAgain is a loop that calls the model once more after its tools, in the same turn.
type asksAgain struct {
	loop.Loop

	finished *atomic.Value
}

func (a asksAgain) Step(s state.State, ev loop.Event) loop.Decision {
	switch ev := ev.(type) {
	case loop.ToolsFinished:
		a.finished.Store(ev)
		return loop.Decision{Next: &s, Effect: loop.CallModel{Purpose: loop.ForSummary, Messages: []state.Message{state.UserText("sum up")}}}
	case loop.ModelResponded:
		if ev.Purpose == loop.ForSummary {
			return a.Loop.Step(s, a.finished.Load().(loop.ToolsFinished)) //nolint:forcetypeassert // as stored
		}
	}
	return a.Loop.Step(s, ev)
}

// A result is durable before the turn waits for a model's quota (I3).
func TestResultIsRecordedBeforeAQuotaWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "PAID"}, nil })
		s.loops["again"] = func(a *agent.Agent) loop.Loop { return asksAgain{loop.React(a), &atomic.Value{}} }
		s.limit = model.RateLimits{{Provider: "scripted", Quota: state.Quota{Requests: 40}}}
		s.submit(agent.Definition{Loop: agent.Loop{Type: "again"}, Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"), model.Scripted{Text: "sum"})
		for range 2 { // the number that the limit admits at once
			if _, err := s.store.Take(t.Context(), s.key(), state.Take{Quota: s.limit[0].Quota}); err != nil {
				t.Fatal(err)
			}
		}
		began, done := time.Now(), make(chan struct{})
		go func() { defer close(done); s.next(t.Context(), "w1") }()
		for !s.called() {
			time.Sleep(10 * time.Millisecond) // the bubble's clock
			synctest.Wait()
		}
		if !s.has("c1") || s.record().Version != 1 {
			t.Errorf("the turn waits for its quota, and the store has the result: %v; version %d", s.has("c1"), s.record().Version)
		}
		<-done
		if s.record().Version != 2 || time.Since(began) < time.Second {
			t.Errorf("version %d after %s", s.record().Version, time.Since(began))
		}
	})
}

// A write without an answer is repeated, and its call is made once (I3, I4).
func TestWritesAreRepeated(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"record", "commit"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				var made atomic.Int64
				s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
					made.Add(1)
					return tool.Result{Content: "PAID"}, nil
				})
				s.fail[step] = errors.New("no answer")
				s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"))
				s.next(t.Context(), "w1")
				twice := 0
				for _, did := range s.steps {
					if did == step {
						twice++
					}
				}
				if twice != 2 || made.Load() != 1 || s.record().Version != 2 {
					t.Errorf("steps %q; %d calls; version %d", s.steps, made.Load(), s.record().Version)
				}
			})
		})
	}
}

// An evicted turn neither acknowledges its message nor commits. Its result is kept for the next attempt (I8).
func TestEvictedTurnHandsInItsResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.tools["pay"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			_, err := s.store.Evict(ctx, "w1", 10, time.Hour)
			return tool.Result{Content: "PAID"}, err
		})
		s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"))
		s.next(t.Context(), "w1")
		if slices.Contains(s.steps, "ack") || slices.Contains(s.steps, "nak") || slices.Contains(s.steps, "publish") {
			t.Errorf("steps %q", s.steps)
		}
		if r := s.record(); !s.has("c1") || r.Version != 1 || r.Paused != 1 {
			t.Errorf("the store has the result: %v; version %d, %d pauses", s.has("c1"), r.Version, r.Paused)
		}
	})
}

// A run that ends also aborts a child that did not exist before its commit: the worker that had to start the child may
// have been paused until then (I7).
func TestLateChildIsAborted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.submit(agent.Definition{}, model.Scripted{Text: "end"})
	if d, err := s.queue.Next(t.Context()); err != nil || d.Ack() != nil {
		t.Fatal(err)
	}
	c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: s.id, Version: 1, Token: "paused", Worker: "paused", Lease: time.Minute, RedeliveryDelay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	child := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant,
		Parent: &state.Parent{RunID: s.id, CallID: "c1", Depth: 1},
	}
	next := *c.State
	next.Open = []state.OpenCall{{ID: "c1", Name: "a", Needs: state.NeedChild, Child: child.ID}}
	next, err = next.Move(state.WaitingChild, state.Entry{At: state.At(time.Now()), Waiting: &state.Wait{Reason: state.WaitingChild, Calls: []state.WaitCall{}}})
	if err == nil {
		_, err = s.store.Commit(t.Context(), c.Lease, state.Commit{ID: "paused", State: &next, From: 1, RedeliveryDelay: time.Hour})
	}
	if err == nil {
		_, err = s.store.Abort(t.Context(), s.id, state.Abort{Reason: "enough"}, time.Hour)
	}
	if err == nil {
		child, err = child.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("go")}})
	}
	if err == nil {
		err = s.bus.PublishTurn(t.Context(), bus.Turn{Run: s.id, Version: 2, Priority: state.Normal}, "abort")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.committed = func() {
		if _, err := s.store.Create(t.Context(), state.NewRun{State: child, RedeliveryDelay: time.Hour}); err != nil {
			t.Error(err)
		}
	}
	s.next(t.Context(), "w1")
	var late record.Record
	if err := s.store.Snapshot().Record(child.ID, &late); err != nil {
		t.Fatal(err)
	}
	if r := s.record(); r.Status != state.Cancelled || late.Abort == nil {
		t.Errorf("the run is %s, and the abort of its child is %+v; want it cancelled, and an abort", r.Status, late.Abort)
	}
}

// A turn that a shutdown cuts short is released without an attempt, and its message is redelivered. The log has
// the cost of its model call.
func TestShutdownReleasesTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.model = hanging{}
		s.submit(agent.Definition{})
		ctx, stop := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.next(ctx, "w1") }()
		synctest.Wait()
		stop(effect.ErrShutdown)
		<-done
		if got, want := strings.Join(s.steps, " "), "claim record release nak"; got != want {
			t.Errorf("steps: %s\nwant:  %s", got, want)
		}
		log, err := s.store.Snapshot().Log(s.id)
		if r := s.record(); err != nil || r.Attempts != 0 || r.Status != state.Queued || log[len(log)-1].Usage == nil || log[len(log)-1].Usage.InputTokens != 70 {
			t.Errorf("%d attempts, %s; last entry %+v, %v", r.Attempts, r.Status, log[len(log)-1], err)
		}
	})
}

// hanging is a model that reports its usage when its call is cancelled.
type hanging struct{}

func (hanging) Generate(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Response, error) {
	<-ctx.Done()
	return model.Response{Usage: state.Usage{InputTokens: 70}}, &model.Error{Class: model.Cancelled, Err: ctx.Err()}
}

// A turn that a late message has kept from ending its run hands the store no figures of that end. The log still has
// who made the turn.
func TestContinuedTurnHasNoFigures(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	say := state.UserText("and then?")
	s.hooks["say"] = hook.Func(func(ctx context.Context, _ hook.Request) (hook.Answer, error) {
		_, err := s.store.Signal(ctx, s.id, state.Signal{ID: "s", Message: &say}, time.Second)
		return hook.Answer{}, err
	})
	s.submit(agent.Definition{Hooks: &agent.Hooks{Stop: named("say")}}, model.Scripted{Text: "end"})
	s.next(t.Context(), "w1")
	if c := s.commit; c.State.Transition.Reason != state.UserMessage || len(c.Figures) > 0 {
		t.Errorf("committed with the reason %s and the figures %v; want %s, and none", c.State.Transition.Reason, c.Figures, state.UserMessage)
	}
	if got, want := strings.Join(s.steps, " "), "claim record commit claim commit publish ack"; got != want {
		t.Errorf("steps: %s\nwant:  %s", got, want)
	}
	log, err := s.store.Snapshot().Log(s.id)
	if last := log[len(log)-1]; err != nil || last.Worker != "w1" || last.Attempt != 1 {
		t.Errorf("the last entry %+v, %v; want worker w1 and attempt 1", last, err)
	}
}

// A delivered event is not announced again at the end of the run, although the store served the last claim from
// memory.
func TestEventsAreAnnouncedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.webhook = &state.Webhook{URL: "https://example.com", Events: []state.EntryType{state.EntryWaiting, state.EntryFinished}, Secret: state.SecretReferences{"secret://X"}}
	s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "PAID"}, nil })
	k, leases := s.takerOf("w1", 5*time.Second, rand.Reader)
	leases.AllowEager(true)
	ask := model.Scripted{ToolCalls: []model.ScriptedCall{{ID: "c1", Name: "ask", Arguments: []byte(`{"question": "well?"}`)}}}
	s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}, {Name: "ask", Kind: toolspec.Human}}}, ask, calls("pay", "c2"), model.Scripted{Text: "end"})
	s.nextOf(t.Context(), k)
	waits := webhook.Timer(s.record().Header, s.record().LogLen)
	if err := s.store.PutTimer(t.Context(), waits, time.Time{}); err != nil { // it has been delivered
		t.Fatal(err)
	}
	answer := "yes"
	if _, err := s.store.Signal(t.Context(), s.id, state.Signal{ID: "s", Answer: &answer}, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: s.id, Version: s.record().Version, Priority: state.Normal}, "again"); err != nil {
		t.Fatal(err)
	}
	for s.record().Status != state.Completed {
		s.nextOf(t.Context(), k)
	}
	if s.eager == 0 {
		t.Error("no turn was claimed eagerly")
	}
	if _, err := s.store.Timer(t.Context(), waits); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the first event is announced again: %v", err)
	}
	if _, err := s.store.Timer(t.Context(), webhook.Timer(s.record().Header, s.record().LogLen)); err != nil {
		t.Errorf("the end is not announced: %v", err)
	}
}
