//go:build hunt

package worker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// The tests in this file show known defects of many runs at once. They fail until the
// defect that each one names is mended: `make hunt` runs them, `make verify` sees that
// they compile. Who mends one moves its test to the package's other tests.

// orphan is the store of the worker that starts a child. It pauses before it creates the
// child until before returns; then one read of the parent fails.
type orphan struct {
	state.Store

	parent  atomic.Value
	before  func()
	once    sync.Once
	failing atomic.Bool
}

func (o *orphan) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.State.Parent != nil {
		o.once.Do(func() { o.before(); o.failing.Store(true) })
	}
	return o.Store.Create(ctx, n)
}

func (o *orphan) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if p, _ := o.parent.Load().(state.RunID); p == id && o.failing.CompareAndSwap(true, false) {
		return state.State{}, errors.New("i/o timeout")
	}
	return o.Store.Load(ctx, id)
}

// Finding 3: the child of an aborted parent runs on, with its effects, if the worker that
// created it cannot read the parent afterwards.
func TestHuntOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		var paid atomic.Int32
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
			paid.Add(1)
			return tool.Result{Content: "paid"}, nil
		})
		s.define(agent.Definition{Name: "researcher", Tools: []agent.Tool{{Name: "pay"}}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("pay", "p1"), {Text: "found"}}}})
		created := make(chan struct{})
		o := &orphan{Store: s.store}
		o.before = func() {
			id, _ := o.parent.Load().(state.RunID)
			s.work(s.config()) // another worker, whose store answers
			s.abort(id)
			s.awaitReason(id, state.EndAbortedWaiting)
			close(created)
		}
		cfg := s.config()
		id := s.create(state.Limits{}, []agent.Tool{researcher}, delegation("a"), model.Scripted{Text: "done"})
		o.parent.Store(id)
		s.workOn(o, cfg)
		s.start(id)
		<-created
		time.Sleep(time.Minute) // the bubble's
		children := s.children(id)
		if len(children) == 0 {
			t.Fatal("the parent has no child")
		}
		for _, c := range children {
			if c.Status == state.Completed || paid.Load() > 0 {
				t.Errorf("the child of an aborted run is %s (%s) and made %d payments", c.Status, c.Transition.Reason, paid.Load())
			}
		}
	})
}

// Finding 7: queued runs count as lost, so the sweeper publishes their turns again and
// again under ids that are never taken for copies.
func TestHuntBacklog(t *testing.T) {
	const runs = 500
	s := newDeployment(t)
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "backlog"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	v := slowAgent(t, s.store, 2*time.Second)
	for range runs {
		id := queued(t, s.store, v)
		if err := b.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
			t.Fatal(err)
		}
	}
	cfg := defaults(s.config())
	cfg.Slots = 5
	s.workWith(s.store, b, cfg)
	// Some redelivery delays later.
	s.awaitCounts(func(c map[state.Status]int64) bool { return c[state.Completed] >= 50 })
	info, err := turnStream(t, nc, "BACKLOG_TURNS").Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs > runs {
		t.Errorf("%d runs were submitted, at least 50 have ended, and %d messages wait in the stream of turns", runs, info.State.Msgs)
	}
}

// awaitCounts polls until the counts of runs satisfy ok, or the test's deadline.
func (s *deployment) awaitCounts(ok func(map[state.Status]int64) bool) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		counts, err := s.store.Counts(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		if ok(counts) {
			return
		}
	}
}
