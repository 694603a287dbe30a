package worker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A worker that was only paused hands in what its call came to, and whoever has taken the
// turn up uses it: nobody is told that the outcome is unknown.
func TestPausedWorkerHandsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		tool := newBlocking()
		s.tools["pay"] = tool
		first := s.config()
		first.Slots, first.LateResults = 1, 3*time.Second // it cannot take its own turn up
		s.work(first)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay"}}, call("pay", "c1"), model.Scripted{Text: "done"})
		<-tool.started

		second := s.config()
		second.LateResults = 3 * time.Second
		s.work(second)
		due, err := s.store.Evict(t.Context(), first.ID, 100, s.delay())
		if err != nil || len(due) != 1 {
			t.Fatalf("Evict = %+v, %v", due, err)
		}
		if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: due[0].Version, Priority: state.Normal}, "again"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the bubble's
		close(tool.release)
		s.awaitReason(id, state.EndCompleted)
		if n := tool.calls.Load(); n != 1 {
			t.Errorf("the tool was called %d times", n)
		}
		if told := strings.Join(s.transcript(id), "\n"); strings.Contains(told, "unknown") {
			t.Errorf("the model was told\n%s", told)
		}
	})
}
