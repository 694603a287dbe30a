package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lingering is a store that delays the worker while it records that it has finalized an aborted run.
type lingering struct {
	state.Store

	entered, release chan struct{}
}

func (l lingering) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	if st, err := l.Load(ctx, id); err == nil && st.Status == state.Cancelled {
		l.entered <- struct{}{}
		<-l.release
	}
	return l.Store.MarkFinalized(ctx, id, seq)
}

// An abort ends only the turn it struck. A run that is continued at once is not aborted again while the worker
// of the old turn still cleans up (I7).
func TestAbortIsNotClaimedEagerly(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	store := lingering{s.store, make(chan struct{}, 8), make(chan struct{})}
	slow := newBlocking()
	s.tools["slow"] = slow
	s.workOn(store, s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow"}}, call("slow", "c1"), model.Scripted{Text: "end"})
	<-slow.started
	s.abort(id)
	<-store.entered
	said := state.UserText("go on")
	s.signal(id, state.Signal{ID: "m", Message: &said})
	st := s.await(id, "an end", func(st state.State) bool { return st.Version > 2 && st.Status.Terminal() })
	close(store.release)
	if st.Transition.Reason != state.EndCompleted {
		t.Errorf("the continued run ended %s, want completed", st.Transition.Reason)
	}
}

// An abort that is received late applies to the turn it was sent for, not to a turn of the run that was
// continued since (I7).
func TestAbortHeardLate(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	slow := newBlocking()
	s.tools["slow"] = slow
	cfg := s.config()
	cfg.LeaseDuration = 3 * time.Second // renewed every second
	s.work(cfg)
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow"}}, call("slow", "c1"), call("slow", "c2"), model.Scripted{Text: "end"})
	<-slow.started
	// Only the flag is set: the lease renewal sees it.
	wake, err := s.store.Abort(t.Context(), id, state.Abort{Reason: "enough"}, s.delay())
	if err != nil {
		t.Fatal(err)
	}
	s.awaitReason(id, state.EndAbortedTools)
	said := state.UserText("go on")
	s.signal(id, state.Signal{ID: "m", Message: &said})
	<-slow.started
	heard := make(chan struct{}, 2)
	stop, err := s.bus.Aborts(t.Context(), func(bus.Abort) { heard <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := s.bus.PublishAbort(t.Context(), bus.Abort{Run: id, Reason: "enough", Version: wake.Version}); err != nil {
		t.Fatal(err)
	}
	<-heard
	close(slow.release)
	s.awaitReason(id, state.EndCompleted)
}

// Every event of a turn carries its attempt, including events of tools and limits.
func TestEventsSayTheirAttempt(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	slow := newBlocking()
	s.tools["slow"] = slow
	calls := call("slow", "c1")
	calls.ToolCalls = append(calls.ToolCalls, model.ScriptedCall{ID: "c2", Name: "missing"})
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow", Idempotent: true}}, calls, model.Scripted{Text: "end"})
	first := s.config()
	s.work(first)
	<-slow.started
	if _, err := s.store.Evict(t.Context(), first.ID, 100, s.delay()); err != nil {
		t.Fatal(err)
	}
	close(slow.release)
	s.work(s.config())
	st := s.awaitReason(id, state.EndCompleted)
	log, err := s.store.Log(t.Context(), id, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range log[1:] {
		got = append(got, fmt.Sprintf("%s %d", e.Type, e.Attempt))
	}
	want := []string{
		"model.message 1", "tool.finished 1", "transition 2", "tool.finished 2", "transition 2",
		"model.message 1", "run.finished 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events of %s (-want +got):\n%s", st.ID, diff)
	}
}
