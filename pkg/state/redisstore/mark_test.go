package redisstore_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run in a shard whose mark is below the floor is neither claimed nor swept nor evicted, and keeps its
// status. With a mark it is.
func TestBehind(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.RedisProcess(t, "--save", "", "--appendonly", "no").URL, "p")
	queued, running := newRun(t), newRun(t)
	for _, run := range []state.State{queued, running} {
		if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(run state.RunID) state.Outcome {
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run, Version: 1, Token: "t" + string(run), Worker: "w", Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return c.Outcome
	}
	counts := func() (int64, int64) {
		all, err := s.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[state.Queued], all[state.Running]
	}
	if got := claim(running.ID); got != state.Claimed {
		t.Fatalf("without a floor the claim is %s", got)
	}
	s.SetFloor(7)
	if least, _, err := s.RaiseMarks(t.Context(), 7, 9); err != nil || least != 0 {
		t.Errorf("a mark below the floor was raised to %d, %v", least, err)
	}
	if got := claim(queued.ID); got != state.ClaimBehind {
		t.Errorf("the claim is %s", got)
	}
	due, err := s.Sweep(t.Context(), 10, time.Millisecond, nil)
	if err != nil || len(due) > 0 {
		t.Errorf("a sweep found %v, %v", due, err)
	}
	if due, err = s.Evict(t.Context(), "w", 10, 0); err != nil || len(due) > 0 {
		t.Errorf("an eviction found %v, %v", due, err)
	}
	if q, r := counts(); q != 1 || r != 1 {
		t.Errorf("%d runs are queued and %d running", q, r)
	}
	if least, greatest, err := s.RaiseMarks(t.Context(), 0, 7); err != nil || least != 7 || greatest != 7 {
		t.Errorf("marks from %d to %d, %v", least, greatest, err)
	}
	if due, err = s.Sweep(t.Context(), 10, time.Minute, nil); err != nil || len(due) != 1 || due[0].Run != queued.ID {
		t.Errorf("a sweep found %v, %v", due, err)
	}
	if got := claim(queued.ID); got != state.Claimed {
		t.Errorf("with a mark the claim is %s", got)
	}
}
