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

// What a call comes to counts that was in flight when its worker heard that the lease is over:
// the answer may have been here before that, unread. And so it does if the message of the turn
// was handed out once more meanwhile.
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
		time.Sleep(time.Second) // the bubble's; a renewal is due after 400 ms
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

// Of a worker that is back results are waited for longer: it has those of all its turns to hand
// in. One that is gone has nothing to wait for.
func TestWorkerThatIsBackGetsTime(t *testing.T) {
	for name, from := range map[string]string{"back": "", "gone": "gone"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDeployment(t)
				tool := newBlocking()
				s.tools["pay"] = tool
				first := s.config()
				first.Slots, first.LateResults = 1, time.Minute // it cannot take its own turn up
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
				time.Sleep(8 * time.Second) // the bubble's
				close(tool.release)
				s.awaitReason(id, state.EndCompleted)
				if told := strings.Join(s.transcript(id), "\n"); strings.Contains(told, "unknown") != (name == "gone") {
					t.Errorf("%s: the model was told\n%s", name, told)
				}
			})
		})
	}
}
