package statetest

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A queued run whose message is in a backlog is due once, because the message may never have been published, and is
// then left to the backlog. A released run may have no message: it is due at the time that its worker set, even if
// the backlog is long.
func testSweepBacklog(t *testing.T, s *suite) {
	backlog := state.Backlog{state.Normal: time.Unix(1, 0), state.High: time.Unix(1, 0)}
	waits, aborted := newRun(t), newRun(t)
	for _, run := range []state.State{waits, aborted} {
		if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Abort(t.Context(), aborted.ID, state.Abort{Reason: "x"}, 0); err != nil {
		t.Fatal(err)
	}
	covered := 0
	released := map[state.RunID]bool{}
	for _, delay := range []time.Duration{0, time.Millisecond} {
		run := s.create(t)
		if err := s.Release(t.Context(), s.mustClaim(t, run.ID, 1).Lease, delay); err != nil {
			t.Fatal(err)
		}
		released[run.ID] = true
	}
	for deadline := time.Now().Add(soon); len(released) > 0 || covered == 0; breathe(t) {
		if time.Now().After(deadline) {
			t.Fatalf("%d released runs were not swept, and the run with a message was swept %d times", len(released), covered)
		}
		due, err := s.Sweep(t.Context(), 1000, long, backlog)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			if d.Run == waits.ID {
				if covered++; covered > 1 || !d.NeedsTurn || !d.Covered || d.Sweeps != 1 || d.Version != waits.Version {
					t.Errorf("Sweep returned the queued run as %+v (return %d of it); want it once, with NeedsTurn and Covered, since the backlog has its message", d, covered)
				}
				continue
			}
			if d.Covered || !released[d.Run] || !d.NeedsTurn {
				t.Errorf("Sweep returned %+v; want the queued run %s, or each of the released runs %v once, with NeedsTurn and without Covered", d, waits.ID, released)
			}
			delete(released, d.Run)
		}
	}
}

// Whatever has queued a run, its message is in the backlog from then on.
func testBacklogCoversEachMessage(t *testing.T, s *suite) {
	run := func() state.State {
		t.Helper()
		made := newRun(t)
		if _, err := s.Create(t.Context(), state.NewRun{State: made}); err != nil {
			t.Fatal(err)
		}
		return made
	}
	commit := func(id state.RunID, r state.Reason) {
		t.Helper()
		c := s.mustClaim(t, id, 1)
		next := commitOf(c, move(t, c.State.Started(), r, state.Entry{}))
		next.RedeliveryDelay = 0
		if _, err := s.Commit(t.Context(), c.Lease, next); err != nil {
			t.Fatal(err)
		}
	}
	created, continued, woken := run(), run(), run()
	commit(continued.ID, state.NextTurn)
	commit(woken.ID, state.EndCompleted)
	if _, err := s.Signal(t.Context(), woken.ID, message("s", "s"), 0); err != nil {
		t.Fatal(err)
	}
	left := map[state.RunID]string{created.ID: "created", continued.ID: "continued by a commit", woken.ID: "woken by a signal"}
	for deadline := time.Now().Add(soon); len(left) > 0; breathe(t) {
		if time.Now().After(deadline) {
			t.Fatalf("the runs that were %v are not due", left)
		}
		due, err := s.Sweep(t.Context(), 1000, long, state.Backlog{state.Normal: time.Unix(1, 0)})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			if left[d.Run] == "" || !d.Covered || !d.NeedsTurn {
				t.Errorf("Sweep returned the run that was %q as %+v; want each once, with NeedsTurn and Covered", left[d.Run], d)
			}
			delete(left, d.Run)
		}
	}
}
