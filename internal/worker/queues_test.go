package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// publishTo publishes the first turn of a run to a queue.
func (s *deployment) publishTo(id state.RunID, l bus.QueueKey) {
	s.t.Helper()
	if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: 1, Priority: l.Lane, Noisy: l.Noisy}, string(id)+":1"); err != nil {
		s.t.Fatal(err)
	}
}

// A single queue can use every slot, whichever it is.
func TestOneQueueHasAllSlots(t *testing.T) {
	t.Parallel()
	for _, l := range bus.QueueKeys() {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			b := newBlocking()
			s.tools["block"] = b
			const slots = 6
			cfg := s.config()
			cfg.Slots = slots
			s.work(cfg)
			var ids []state.RunID
			for i := range slots {
				ids = append(ids, s.create(state.Limits{}, []agent.Tool{{Name: "block"}}, call("block", fmt.Sprint("c", i)), model.Scripted{Text: "end"}))
				s.publishTo(ids[i], l)
			}
			for range slots {
				<-b.started
			}
			close(b.release)
			for _, id := range ids {
				s.awaitReason(id, state.EndCompleted)
			}
		})
	}
}

// A worker with one slot alternates between the two queues of a lane: neither waits until the other is empty.
func TestQueuesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each = 20
		s := newDeployment(t)
		var mu sync.Mutex
		var order []bool
		noisy := map[state.RunID]bool{}
		s.tools["note"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			time.Sleep(time.Millisecond) // of the bubble: meanwhile the reader of each queue waits for the slot again
			mu.Lock()
			defer mu.Unlock()
			order = append(order, noisy[c.Run])
			return tool.Result{Content: "ok"}, nil
		})
		first := newBlocking()
		s.tools["first"] = first
		cfg := s.config()
		cfg.Slots = 1
		stop := s.work(cfg)
		s.submit(state.Limits{MaxTurns: 1}, []agent.Tool{{Name: "first"}}, call("first", "c"))
		synctest.Wait() // until the reader of each queue waits for the slot
		var ids []state.RunID
		for i := range 2 * each {
			id := s.create(state.Limits{MaxTurns: 1}, []agent.Tool{{Name: "note"}}, call("note", "c"))
			mu.Lock()
			noisy[id] = i < each
			mu.Unlock()
			ids = append(ids, id)
			s.publishTo(id, bus.QueueKey{Lane: state.Normal, Noisy: i < each})
		}
		close(first.release)
		for _, id := range ids {
			s.awaitReason(id, state.EndMaxTurns)
		}
		stop()
		early := 0
		for _, c := range order[:each] {
			if c {
				early++
			}
		}
		if early < each/4 || early > each*3/4 {
			t.Errorf("%d of the first %d turns are of noisy tenants: %v", early, each, order)
		}
	})
}
