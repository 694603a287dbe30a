package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// heldCommits is a store that holds the commits of one agent's runs until it is released.
type heldCommits struct {
	state.Store

	agent   string
	release chan struct{}
	held    atomic.Int64
}

func (s *heldCommits) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	if c.State.Agent == s.agent {
		s.held.Add(1)
		<-s.release
	}
	return s.Store.Commit(ctx, l, c)
}

// publishOf publishes the first turn of a tenant's run.
func (s *deployment) publishOf(id state.RunID, tenant string, noisy bool) {
	s.t.Helper()
	if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal, Noisy: noisy, Tenant: tenant}, string(id)+":1"); err != nil {
		s.t.Fatal(err)
	}
}

// On a shared worker, turns of noisy tenants at the store stay within their bound. Turns that wait for a model
// do not count, and turns of other tenants do not wait.
func TestNoisyTurnsLeaveRoomAtTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, all = 2, 10
		s := newDeployment(t)
		store := &heldCommits{Store: s.store, agent: "noisy", release: make(chan struct{})}
		cfg := s.config()
		cfg.MaxNoisyTurns, cfg.SweepInterval, cfg.RedeliveryDelay, cfg.HeartbeatInterval = most, time.Hour, time.Hour, time.Second
		s.workOn(store, cfg)
		quiet := func() {
			t.Helper()
			id := s.createFor(agent.Definition{Name: "quiet", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "done"}}}}, state.Limits{})
			s.publishOf(id, "quiet", false)
			s.awaitReason(id, state.EndCompleted)
		}
		quiet()
		var ids []state.RunID
		for range all {
			id := s.createFor(agent.Definition{Name: "noisy", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "done", Delay: model.Duration(time.Second)}}}}, state.Limits{})
			s.publishOf(id, "noisy", true)
			ids = append(ids, id)
		}
		time.Sleep(time.Minute) // the bubble's clock
		if n := store.held.Load(); n != most {
			t.Errorf("%d turns of a noisy tenant are at the store, want %d", n, most)
		}
		quiet()
		close(store.release)
		for _, id := range ids {
			s.awaitReason(id, state.EndCompleted)
		}
	})
}

// On a shared worker, turns of noisy tenants whose calls never return leave slots for the other tenants. A worker
// that one tenant uses alone gives it every slot: see TestOneQueueHasAllSlots.
func TestNoisyTurnsLeaveSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slots, left = 20, 2
		s := newDeployment(t)
		block := &blocking{started: make(chan string, 2*slots), release: make(chan struct{})}
		s.tools["block"] = block
		cfg := s.config()
		cfg.Slots, cfg.SweepInterval, cfg.RedeliveryDelay, cfg.HeartbeatInterval = slots, time.Hour, time.Hour, time.Second
		s.work(cfg)
		quiet := func() {
			t.Helper()
			id := s.createFor(agent.Definition{Name: "quiet", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "done"}}}}, state.Limits{})
			s.publishOf(id, "quiet", false)
			s.awaitReason(id, state.EndCompleted)
		}
		quiet()
		var ids []state.RunID
		for i := range 2 * slots {
			id := s.create(state.Limits{}, []agent.Tool{{Name: "block"}}, call("block", fmt.Sprint("c", i)), model.Scripted{Text: "end"})
			s.publishOf(id, "noisy", true)
			ids = append(ids, id)
		}
		time.Sleep(10 * time.Second) // the bubble's clock
		if n := block.calls.Load(); n != slots-left {
			t.Errorf("turns of a noisy tenant have %d of %d slots, want %d", n, slots, slots-left)
		}
		quiet()
		close(block.release)
		for _, id := range ids {
			s.awaitReason(id, state.EndCompleted)
		}
	})
}

// noisyBus publishes every turn to the queue for noisy tenants.
type noisyBus struct{ *membus.Bus }

func (b noisyBus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	t.Noisy = true
	return b.Bus.PublishTurn(ctx, t, id)
}

// A tree whose turns run one at a time ends: a run that waits for its children does not count toward the bound.
func TestBoundOnNoisyTurnsLetsTreesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		cfg := s.config()
		cfg.MaxNoisyTurns, cfg.SweepInterval, cfg.RedeliveryDelay, cfg.HeartbeatInterval = 1, time.Second, 5*time.Second, 300*time.Millisecond
		s.workWith(s.store, noisyBus{s.bus}, cfg)
		first := s.createFor(agent.Definition{Name: "other", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "done"}}}}, state.Limits{})
		s.publishOf(first, "other", true)
		s.awaitReason(first, state.EndCompleted)
		id := s.bomb(2, 100)
		s.awaitReason(id, state.EndCompleted)
		if ended, going := s.tree(id); ended != 101 || going != 0 {
			t.Errorf("the tree has %d ended runs and %d in flight, want 101 including the other run, and none", ended, going)
		}
	})
}
