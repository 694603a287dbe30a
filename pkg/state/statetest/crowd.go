package statetest

import (
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// of returns a new run of a tenant on a shard.
func of(t *testing.T, tenant string, shard int) state.State {
	t.Helper()
	for {
		run := newRun(t)
		run.Tenant, run.ID = tenant, state.RunID(state.RunPrefix+ulid.Make().String())
		if run.ID.Shard() == shard {
			return run
		}
	}
}

// made stores a new run of a tenant on shard 7, which has a crowd or not.
func (s *suite) made(t *testing.T, tenant string, crowded bool) state.State {
	t.Helper()
	run := of(t, tenant, 7)
	got, existing, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: 0})
	if err != nil || existing || got.Crowded != crowded {
		t.Fatalf("Create of %s = crowded %v, existing %v, %v; want crowded %v", tenant, got.Crowded, existing, err, crowded)
	}
	return run
}

// ended takes a run to its end.
func (s *suite) ended(t *testing.T, id state.RunID, version int64) {
	t.Helper()
	if done := s.commit(t, s.mustClaim(t, id, version), state.EndCompleted, state.Entry{}); done.Crowded {
		t.Errorf("Commit of an end = %+v", done)
	}
}

// A run is crowded while more of its tenant are under way on its shard than make no
// crowd: those that rest do not count, and those of others neither.
func testCrowd(t *testing.T, s *suite) {
	var runs []state.State
	for range state.Crowd {
		runs = append(runs, s.made(t, "many", false))
	}
	last := s.made(t, "many", true)
	s.made(t, "few", false)
	_, eager := s.commitEagerly(t, s.mustClaim(t, runs[1].ID, 1), "eager")
	if !eager.Claimed || !eager.Crowded {
		t.Errorf("Commit with an eager claim in a crowd = %+v", eager)
	}
	if elsewhere, _, err := s.Create(t.Context(), state.NewRun{State: of(t, "many", 8), RedeliveryDelay: long}); err != nil || elsewhere.Crowded {
		t.Errorf("Create on another shard = crowded %v, %v", elsewhere.Crowded, err)
	}
	// It holds for runs that were there before, as soon as they come back.
	first := runs[0].ID
	if done := s.commit(t, s.mustClaim(t, first, 1), state.NextTurn, state.Entry{}); !done.Crowded {
		t.Errorf("Commit of a run in a crowd = %+v", done)
	}
	if d := s.sweepFor(t, last.ID, 0); !d.Turn || !d.Crowded {
		t.Errorf("Sweep of a run in a crowd = %+v", d)
	}
	// Who waits is in nobody's way, and is one of the crowd again when it is woken.
	version := s.wait(t, first, 2, "c1")
	s.made(t, "many", true)
	s.ended(t, runs[1].ID, 2)
	wake, err := s.Signal(t.Context(), first, resultSignal("s1", "c1"), long)
	if err != nil || !wake.Publish || !wake.Crowded {
		t.Errorf("Signal = %+v, %v", wake, err)
	}
	s.ended(t, first, version)
	if done := s.commit(t, s.mustClaim(t, last.ID, 1), state.NextTurn, state.Entry{}); done.Crowded {
		t.Errorf("Commit when the crowd is gone = %+v", done)
	}
	s.made(t, "many", true)
}

// What an eviction brings back, an abort wakes or a release returns was counted before.
func testCrowdCountsOnce(t *testing.T, s *suite) {
	run := s.made(t, "many", false)
	s.mustClaim(t, run.ID, 1)
	if due, err := s.Evict(t.Context(), "w1", 0); err != nil || len(due) != 1 || due[0].Crowded {
		t.Fatalf("Evict = %+v, %v", due, err)
	}
	if err := s.Release(t.Context(), s.mustClaim(t, run.ID, 1).Lease); err != nil {
		t.Fatal(err)
	}
	version := s.wait(t, run.ID, 1, "c1")
	for range 2 {
		if _, err := s.Abort(t.Context(), run.ID, "enough", 0); err != nil {
			t.Fatal(err)
		}
	}
	s.sweepFor(t, run.ID, 0)
	s.made(t, "many", false)
	other := s.made(t, "many", true)
	s.ended(t, run.ID, version)
	c := s.mustClaim(t, other.ID, 1)
	next := commitOf(c, move(t, c.State, state.NextTurn, state.Entry{}))
	for range 2 {
		if done, err := s.Commit(t.Context(), c.Lease, next); err != nil || done.Crowded {
			t.Errorf("Commit = %+v, %v", done, err)
		}
	}
	s.made(t, "many", true)
}
