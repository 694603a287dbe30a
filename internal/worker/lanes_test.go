package worker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A worker with one slot takes more turns from higher lanes, however large the backlog of the others, and some
// from each lane.
func TestHigherLanesHaveMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each = 28
		s := newDeployment(t)
		var mu sync.Mutex
		var order []state.Priority
		lane := map[state.RunID]state.Priority{}
		s.tools["note"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			mu.Lock()
			order = append(order, lane[c.Run])
			mu.Unlock()
			time.Sleep(time.Second) // the bubble's clock: each lane requests the slot again before the turn ends
			return tool.Result{Content: "ok"}, nil
		})
		var ids []state.RunID
		for range each {
			for _, p := range []state.Priority{state.Low, state.Normal, state.High} {
				id := s.create(state.Limits{MaxTurns: 1}, []agent.Tool{{Name: "note"}}, call("note", "c"))
				lane[id] = p
				ids = append(ids, id)
				s.publishTo(id, bus.QueueKey{Lane: p})
			}
		}
		cfg := s.config()
		cfg.Slots = 1
		s.work(cfg)
		for _, id := range ids {
			s.awaitReason(id, state.EndMaxTurns)
		}
		early := map[state.Priority]int{}
		for _, p := range order[:each*3/2] {
			early[p]++
		}
		// By weight the shares are 24, 12 and 6 of 42; an even split would be 14 each.
		if early[state.High] < 20 || early[state.Low] < 3 || early[state.Low] > early[state.Normal] {
			t.Errorf("of the first turns %v: %v", early, order)
		}
	})
}
