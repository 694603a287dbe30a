package worker_test

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A worker that was only paused submits its call's result, and the worker that has resumed the turn uses it:
// the model does not read that the outcome is unknown.
func TestPausedWorkerHandsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		tool := newBlocking()
		s.tools["pay"] = tool
		first := s.config()
		first.Slots, first.LateResults = 1, 3*time.Second // it cannot resume its own turn
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
		time.Sleep(time.Second) // the bubble's clock
		close(tool.release)
		s.awaitReason(id, state.EndCompleted)
		if n := tool.calls.Load(); n != 1 {
			t.Errorf("the tool was called %d times", n)
		}
		if told := strings.Join(s.transcript(id), "\n"); strings.Contains(told, "unknown") {
			t.Errorf("the model read\n%s", told)
		}
	})
}

// The result of a call counts if the call was in flight when its worker learned that the lease had ended: the
// result may have arrived before, unread. It also counts if the turn message was redelivered in between.
func TestPausedWorkerReadsBeforeItGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		tool := newBlocking()
		s.tools["pay"] = tool
		first := s.config()
		first.Slots, first.LateResults, first.LeaseDuration = 1, 3*time.Second, 1200*time.Millisecond
		s.work(first)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay"}}, call("pay", "c1"), model.Scripted{Text: "done"})
		<-tool.started

		due, err := s.store.Evict(t.Context(), first.ID, 100, time.Hour)
		if err != nil || len(due) != 1 {
			t.Fatalf("Evict = %+v, %v", due, err)
		}
		again := bus.Turn{Run: id, Version: due[0].Version, Priority: state.Low}
		if err := s.bus.PublishTurn(t.Context(), again, "again"); err != nil {
			t.Fatal(err)
		}
		queue, err := s.bus.Turns(t.Context(), again.Queue())
		if err != nil {
			t.Fatal(err)
		}
		d, err := queue.Next(t.Context())
		for err == nil && d.Delivered() < 2 {
			if err = d.Nak(0); err == nil {
				d, err = queue.Next(t.Context())
			}
		}
		if err == nil {
			err = d.Nak(0)
		}
		if err != nil {
			t.Fatal(err)
		}
		second := s.config()
		second.LateResults = 3 * time.Second
		s.work(second)
		time.Sleep(time.Second) // the bubble's clock; a renewal is due after 400 ms
		close(tool.release)
		s.awaitReason(id, state.EndCompleted)
		if n := tool.calls.Load(); n != 1 {
			t.Errorf("the tool was called %d times", n)
		}
		if told := strings.Join(s.transcript(id), "\n"); strings.Contains(told, "unknown") {
			t.Errorf("the model read\n%s", told)
		}
	})
}

// A turn waits longer for results of a worker that is back, because it has those of all its turns to submit. It
// does not wait for a dead worker.
func TestWorkerThatIsBackGetsTime(t *testing.T) {
	for name, from := range map[string]string{"back": "", "gone": "gone"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDeployment(t)
				tool := newBlocking()
				s.tools["pay"] = tool
				first := s.config()
				first.Slots, first.LateResults = 1, time.Minute // it cannot resume its own turn
				s.work(first)
				id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay"}}, call("pay", "c1"), model.Scripted{Text: "done"})
				<-tool.started

				second := s.config()
				second.LateResults = 3 * time.Second
				s.work(second)
				due, err := s.store.Evict(t.Context(), first.ID, 100, time.Hour)
				if err != nil || len(due) != 1 {
					t.Fatalf("Evict = %+v, %v", due, err)
				}
				again := bus.Turn{Run: id, Version: due[0].Version, Priority: state.Normal, TakenFrom: cmp.Or(from, first.ID)}
				if err := s.bus.PublishTurn(t.Context(), again, "again"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(8 * time.Second) // the bubble's clock
				close(tool.release)
				s.awaitReason(id, state.EndCompleted)
				if told := strings.Join(s.transcript(id), "\n"); strings.Contains(told, "unknown") != (name == "gone") {
					t.Errorf("%s: the model read\n%s", name, told)
				}
			})
		})
	}
}
