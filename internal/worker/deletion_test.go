package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func (s *deployment) cleaner() *retention.Cleaner {
	return retention.New(s.store, s.bus, retention.Config{})
}

// batchOf stores a batch and starts those of its runs that are not pending.
func (s *deployment) batchOf(def agent.Definition, size int, place state.Batch) []state.RunID {
	s.t.Helper()
	data, err := json.Marshal(def)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.store.PutAgent(s.t.Context(), state.DefaultTenant, def.Name, data, false)
	if err != nil {
		s.t.Fatal(err)
	}
	first := state.RunID(state.RunPrefix + ulid.Make().String())
	ids := make([]state.RunID, size)
	for i := range ids {
		now, input, b := state.At(time.Now()), state.UserText("hello"), place
		input.ID = "msg_1_0"
		b.Index, b.Size, b.PendingInBatch = i, size, i >= b.MaxParallel
		run := state.State{
			ID: first.Plus(i), Agent: def.Name, AgentVersion: v.Version, Loop: "react", Tenant: "default", Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, Batch: &b,
		}
		run, err := run.Move(state.Submitted, state.Entry{At: now, Messages: []state.Message{input}})
		if err == nil && b.PendingInBatch {
			run, err = run.Move(state.WaitingSchedule, state.Entry{At: now, Detail: state.BatchDetail, Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: now, Calls: []state.WaitCall{}}})
		}
		if err == nil {
			_, err = s.store.Create(s.t.Context(), state.NewRun{State: run, RedeliveryDelay: 50 * time.Millisecond})
		}
		if err != nil {
			s.t.Fatal(err)
		}
		ids[i] = run.ID
	}
	for _, id := range ids[:place.MaxParallel] {
		s.start(id)
	}
	return ids
}

// When a pending run of a batch is cancelled and deleted, the next run starts only after the run before it has
// ended (V4).
func TestDeletedPendingRunOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		b := newBlocking()
		s.tools["hold"] = b
		s.work(s.config())
		ids := s.batchOf(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("hold", "c1"), {Text: "end"}}}, Tools: []agent.Tool{{Name: "hold"}}}, 4, state.Batch{MaxParallel: 1})
		<-b.started
		for _, id := range ids[1:3] {
			s.abort(id)
			s.awaitReason(id, state.EndAbortedWaiting)
			if _, err := s.cleaner().Delete(t.Context(), "default", id); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // the sweeper checks the last run
		if n := b.calls.Load(); n != 1 {
			t.Errorf("max_parallel is 1, and %d runs are working", n)
		}
		close(b.release)
		s.awaitReason(ids[3], state.EndCompleted)
	})
}

// A batch skips a run that was deleted longer ago than its marker lasts: it does not record the run as lost.
func TestBatchPassesOverRunsDeletedLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "paid"}, nil })
		stop := s.work(s.config())
		ids := s.batchOf(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("pay", "c1"), {Text: "end"}}}, Tools: []agent.Tool{{Name: "pay", Approval: "always"}}}, 3, state.Batch{MaxParallel: 1, CountWaiting: true})
		s.awaitReason(ids[0], state.WaitingApproval)
		s.abort(ids[1])
		s.awaitReason(ids[1], state.EndAbortedWaiting)
		if _, err := s.cleaner().Delete(t.Context(), "default", ids[1]); err != nil {
			t.Fatal(err)
		}
		stop()
		time.Sleep(state.MarkerLifetime + time.Hour) // the bubble's clock
		s.work(s.config())
		s.signal(ids[0], state.Signal{ID: "ok", Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve}}, At: state.At(time.Now())})
		s.awaitReason(ids[0], state.EndCompleted)
		s.awaitReason(ids[2], state.WaitingApproval)
		if st, err := s.store.Load(t.Context(), ids[1]); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("the deleted run exists: %s, %v", st.Transition.Reason, err)
		}
	})
}

// A batch starts its next run when one of its runs first waits for a person, and only once. With count_waiting,
// it waits until that run ends (P15).
func TestBatchRunThatWaitsForAPerson(t *testing.T) {
	for _, counts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newDeployment(t)
			var paid atomic.Int32
			s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
				paid.Add(1)
				return tool.Result{Content: "paid"}, nil
			})
			s.work(s.config())
			ids := s.batchOf(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("pay", "c1"), call("pay", "c2"), {Text: "end"}}}, Tools: []agent.Tool{{Name: "pay", Approval: "always"}}}, 4, state.Batch{MaxParallel: 1, CountWaiting: counts})
			standing := func() (waits []bool) {
				time.Sleep(time.Minute)
				for _, id := range ids {
					st, err := s.store.Load(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					waits = append(waits, st.Status == state.Waiting && st.Waiting.Reason == state.WaitingApproval)
				}
				return waits
			}
			want := []bool{true, !counts, !counts, !counts}
			if got := standing(); !slices.Equal(got, want) {
				t.Fatalf("waiting for a person: %v, want %v", got, want)
			}
			approve := func(id state.RunID, call string) {
				s.signal(id, state.Signal{ID: "ok " + call, Approvals: []state.Approval{{CallID: call, Decision: state.Approve}}, At: state.At(time.Now())})
			}
			approve(ids[0], "c1")
			if got := standing(); !slices.Equal(got, want) {
				t.Fatalf("after the first approval, waiting for a person: %v, want %v", got, want)
			}
			approve(ids[0], "c2")
			s.awaitReason(ids[0], state.EndCompleted)
			if got := standing(); got[1] != true || got[2] == counts {
				t.Errorf("after the end of the first, waiting for a person: %v", got)
			}
			if paid.Load() != 2 {
				t.Errorf("%d calls, want 2", paid.Load())
			}
		})
	}
}

// A child never runs if its parent was cancelled and deleted while a worker was about to create it. The store
// refuses the deletion as long as the child may still be created (V8).
func TestChildOfADeletedParent(t *testing.T) {
	for _, by := range []string{"the cleaner", "the store"} {
		synctest.Test(t, func(t *testing.T) {
			s := newDeployment(t)
			var paid atomic.Int32
			s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
				paid.Add(1)
				return tool.Result{Content: "paid"}, nil
			})
			s.define(agent.Definition{Name: "researcher", Tools: []agent.Tool{{Name: "pay"}}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("pay", "p1"), {Text: "found"}}}})
			created := make(chan struct{})
			o := &orphan{Store: s.store, resumed: make(chan struct{})}
			o.before = func() {
				id, _ := o.parent.Load().(state.RunID)
				s.work(s.config())
				s.abort(id)
				s.awaitReason(id, state.EndAbortedWaiting)
				_, err := s.cleaner().Delete(context.Background(), "default", id)
				if _, early := errors.AsType[*retention.NotCreatedError](err); !early {
					t.Errorf("Delete while the child may be created = %v", err)
				}
				if by == "the store" {
					err = s.store.Delete(context.Background(), id)
				} else {
					time.Sleep(2 * time.Minute)
					_, err = s.cleaner().Delete(context.Background(), "default", id)
				}
				if err != nil {
					t.Error(err)
				}
				close(created)
			}
			cfg := s.config()
			id := s.create(state.Limits{}, []agent.Tool{researcher}, delegation("a"), model.Scripted{Text: "done"})
			o.parent.Store(id)
			s.workOn(o, cfg)
			s.start(id)
			<-created
			time.Sleep(time.Minute)
			for _, child := range s.children(id) {
				if child.Status != state.Cancelled {
					t.Errorf("the child is %s (%s)", child.Status, child.Transition.Reason)
				}
			}
			if paid.Load() != 0 {
				t.Errorf("deleted by %s: the child's tool was called", by)
			}
			if letters, err := s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil || len(letters) > 0 {
				t.Errorf("dead letters %+v, %v", letters, err)
			}
		})
	}
}

// Events that a worker was publishing while their run was deleted do not stay in the feed (V12).
func TestFeedOfADeletedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		slow, deleted := make(chan struct{}), make(chan struct{})
		var once atomic.Bool
		out := outlet{s.bus, func(_ context.Context, send func() error) error {
			if once.CompareAndSwap(false, true) {
				close(slow)
				<-deleted
			}
			return send()
		}}
		cfg := s.config()
		cfg.EventFeed = true
		s.workWith(s.store, out, cfg)
		id := s.submit(state.Limits{}, nil, model.Scripted{Text: "my password is 1234"})
		<-slow
		s.await(id, "completed", func(st state.State) bool { return st.Status.Terminal() })
		if n, err := s.cleaner().Delete(t.Context(), "default", id); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		close(deleted)
		time.Sleep(time.Minute)
		if n, err := s.bus.LastEvent(t.Context(), state.DefaultTenant, id); n != 0 || err != nil {
			t.Errorf("the feed has %d events of the deleted run, %v", n, err)
		}
		if letters, err := s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil || len(letters) > 0 {
			t.Errorf("dead letters %+v, %v", letters, err)
		}
	})
}

// A worker publishes an event of a deleted run and dies before removing it: the worker that receives the turn
// message removes it.
func TestFeedOfADeletedRunWhoseWorkerDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		id := s.submit(state.Limits{}, nil, model.Scripted{Text: "my password is 1234"})
		stop := s.work(s.config())
		s.await(id, "completed", func(st state.State) bool { return st.Status.Terminal() })
		stop()
		if _, err := s.cleaner().Delete(t.Context(), "default", id); err != nil {
			t.Fatal(err)
		}
		if err := s.bus.PublishEvents(t.Context(), state.DefaultTenant, id, []bus.Event{{Seq: 1, Data: []byte(`{}`)}}); err != nil {
			t.Fatal(err)
		}
		if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal, Tenant: state.DefaultTenant}, "again"); err != nil {
			t.Fatal(err)
		}
		cfg := s.config()
		cfg.EventFeed = true
		s.work(cfg)
		time.Sleep(time.Minute)
		if n, err := s.bus.LastEvent(t.Context(), state.DefaultTenant, id); n != 0 || err != nil {
			t.Errorf("the feed has %d events of the deleted run, %v", n, err)
		}
		if lag, err := s.bus.Lag(t.Context()); lag != 0 || err != nil {
			t.Errorf("%d messages are left, %v", lag, err)
		}
	})
}

// Workers drop messages of a deleted run (V2).
func TestMessageOfADeletedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		id := s.submit(state.Limits{}, nil, model.Scripted{Text: "hi"})
		s.abort(id)
		stop := s.work(s.config())
		s.await(id, "ended", func(st state.State) bool { return st.Status.Terminal() })
		stop()
		if _, err := s.cleaner().Delete(t.Context(), "default", id); err != nil {
			t.Fatal(err)
		}
		if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, "late"); err != nil {
			t.Fatal(err)
		}
		s.work(s.config())
		time.Sleep(time.Minute)
		if lag, err := s.bus.Lag(t.Context()); lag != 0 || err != nil {
			t.Errorf("%d messages are left, %v", lag, err)
		}
		if letters, err := s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil || len(letters) > 0 {
			t.Errorf("dead letters %+v, %v", letters, err)
		}
	})
}
