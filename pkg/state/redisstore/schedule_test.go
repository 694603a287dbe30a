package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Behind many runs that a backlog explains a run whose time has come is found by the next sweep.
func TestSweepPassesABacklog(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), fmt.Sprint("passes", time.Now().UnixNano()))
	fill(t, s, 700, false, 0)
	run := newRun(t)
	run.Priority = state.High
	if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	due, err := s.Sweep(t.Context(), 100, time.Hour, state.Backlog{state.Normal: time.Unix(1, 0)})
	if err != nil || len(due) != 1 || due[0].Run != run.ID {
		t.Errorf("Sweep brings up %d runs, %v; want the one of a lane without a backlog", len(due), err)
	}
}
