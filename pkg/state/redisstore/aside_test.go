package redisstore_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// After a rollback, runs of the newer format hide no run that this build can read, and each costs one check.
func TestRollbackOfFormat(t *testing.T) {
	t.Parallel()
	const newer = 12 * state.Shards
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb := openAt(t, p.URL, "p"), raw(t, p.URL)
	s.SetFormat(state.Format)
	sweep := func() []state.Due {
		due, err := s.Sweep(t.Context(), 512, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	sweep() // the scripts are loaded from now on
	empty := spent(t, rdb, func() { sweep() })
	for range newer {
		run := newRun(t)
		run.Format = state.Format + 1
		if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
	}
	own := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: own}); err != nil {
		t.Fatal(err)
	}
	found := false
	for range newer/512 + 2 {
		for _, d := range sweep() {
			found = found || d.Run == own.ID
		}
	}
	if !found {
		t.Errorf("%d runs of a newer format hide a due one", newer)
	}
	if after := spent(t, rdb, func() { sweep() }); after.commands > empty.commands+1 {
		t.Errorf("a sweep takes %d commands with %d runs of a newer format, %d without", after.commands, newer, empty.commands)
	}
}

// A build that can read a run restores one that an older build has set aside, with all changes made in between.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb := openAt(t, p.URL, "p"), raw(t, p.URL)
	s.SetFormat(state.Format)
	create := func() state.RunID {
		run := newRun(t)
		if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
		if err := s.SweepAs(t.Context(), state.Format-1, run.ID); err != nil {
			t.Fatal(err)
		}
		return run.ID
	}
	lost, claimed, gone := create(), create(), create()
	if n, err := rdb.Keys(t.Context(), "p:{s*}:aside").Result(); err != nil || len(n) == 0 {
		t.Fatalf("no run was set aside: %v, %v", n, err)
	}
	if c, err := s.Claim(t.Context(), state.ClaimRequest{Run: claimed, Version: 1, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}); err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	end(t, s, gone)
	if err := s.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	found := map[state.RunID]int{}
	for range 20 * state.Shards { // each checks some random shards
		due, err := s.Sweep(t.Context(), 100, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			found[d.Run]++
		}
		if left, err := rdb.Keys(t.Context(), "p:{s*}:aside").Result(); err != nil {
			t.Fatal(err)
		} else if len(left) == 0 {
			break
		}
	}
	if found[lost] != 1 || len(found) != 1 {
		t.Errorf("sweeps found %v, want %s once", found, lost)
	}
	if left, err := rdb.Keys(t.Context(), "p:{s*}:aside").Result(); err != nil || len(left) != 0 {
		t.Errorf("%v stay aside, %v", left, err)
	}
	if c, err := s.Claim(t.Context(), state.ClaimRequest{Run: claimed, Version: 1, Token: "t2", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}); err != nil || c.Outcome != state.ClaimBusy {
		t.Errorf("the lease of another run was lost: %s, %v", c.Outcome, err)
	}
}

// end completes a run.
func end(t *testing.T, s state.Store, id state.RunID) {
	t.Helper()
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "end", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "end", State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
}
