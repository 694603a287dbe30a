package worker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A worker without a free slot holds no message that another worker could take, in any queue.
func TestFullWorkerHoldsNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		tool := newBlocking()
		s.tools["wait"] = tool
		full := s.config()
		full.Slots, full.RedeliveryDelay, full.SweepInterval, full.HeartbeatInterval = 1, time.Hour, time.Hour, time.Second
		s.work(full)
		wait := []agent.Tool{{Name: "wait"}}
		s.submit(state.Limits{}, wait, call("wait", "c1"), model.Scripted{Text: "done"})
		<-tool.started

		id := s.create(state.Limits{}, wait, model.Scripted{Text: "done"})
		if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.High}, "high"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the bubble's clock
		idle := s.config()
		idle.RedeliveryDelay, idle.SweepInterval, idle.HeartbeatInterval = time.Hour, time.Hour, time.Second
		s.work(idle)
		s.awaitReason(id, state.EndCompleted)
		close(tool.release)
	})
}
