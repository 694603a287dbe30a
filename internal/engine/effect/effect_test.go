package effect_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// The store has the response before a pre_tool hook receives its calls (I3).
func TestHookIsCalledAfterTheRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tools["pay"] = returns("PAID")
	var seen atomic.Int64
	s.hooks["guard"] = hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		if !s.responded(r.Call.ID) {
			t.Errorf("the hook receives call %s, whose response the store does not have", r.Call.ID)
		}
		seen.Add(1)
		return hook.Answer{}, nil
	})
	s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}, Hooks: &agent.Hooks{PreTool: named("guard")}}, calls("pay", "c1", "c2"))
	e, ok := s.respond().(loop.RunHooks)
	if !ok {
		t.Fatalf("effect %T, want RunHooks", e)
	}
	answered, ok := s.do(e).(loop.HooksAnswered)
	if !ok || len(answered.Answers) != 2 || seen.Load() != 2 {
		t.Errorf("%d hooks were called; event %+v", seen.Load(), answered)
	}
}

// A turn reserves memory for the results of all its calls before the first of them is made.
func TestCallsReserveMemoryForTheirResults(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var reserved atomic.Int64
	s.tools["read"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		reserved.CompareAndSwap(0, s.cfg.Tools.Answers.Bytes())
		return tool.Result{Content: "x"}, nil
	})
	s.open(agent.Definition{Tools: []agent.Tool{{Name: "read", MaxResult: 1 << 20}}}, calls("read", "c1", "c2", "c3"))
	e, ok := s.respond().(loop.RunTools)
	if !ok {
		t.Fatalf("effect %T, want RunTools", e)
	}
	s.do(e)
	if got := reserved.Load(); got < 3<<20 {
		t.Errorf("%d bytes are reserved for three results of 1 MiB when the first call is made", got)
	}
}

// A call names the agent that is responsible for the run, which is the agent of the submission until a handoff: memory
// with the scope agent is that agent's.
func TestCallNamesTheResponsibleAgent(t *testing.T) {
	t.Parallel()
	for _, active := range []state.AgentRef{{}, {Name: "b", Version: 1}} {
		s := newStage(t)
		var by atomic.Value
		s.tools["read"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			by.Store(c.Agent)
			return tool.Result{Content: "x"}, nil
		})
		s.open(agent.Definition{Tools: []agent.Tool{{Name: "read"}}}, calls("read", "c1"))
		definition, err := s.store.Agent(t.Context(), state.DefaultTenant, "a", 1)
		if err == nil {
			_, err = s.store.PutAgent(t.Context(), state.DefaultTenant, "b", bytes.Replace(definition.Definition, []byte(`"a"`), []byte(`"b"`), 1), false)
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := s.respond().(loop.RunTools)
		if !ok {
			t.Fatalf("effect %T, want RunTools", e)
		}
		s.s.Active = active
		s.do(e)
		if want := cmp.Or(active.Name, "a"); by.Load() != want {
			t.Errorf("the call names agent %v, want %s", by.Load(), want)
		}
	}
}

// A post_sampling hook is called after the store has the response, and not by the model call itself (I3).
func TestWatchingHookIsCalledAfterTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.tools["pay"] = returns("PAID")
		var seen atomic.Int64
		s.hooks["watch"] = hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
			if len(r.Calls) != 1 || !s.responded(r.Calls[0].ID) {
				t.Errorf("the hook receives %+v, which the store does not have", r.Calls)
			}
			seen.Add(1)
			return hook.Answer{Notes: []string{"noted"}}, nil
		})
		s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}, Hooks: &agent.Hooks{PostSampling: named("watch")}}, calls("pay", "c1"))
		next := s.respond()
		synctest.Wait()
		if seen.Load() != 0 || !s.turn.WaitsForRecord() {
			t.Fatalf("%d hooks were called before the record", seen.Load())
		}
		s.do(next)
		if answer, ok := s.turn.Notes(t.Context()); !ok || !slices.Equal(answer.Notes, []string{"noted"}) || seen.Load() != 1 {
			t.Errorf("notes %q after %d calls of the hook", answer.Notes, seen.Load())
		}
	})
}

// The write before an effect reports an abort in the store. No tool and no hook starts then; the turn's context
// ends with the abort as its cause (I7).
func TestNothingStartsAfterAPendingAbort(t *testing.T) {
	t.Parallel()
	for name, hooks := range map[string]*agent.Hooks{"tool": nil, "hook": {PreTool: named("guard")}} {
		for _, idempotent := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				var started atomic.Int64
				s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
					started.Add(1)
					return tool.Result{}, nil
				})
				s.hooks["guard"] = hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
					started.Add(1)
					return hook.Answer{}, nil
				})
				s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay", Idempotent: idempotent}}, Hooks: hooks}, calls("pay", "c1"))
				next := s.respond()
				if _, err := s.store.Abort(t.Context(), s.s.ID, state.Abort{Reason: "enough"}, time.Hour); err != nil {
					t.Fatal(err)
				}
				cut, ok := s.do(next).(loop.Aborted)
				if !ok || cut.Started || started.Load() != 0 {
					t.Errorf("%d effects were started; event %+v", started.Load(), cut)
				}
				abort, ok := errors.AsType[*upkeep.AbortError](context.Cause(s.ctx))
				if !ok || abort.Abort.Reason != "enough" {
					t.Errorf("the turn's context ended with %v", context.Cause(s.ctx))
				}
			})
		}
	}
}

// Before a call starts, the store has its start mark and the results of earlier batches (I4).
func TestMarksPrecedeCalls(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tools["pay"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		if !slices.Contains(s.record().Started, c.ID) || !s.responded(c.ID) {
			t.Errorf("call %s starts while the store has the marks %q", c.ID, s.record().Started)
		}
		if c.ID == "c2" && !s.has("c1") {
			t.Error("the second batch starts before the store has the result of the first")
		}
		return tool.Result{Content: "PAID " + c.ID}, nil
	})
	s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay", Concurrency: "serial"}}}, calls("pay", "c1", "c2"))
	done, ok := s.do(s.respond()).(loop.ToolsFinished)
	if !ok || len(done.Results) != 2 || done.Results[1].Content != "PAID c2" {
		t.Errorf("event %+v", done)
	}
}

// A result is durable while another call of its batch still runs (I3).
func TestResultIsRecordedWhileOthersRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		release := make(chan struct{})
		s.tools["pay"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			if c.ID == "c2" {
				<-release
			}
			return tool.Result{Content: "PAID"}, nil
		})
		s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1", "c2"))
		next, done := s.respond(), make(chan loop.Event, 1)
		go func() { done <- s.do(next) }()
		synctest.Wait()
		if !s.has("c1") {
			t.Error("the store does not have the result of a call that has returned")
		}
		close(release)
		if r := (<-done).(loop.ToolsFinished).Results; len(r) != 2 { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("%d results, want 2", len(r))
		}
	})
}

// A call has no start mark before the calls of the batch before it have all returned: it would count as started if the
// worker died meanwhile, though it was not.
func TestNextBatchIsNotMarkedEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		release := make(chan struct{})
		s.tools["look"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			if c.ID == "c2" {
				<-release
			}
			return tool.Result{Content: "SEEN"}, nil
		})
		s.tools["pay"] = returns("PAID")
		response := calls("look", "c1", "c2")
		response.ToolCalls = append(response.ToolCalls, calls("pay", "c3").ToolCalls...)
		s.open(agent.Definition{Tools: []agent.Tool{{Name: "look"}, {Name: "pay", Concurrency: "serial"}}}, response)
		next, done := s.respond(), make(chan loop.Event, 1)
		go func() { done <- s.do(next) }()
		synctest.Wait()
		if r := s.record(); !s.has("c1") || slices.Contains(r.Started, "c3") {
			t.Errorf("after the first result the store has %d results, and the marks %q", len(r.Results), r.Started)
		}
		close(release)
		if r := (<-done).(loop.ToolsFinished).Results; len(r) != 3 || !slices.Contains(s.record().Started, "c3") { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("%d results, want 3; the marks %q", len(r), s.record().Started)
		}
	})
}

// Only the last result of a small turn is left to the commit; a flush makes it durable.
func TestLastResultIsHeld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size int
		held bool
	}{"small": {100, true}, "large": {40 << 10, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.tools["pay"] = returns(strings.Repeat("x", tt.size))
			s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"))
			next := s.respond()
			log := s.s.Log
			s.do(next)
			if s.has("c1") == tt.held {
				t.Errorf("the store has the result: %v", !tt.held)
			}
			if held, err := s.journal.Flush(t.Context(), log); held != tt.held || err != nil || !s.has("c1") {
				t.Errorf("Flush = %v, %v; the store has the result: %v", held, err, s.has("c1"))
			}
		})
	}
}

// A turn whose lease has ended starts no further batch, and keeps the results of its calls (I8).
func TestFencedTurnStartsNoFurtherBatch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var started atomic.Int64
	s.tools["pay"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		started.Add(1)
		_, err := s.store.Evict(ctx, "t1", 10, time.Hour)
		return tool.Result{Content: "PAID"}, err
	})
	s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay", Concurrency: "serial"}}}, calls("pay", "c1", "c2"))
	ev, err := s.Do(s.ctx, &s.turn, s.respond())
	if !errors.Is(err, state.ErrFenced) || started.Load() != 1 {
		t.Errorf("%d calls were started: %+v, %v", started.Load(), ev, err)
	}
	if !errors.Is(context.Cause(s.ctx), state.ErrFenced) || !s.has("c1") {
		t.Errorf("the turn ended with %v; the store has the result: %v", context.Cause(s.ctx), s.has("c1"))
	}
}

// paused opens a turn in which an earlier attempt has started a call without a result.
func paused(t *testing.T, probe tool.Tool) *stage {
	t.Helper()
	s := newStage(t)
	s.tools["pay"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	})
	s.tools["pay_probe"] = probe
	s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay", Timeout: model.Duration(3 * time.Second), Probe: &tool.Probe{}}}}, calls("pay", "c1"))
	next := s.respond()
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { _, err := s.Do(ctx, &s.turn, next); done <- err }()
	synctest.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.turn.End()
	if _, err := s.store.Evict(t.Context(), "t1", 10, time.Hour); err != nil {
		t.Fatal(err)
	}
	s.claimTurn(s.s.ID, "t2")
	return s
}

// suspended is a journal on a virtual machine that is suspended while the start marks are written: afterwards the
// store's clock has advanced, and no timer has.
type suspended struct {
	effect.Journal

	s *stage
}

func (j suspended) Starts(ctx context.Context, log []state.Entry, marks state.Record) error {
	err := j.Journal.Starts(ctx, log, marks)
	j.s.cfg.Clock.Hear(time.Now().Add(3 * time.Second))
	return err
}

// I4: a call with a probe does not start after its deadline, from which on another worker's probe is believed.
func TestCallAfterSuspension(t *testing.T) {
	t.Parallel()
	for name, probe := range map[string]*tool.Probe{"with a probe": {}, "without a probe": nil} {
		s := newStage(t)
		var made atomic.Int64
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
			made.Add(1)
			return tool.Result{Content: "PAID"}, nil
		})
		s.tools["pay_probe"] = s.tools["pay"]
		s.open(agent.Definition{Tools: []agent.Tool{{Name: "pay", Timeout: model.Duration(3 * time.Second), Probe: probe}}}, calls("pay", "c1"))
		next := s.respond()
		s.turn.Journal = suspended{s.turn.Journal, s}
		ran, ok := s.do(next).(loop.ToolsFinished)
		if !ok || len(ran.Results) != 1 || ran.Results[0].IsError != (probe != nil) || (made.Load() == 0) != (probe != nil) {
			t.Errorf("%s: %d calls were made: %+v", name, made.Load(), ran)
		}
	}
}

// probe calls the probes of a turn about a call that an earlier attempt has started.
func (s *stage) probe() (loop.TurnBegan, error) {
	began := loop.TurnBegan{At: state.At(time.Now()), Worker: "w2", Attempt: s.claim.Attempt, Started: []string{"c1"}}
	err := s.Probe(s.ctx, &s.turn, s.agent, &began)
	return began, err
}

// A call that was done gets its result, which is durable before the loop reads it. A call that was not done
// restarts only if it can no longer happen, under another key if the first was refused (A14).
func TestProbeOutcomes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer  tool.Result
		wait    time.Duration // since the start of the call
		takes   time.Duration // until the probe answers
		again   bool          // the call was started again after a probe
		result  string
		started bool // stays
		delay   time.Duration
	}{
		"done":              {answer: tool.ProbeDone(tool.Result{Content: "PAID"}), result: "PAID"},
		"refused":           {answer: tool.ProbeNotDone(true)},
		"not done, too old": {answer: tool.ProbeNotDone(false), wait: 4 * time.Second},
		"not done yet":      {answer: tool.ProbeNotDone(false), started: true, delay: 4 * time.Second},
		"asked too early":   {answer: tool.ProbeNotDone(false), wait: 3 * time.Second, takes: 2 * time.Second, started: true, delay: time.Second},
		"unknown":           {answer: tool.Result{Content: "?"}, started: true},
		"done again":        {answer: tool.ProbeDone(tool.Result{Content: "PAID"}), again: true, result: "PAID"},
		"refused again":     {answer: tool.ProbeNotDone(true), again: true, started: true},
		"not done again":    {answer: tool.ProbeNotDone(false), again: true, started: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := paused(t, tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
					time.Sleep(tt.takes)
					return tt.answer, nil
				}))
				time.Sleep(tt.wait) // the bubble's clock
				start := s.turn.Starts["c1"]
				start.Again = tt.again
				s.turn.Starts["c1"] = start
				began, err := s.probe()
				if tt.delay > 0 {
					if p, ok := errors.AsType[*effect.PostponedError](err); !ok || p.Delay != tt.delay || !errors.Is(err, effect.ErrRelease) {
						t.Errorf("error %v, want a delay of %s", err, tt.delay)
					}
				} else if err != nil {
					t.Error(err)
				}
				if started := len(began.Started) == 1; started != tt.started {
					t.Errorf("the call counts as started: %v, want %v", started, tt.started)
				}
				if (len(began.Results) == 1) != (tt.result != "") || s.has("c1") != (tt.result != "") {
					t.Errorf("results %+v; the store has one: %v", began.Results, s.has("c1"))
				}
				if tt.result != "" && began.Results[0].Content != tt.result {
					t.Errorf("result %q, want %q", began.Results[0].Content, tt.result)
				}
			})
		})
	}
}

// The probe is not asked about a turn that only ends its run.
func TestProbeOfAnEndingTurn(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*loop.TurnBegan){
		"aborted":  func(ev *loop.TurnBegan) { ev.Abort = &state.Abort{Reason: "enough"} },
		"poisoned": func(ev *loop.TurnBegan) { ev.Poisoned = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := paused(t, tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
				t.Errorf("%s: the probe is asked", name)
				return tool.ProbeNotDone(false), nil
			}))
			began := loop.TurnBegan{At: state.At(time.Now()), Worker: "w2", Attempt: s.claim.Attempt, Started: []string{"c1"}}
			change(&began)
			if err := s.Probe(s.ctx, &s.turn, s.agent, &began); err != nil || len(began.Started) != 1 {
				t.Errorf("%s: Probe = %v, started %v", name, err, began.Started)
			}
		})
	}
}

// hanging is a model that sends part of its response and hangs.
type hanging struct{}

func (hanging) Generate(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Response, error) {
	<-ctx.Done()
	return model.Response{Usage: state.Usage{InputTokens: 70, OutputTokens: 7}}, &model.Error{Class: model.Cancelled, Partial: "so far", Err: ctx.Err()}
}

// A model call that is cut short reports its cost and its partial response, without a cause.
func TestCutModelCallReportsItsCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.model = hanging{}
		s.open(agent.Definition{})
		ctx, cancel := context.WithCancelCause(s.ctx)
		next, done := s.begin(), make(chan loop.Event, 1)
		go func() {
			ev, err := s.Do(ctx, &s.turn, next)
			if err != nil {
				t.Error(err)
			}
			done <- ev
		}()
		synctest.Wait()
		cancel(effect.ErrShutdown)
		cut, ok := (<-done).(loop.Aborted)
		if !ok || cut.Spent.InputTokens != 70 || cut.Spent.OutputTokens != 7 || cut.Partial != "so far" || cut.Failed != 1 || cut.Cause != "" {
			t.Errorf("event %+v", cut)
		}
	})
}

// A turn waits for its quota itself if the wait is short. A longer wait is an event: the turn ends, with a
// reservation (I6).
func TestQuotaWait(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		perMinute int64
		delayed   bool
	}{"short": {60, false}, "long": {1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.cfg.Models.RateLimits = model.RateLimits{{Provider: "scripted", Quota: state.Quota{Requests: tt.perMinute}}}
				s.open(agent.Definition{}, model.Scripted{Text: "end"}, model.Scripted{Text: "end"}, model.Scripted{Text: "end"}, model.Scripted{Text: "end"}, model.Scripted{Text: "end"})
				began, next := time.Now(), s.begin()
				var last loop.Event
				for range 5 {
					if last = s.do(next); tt.delayed {
						if d, ok := last.(loop.ModelDelayed); ok {
							if d.Reservation == nil || d.Wait <= 2*time.Second || time.Since(began) > 2*time.Second {
								t.Errorf("event %+v after %s", d, time.Since(began))
							}
							return
						}
					}
				}
				if _, ok := last.(loop.ModelResponded); !ok || tt.delayed || time.Since(began) == 0 {
					t.Errorf("event %T after %s", last, time.Since(began))
				}
			})
		})
	}
}
