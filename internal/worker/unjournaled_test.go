package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// calls returns a response that calls one tool several times at once.
func calls(name string, ids ...string) model.Scripted {
	var s model.Scripted
	for _, id := range ids {
		s.ToolCalls = append(s.ToolCalls, model.ScriptedCall{ID: id, Name: name, Arguments: json.RawMessage(`{"to":"` + id + `"}`)})
	}
	return s
}

// The result of a call is journaled before the turn waits for a hook. If the worker is killed then, no result
// is lost and no call is repeated (I3).
func TestResultIsJournaledBeforeTheTurnWaits(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string][]string{"one call": {"c1"}, "two calls in turn": {"c1", "c2"}} {
		for _, idempotent := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newDeployment(t)
					var made atomic.Int64
					s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
						made.Add(1)
						return tool.Result{Content: "PAID"}, nil
					})
					store := &mortal{Store: s.store}
					cfg := s.config()
					cfg.HeartbeatInterval = time.Second
					cfg.Hooks = hookspec.Kinds(map[string]hook.Hook{"slow": hook.Func(func(ctx context.Context, _ hook.Request) (hook.Answer, error) {
						<-ctx.Done() // it hangs until its timeout
						return hook.Answer{}, ctx.Err()
					})})
					stop := s.workOn(store, cfg)
					id := s.submitTo(agent.Definition{
						Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{calls("pay", ids...), {Text: "end"}}},
						Tools: []agent.Tool{{Name: "pay", Idempotent: idempotent, Concurrency: "serial"}}, Hooks: &agent.Hooks{PostSampling: named("slow")},
					})
					time.Sleep(2 * time.Second) // the bubble's clock
					if st, err := s.store.Load(t.Context(), id); err != nil || st.Version != 1 || made.Load() != int64(len(ids)) {
						t.Fatalf("version %d after %d calls, %v", st.Version, made.Load(), err)
					}
					store.dead.Store(true) // kill -9
					stop()
					if _, err := s.store.Evict(t.Context(), cfg.ID, 1000, time.Millisecond); err != nil {
						t.Fatal(err)
					}
					next := s.config()
					next.Hooks = hookspec.Kinds(map[string]hook.Hook{"slow": hook.Func(func(context.Context, hook.Request) (hook.Answer, error) { return hook.Answer{}, nil })})
					s.work(next)
					s.awaitReason(id, state.EndCompleted)
					if got := strings.Join(s.transcript(id), "\n"); strings.Contains(got, "unknown") || strings.Count(got, "PAID") != len(ids) {
						t.Errorf("the model reads\n%s", got)
					}
					if n := made.Load(); n != int64(len(ids)) {
						t.Errorf("the tool was called %d times, want %d", n, len(ids))
					}
				})
			})
		}
	}
}

// A post_sampling hook receives only responses that the store has, in the stored form, whichever way the turn
// continues (I3).
func TestHooksSeeRecordedResponses(t *testing.T) {
	t.Parallel()
	for name, def := range map[string]agent.Definition{
		"a tool":      {Model: agent.Model{Responses: []model.Scripted{calls("do", "c1"), {Text: "end"}}}, Tools: []agent.Tool{{Name: "do"}}},
		"an answer":   {Model: agent.Model{Responses: []model.Scripted{{Text: "end"}}}},
		"an approval": {Model: agent.Model{Responses: []model.Scripted{calls("do", "c1")}}, Tools: []agent.Tool{{Name: "do", Approval: "always"}}},
		"cut off":     {Model: agent.Model{Responses: []model.Scripted{{Text: "a", Stop: model.StopMaxOutputTokens}, {Text: "end"}}}},
		"two phases": {
			Loop: agent.Loop{Type: "two_phase"}, Tools: []agent.Tool{{Name: "do"}},
			Model: agent.Model{Responses: []model.Scripted{{Text: `{"tool": "do", "arguments": {}}`}, {Text: "{}"}, {Text: "end"}}},
		},
		"unknown tools": {Model: agent.Model{Responses: []model.Scripted{calls("gone", "c1"), {Text: "end"}}}, Tools: []agent.Tool{{Name: "do"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newDeployment(t)
				s.tools["do"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "ok"}, nil })
				var seen atomic.Int64
				cfg := s.config()
				cfg.Hooks = hookspec.Kinds(map[string]hook.Hook{"watch": hook.Func(func(ctx context.Context, r hook.Request) (hook.Answer, error) {
					seen.Add(1)
					log, err := s.store.Log(ctx, r.Run, 0, 0)
					if err != nil {
						return hook.Answer{}, err
					}
					if !slices.ContainsFunc(log, func(e state.Entry) bool {
						return e.Type == state.EntryModel && e.Turn == r.Turn && e.Message.Text() == r.Output && len(e.Message.Calls()) == len(r.Calls)
					}) {
						t.Errorf("the hook got %q with %d calls in turn %d, which the log does not have", r.Output, len(r.Calls), r.Turn)
					}
					return hook.Answer{}, nil
				})})
				s.work(cfg)
				def.Name, def.Model.Provider, def.Hooks = "a", "scripted", &agent.Hooks{PostSampling: named("watch")}
				id := s.submitTo(def)
				st := s.await(id, "rest", func(st state.State) bool { return st.Status.Terminal() || st.Status == state.Waiting })
				synctest.Wait()
				if seen.Load() != st.Usage.ModelCalls {
					t.Errorf("hooks saw %d of %d responses", seen.Load(), st.Usage.ModelCalls)
				}
			})
		})
	}
}

// The write that journals a response reports an abort in the store whose bus message was lost. No tool of the
// response starts then, and no hook is called (I7).
func TestNothingStartsAfterTheJournalReportsAnAbort(t *testing.T) {
	t.Parallel()
	for name, def := range map[string]agent.Definition{
		"a tool":       {Tools: []agent.Tool{{Name: "pay"}}},
		"idempotent":   {Tools: []agent.Tool{{Name: "pay", Idempotent: true}}},
		"with a hook":  {Tools: []agent.Tool{{Name: "pay"}}, Hooks: &agent.Hooks{PreTool: named("any"), PostSampling: named("any")}},
		"with a probe": {Tools: []agent.Tool{{Name: "pay", Probe: &tool.Probe{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newDeployment(t)
				var started atomic.Int64
				s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
					started.Add(1)
					return tool.Result{Content: "PAID"}, nil
				})
				s.tools["pay_probe"] = s.tools["pay"]
				s.model = aborting{s}
				cfg := s.config()
				cfg.Hooks = hookspec.Kinds(map[string]hook.Hook{"any": hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
					started.Add(1)
					return hook.Answer{}, nil
				})})
				s.work(cfg)
				def.Name, def.Model = "a", agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "-"}}}
				id := s.submitTo(def)
				end := s.awaitReason(id, state.EndAbortedStreaming)
				if n := started.Load(); n > 0 || end.Status != state.Cancelled {
					t.Errorf("after the abort %d tools and hooks were started; the run is %s", n, end.Status)
				}
			})
		})
	}
}

// aborting is a model whose run is aborted in the store during its call.
type aborting struct{ s *deployment }

func (a aborting) Generate(ctx context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	_, err := a.s.store.Abort(ctx, r.Run, state.Abort{Reason: "enough"}, time.Hour)
	return model.Response{Stop: model.StopToolCalls, Parts: []state.Part{{Type: state.PartToolCall, ID: "c1", Name: "pay", Arguments: "{}"}}}, err
}

// The start marks of each batch of calls are a separate write (I7).
func TestNextBatchDoesNotStartAfterAnAbort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		var started atomic.Int64
		s.tools["pay"] = tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
			started.Add(1)
			_, err := s.store.Abort(ctx, c.Run, state.Abort{Reason: "enough"}, time.Hour)
			return tool.Result{Content: "PAID"}, err
		})
		s.work(s.config())
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay", Concurrency: "serial"}}, calls("pay", "c1", "c2"), model.Scripted{Text: "end"})
		s.awaitReason(id, state.EndAbortedTools)
		if got := strings.Join(s.transcript(id), "\n"); started.Load() != 1 || strings.Count(got, "PAID") != 1 {
			t.Errorf("%d calls were started; the model reads\n%s", started.Load(), got)
		}
	})
}

// An eager claim is served from memory and misses an abort after its commit whose bus message was lost. The
// turn still starts no tool (I7).
func TestEagerClaimStartsNoToolAfterAnAbort(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		var paid atomic.Int64
		var id state.RunID
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
			paid.Add(1)
			return tool.Result{Content: "PAID"}, nil
		})
		l.after = func(state.Committed) {
			if _, err := s.store.Abort(context.Background(), id, state.Abort{Reason: "enough"}, time.Millisecond); err != nil {
				s.t.Error(err)
			}
		}
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		id = s.create(state.Limits{}, []agent.Tool{{Name: "one"}, {Name: "pay"}}, call("one", "c1"), call("pay", "c2"), model.Scripted{Text: "end"})
		s.start(id)
		end := s.await(id, "an end", func(st state.State) bool { return st.Status.Terminal() })
		if paid.Load() > 0 || end.Status != state.Cancelled {
			s.t.Errorf("the tool was called %d times after the abort; the run is %s", paid.Load(), end.Status)
		}
		stop()
	})
}

// cutOff is the store of a worker that cannot reach it for a while: its writes wait.
type cutOff struct {
	state.Store

	cut  atomic.Bool
	back chan struct{}
}

func (c *cutOff) wait(ctx context.Context) error {
	if c.cut.Load() {
		select {
		case <-c.back:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *cutOff) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	return c.Store.Renew(ctx, l, lease, delay)
}

func (c *cutOff) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	return c.Store.Record(ctx, l, r)
}

func (c *cutOff) Commit(ctx context.Context, l state.Lease, r state.Commit) (state.Committed, error) {
	if err := c.wait(ctx); err != nil {
		return state.Committed{}, err
	}
	return c.Store.Commit(ctx, l, r)
}

func (c *cutOff) Heartbeat(ctx context.Context, id string, d time.Duration) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	return c.Store.Heartbeat(ctx, id, d)
}

// A worker is cut off from the store for longer than its lease while its calls end. Another worker takes over
// the turn from a redelivered message, and waits for the results (I8).
func TestResultsOfAWorkerThatWasCutOff(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string][]string{"one call": {"c1"}, "calls side by side": {"c1", "c2", "c3"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newDeployment(t)
				release := make(chan struct{})
				var made atomic.Int64
				s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
					made.Add(1)
					<-release
					return tool.Result{Content: "PAID"}, nil
				})
				store := &cutOff{Store: s.store, back: make(chan struct{})}
				first := s.config()
				first.LeaseDuration, first.RedeliveryDelay, first.LateResults = 2*time.Second, 10*time.Second, 3*time.Second
				s.workOn(store, first)
				id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay"}}, calls("pay", ids...), model.Scripted{Text: "end"})
				synctest.Wait()
				store.cut.Store(true)
				second := s.config()
				second.LeaseDuration, second.RedeliveryDelay, second.LateResults = 2*time.Second, 10*time.Second, 3*time.Second
				s.work(second)
				time.Sleep(2100 * time.Millisecond) // the bubble's clock; the lease has ended
				if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, "again"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				if st, err := s.store.Load(t.Context(), id); err != nil || st.Status != state.Queued {
					t.Errorf("the run is %s, %v; want it postponed", st.Status, err)
				}
				close(release)
				time.Sleep(1500 * time.Millisecond) // longer than the worker retries a write
				store.cut.Store(false)
				close(store.back)
				s.awaitReason(id, state.EndCompleted)
				if got := strings.Join(s.transcript(id), "\n"); strings.Count(got, "PAID") != len(ids) {
					t.Errorf("the model reads\n%s", got)
				}
				if n := made.Load(); n != int64(len(ids)) {
					t.Errorf("%d calls were made, want %d", n, len(ids))
				}
			})
		})
	}
}

// The calls of one batch return while their worker is paused: each result counts (I8).
func TestPausedWorkerHandsInAllOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		pay := newBlocking()
		s.tools["pay"] = pay
		first := s.config()
		first.Slots, first.LateResults = 1, 3*time.Second // it cannot take over its own turn
		s.work(first)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay"}}, calls("pay", "c1", "c2", "c3"), model.Scripted{Text: "end"})
		for range 3 { // not synctest.Wait: the only slot may be kept for another stream until time passes
			<-pay.started
		}
		second := s.config()
		second.LateResults = 3 * time.Second
		s.work(second)
		if due, err := s.store.Evict(t.Context(), first.ID, 100, time.Hour); err != nil || len(due) != 1 {
			t.Fatalf("Evict = %+v, %v", due, err)
		}
		if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, "again"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the bubble's clock
		close(pay.release)
		s.awaitReason(id, state.EndCompleted)
		if got := strings.Join(s.transcript(id), "\n"); strings.Count(got, "done") != 3 || pay.calls.Load() != 3 {
			t.Errorf("%d calls were made, and the model reads\n%s", pay.calls.Load(), got)
		}
	})
}
