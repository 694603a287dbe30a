package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// orphan is the store of the worker that starts a child. It pauses before it creates the child until before
// returns; then one read of the parent fails.
type orphan struct {
	state.Store

	parent  atomic.Value
	before  func()
	created atomic.Bool
	resumed chan struct{} // closed when before has returned
	failing atomic.Bool
}

func (o *orphan) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.State.Parent != nil {
		if o.created.CompareAndSwap(false, true) {
			o.before()
			o.failing.Store(true)
			close(o.resumed)
		}
		<-o.resumed
	}
	return o.Store.Create(ctx, n)
}

func (o *orphan) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if p, _ := o.parent.Load().(state.RunID); p == id && o.failing.CompareAndSwap(true, false) {
		return state.State{}, errors.New("i/o timeout")
	}
	return o.Store.Load(ctx, id)
}

// The child of an aborted parent ends without effects, also if the worker that created it cannot read the
// parent afterwards.
func TestChildOfAnAbortedParent(t *testing.T) {
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
			s.work(s.config()) // another worker with a working store
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
		time.Sleep(time.Minute) // the bubble's clock
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
