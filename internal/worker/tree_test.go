package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// bomb submits a run that delegates to itself 32 times in each of its turns, as do its child runs.
func (s *deployment) bomb(turns, runs int) state.RunID {
	s.t.Helper()
	var responses []model.Scripted
	for n := range turns {
		var calls []model.ScriptedCall
		for i := range agent.MaxChildren {
			calls = append(calls, model.ScriptedCall{Name: "again", ID: fmt.Sprintf("c%d_%d", n, i), Arguments: []byte(`{"task": "again"}`)})
		}
		responses = append(responses, model.Scripted{ToolCalls: calls, Delay: model.Duration(200 * time.Millisecond)})
	}
	responses = append(responses, model.Scripted{Text: "done"})
	again := []agent.Tool{{Name: "again", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "bomb"})}}
	s.define(agent.Definition{Name: "bomb", Model: agent.Model{Provider: "scripted", Responses: responses}, Tools: again})
	return s.submit(state.Limits{MaxTurns: 20, Runs: runs}, again, responses...)
}

// tree returns all runs of the store but one, split by whether they have ended.
func (s *deployment) tree(root state.RunID) (ended, going int) {
	s.t.Helper()
	f := state.Filter{Limit: 100}
	for {
		page, err := s.store.List(s.t.Context(), f)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range page.Runs {
			switch {
			case r.ID == root:
			case r.Status.Terminal():
				ended++
			default:
				going++
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return ended, going
		}
	}
}

// A tree of runs has at most limits.runs descendants of its root. Calls beyond are errors with which the model
// can continue.
func TestTreeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		for range 2 {
			cfg := s.config()
			cfg.SweepInterval, cfg.RedeliveryDelay, cfg.HeartbeatInterval, cfg.ShutdownGrace = time.Second, 5*time.Second, 300*time.Millisecond, time.Second
			s.work(cfg)
		}
		id := s.bomb(1, 100)
		s.awaitReason(id, state.EndCompleted)
		if ended, going := s.tree(id); ended != 100 || going != 0 {
			t.Errorf("the tree has %d ended runs and %d active ones, want 100 and none", ended, going)
		}
	})
}

// Cancelling the root stops a tree that grows as fast as it can.
func TestCancelledTreeStopsGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		for range 2 {
			cfg := s.config()
			cfg.SweepInterval, cfg.RedeliveryDelay, cfg.HeartbeatInterval, cfg.ShutdownGrace = time.Second, 5*time.Second, 300*time.Millisecond, time.Second
			s.work(cfg)
		}
		id := s.bomb(5, 0)
		for {
			if ended, going := s.tree(id); ended+going > 100 {
				break
			}
			time.Sleep(10 * time.Millisecond) // the bubble's clock
		}
		s.abort(id)
		time.Sleep(time.Second)
		before, going := s.tree(id)
		before += going
		time.Sleep(9 * time.Second)
		ended, going := s.tree(id)
		if ended+going != before || going != 0 {
			t.Errorf("the tree had %d runs one second after the abort, and nine seconds later %d ended and %d active", before, ended, going)
		}
		if st, err := s.store.Load(t.Context(), id); err != nil || st.Status != state.Cancelled {
			t.Errorf("the root is %s, %v", st.Status, err)
		}
	})
}

// slowCreates is a store that creates child runs only when released.
type slowCreates struct {
	state.Store

	arrived, release chan struct{}
}

func (s *slowCreates) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.State.Parent != nil {
		s.arrived <- struct{}{}
		<-s.release
	}
	return s.Store.Create(ctx, n)
}

// An abort overtakes children that were admitted before it: the worker creates only those that it has begun to
// create.
func TestAbortOvertakesAdmittedChildren(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "found"}}}})
	store := &slowCreates{s.store, make(chan struct{}, agent.MaxChildren), make(chan struct{})}
	stop := s.workOn(store, s.config())
	id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation(make([]string, agent.MaxChildren)...), model.Scripted{Text: "done"})
	<-store.arrived
	s.abort(id)
	s.awaitReason(id, state.EndAbortedWaiting)
	close(store.release)
	eventually(t, "a child that had begun is created", func() bool { return len(s.children(id)) > 0 }) // a shutdown would cut it short
	stop()
	if n := len(s.children(id)); n > 8 {
		t.Errorf("%d of %d children were created, want those that had begun", n, agent.MaxChildren)
	}
}

// signalCounts is a store that counts signals.
type signalCounts struct {
	state.Store

	signals atomic.Int64
}

func (c *signalCounts) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	c.signals.Add(1)
	return c.Store.Signal(ctx, id, sig, delay)
}

// The calls that limits.runs refuses are answered in one signal: a tree at its limit refuses all calls of each
// of its runs.
func TestRefusedCallsAreAnsweredTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		store := &signalCounts{Store: s.store}
		s.workOn(store, s.config())
		id := s.bomb(1, 1)
		s.awaitReason(id, state.EndCompleted)
		// One signal per run for the refused calls, and one for the child. A message that is delivered again repeats them.
		if n := store.signals.Load(); n > 2*3 {
			t.Errorf("%d signals were sent for %d calls", n, agent.MaxChildren)
		}
		refused := 0
		for _, m := range s.transcript(id) {
			refused += strings.Count(m, "No run was started")
		}
		if refused != agent.MaxChildren-1 {
			t.Errorf("%d calls were refused, want %d", refused, agent.MaxChildren-1)
		}
	})
}
