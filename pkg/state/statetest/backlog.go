package statetest

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A queued run whose message waits in a backlog is left to it. One that was released may have
// no message: it is due when its worker has said, however long the backlog is.
func testSweepBacklog(t *testing.T, s *suite) {
	backlog := state.Backlog{state.Normal: time.Unix(1, 0)}
	waits := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: waits}); err != nil {
		t.Fatal(err)
	}
	released := map[state.RunID]bool{}
	for _, delay := range []time.Duration{0, time.Millisecond} {
		run := s.create(t)
		if err := s.Release(t.Context(), s.mustClaim(t, run.ID, 1).Lease, delay); err != nil {
			t.Fatal(err)
		}
		released[run.ID] = true
	}
	for deadline := time.Now().Add(soon); len(released) > 0; breathe(t) {
		if time.Now().After(deadline) {
			t.Fatalf("%d runs that were released never came up in a sweep", len(released))
		}
		due, err := s.Sweep(t.Context(), 1000, long, backlog)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			if !released[d.Run] || !d.NeedsTurn {
				t.Errorf("Sweep brings up %+v, want the turns of runs that were released", d)
			}
			delete(released, d.Run)
		}
	}
}
