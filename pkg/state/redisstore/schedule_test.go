package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Many runs covered by a backlog are returned once each, and hide no other due run.
func TestSweepPassesABacklog(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), fmt.Sprint("passes", time.Now().UnixNano()))
	fill(t, s, 700, false, 0)
	run := newRun(t)
	run.Priority = state.High
	if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	lost, covered := 0, 0
	for {
		due, err := s.Sweep(t.Context(), 100, time.Hour, state.Backlog{state.Normal: time.Unix(1, 0)})
		if err != nil {
			t.Fatal(err)
		}
		if len(due) == 0 {
			break
		}
		for _, d := range due {
			if d.Covered {
				covered++
			} else if lost++; d.Run != run.ID {
				t.Errorf("Sweep returns run %s of a lane with a backlog", d.Run)
			}
		}
	}
	if lost != 1 || covered != 700 {
		t.Errorf("the passes return %d runs behind the backlog and %d others, want 700 and 1", covered, lost)
	}
}
