package statetest

import (
	"context"
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

// Lagging is an optional interface of a store under test that consists of several processes. Each of them may learn
// late which tenants are noisy: CatchUpAll brings all of them up to date.
type Lagging interface {
	CatchUpAll(ctx context.Context)
}

// catchUp waits until the mark of noisy tenants, a hint, is up to date.
func (s *suite) catchUp(t *testing.T) {
	t.Helper()
	if several, ok := s.RunStore.(Lagging); ok {
		several.CatchUpAll(t.Context())
	}
}

// created stores a new run of a tenant on shard 7, where it is noisy or not.
func (s *suite) created(t *testing.T, tenant string, noisy bool) state.State {
	t.Helper()
	run := of(t, tenant, 7)
	s.catchUp(t)
	made, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: 0})
	if err != nil || made.Existing || made.Noisy != noisy {
		t.Fatalf("Create of %s = noisy %v, existing %v, %v; want noisy %v", tenant, made.Noisy, made.Existing, err, noisy)
	}
	return run
}

// ended ends a run.
func (s *suite) ended(t *testing.T, id state.RunID, version int64) {
	t.Helper()
	s.catchUp(t)
	if done := s.commit(t, s.mustClaim(t, id, version), state.EndCompleted, state.Entry{}); done.Noisy {
		t.Errorf("Commit of an end = %+v", done)
	}
}

// A tenant is noisy while more of its runs are in flight on a shard than state.NoisyAbove. Resting runs and
// those of other tenants do not count.
func testNoisy(t *testing.T, s *suite) {
	var runs []state.State
	for range state.NoisyAbove {
		runs = append(runs, s.created(t, "many", false))
	}
	last := s.created(t, "many", true)
	s.created(t, "few", false)
	s.catchUp(t)
	_, eager := s.commitEagerly(t, s.mustClaim(t, runs[1].ID, 1), "eager")
	if !eager.Claimed || !eager.Noisy {
		t.Errorf("Commit of a noisy tenant with an eager claim = %+v, want Claimed and Noisy true", eager)
	}
	if elsewhere, err := s.Create(t.Context(), state.NewRun{State: of(t, "many", 8), RedeliveryDelay: long}); err != nil || elsewhere.Noisy {
		t.Errorf("Create on another shard = noisy %v, %v", elsewhere.Noisy, err)
	}
	// The mark also applies to earlier runs, as soon as they are queued again.
	first := runs[0].ID
	s.catchUp(t)
	if done := s.commit(t, s.mustClaim(t, first, 1), state.NextTurn, state.Entry{}); !done.Noisy {
		t.Errorf("Commit of a noisy tenant = %+v", done)
	}
	if d := s.sweepFor(t, last.ID, 0); !d.NeedsTurn || !d.Noisy {
		t.Errorf("Sweep of a noisy tenant = %+v", d)
	}
	// A waiting run does not count, and counts again when it is woken.
	version := s.wait(t, first, 2, "c1")
	s.created(t, "many", true)
	s.ended(t, runs[1].ID, 2)
	s.catchUp(t)
	wake, err := s.Signal(t.Context(), first, resultSignal("s1", "c1"), long)
	if err != nil || !wake.Publish || !wake.Noisy {
		t.Errorf("Signal = %+v, %v", wake, err)
	}
	s.ended(t, first, version)
	s.catchUp(t)
	if done := s.commit(t, s.mustClaim(t, last.ID, 1), state.NextTurn, state.Entry{}); done.Noisy {
		t.Errorf("Commit when the tenant is no longer noisy = %+v, want Noisy false", done)
	}
	s.created(t, "many", true)
}

// Runs that an eviction requeues, an abort wakes or a release returns were counted before.
func testNoisyCountsOnce(t *testing.T, s *suite) {
	run := s.created(t, "many", false)
	s.mustClaim(t, run.ID, 1)
	if due, err := s.Evict(t.Context(), "w1", 100, 0); err != nil || len(due) != 1 || due[0].Noisy {
		t.Fatalf("Evict = %+v, %v", due, err)
	}
	if err := s.Release(t.Context(), s.mustClaim(t, run.ID, 1).Lease, 0); err != nil {
		t.Fatal(err)
	}
	version := s.wait(t, run.ID, 1, "c1")
	s.catchUp(t)
	for range 2 {
		if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.catchUp(t)
	s.sweepFor(t, run.ID, 0)
	s.created(t, "many", false)
	other := s.created(t, "many", true)
	s.ended(t, run.ID, version)
	c := s.mustClaim(t, other.ID, 1)
	s.catchUp(t)
	next := commitOf(c, move(t, *c.State, state.NextTurn, state.Entry{}))
	for range 2 {
		if done, err := s.Commit(t.Context(), c.Lease, next); err != nil || done.Noisy {
			t.Errorf("Commit = %+v, %v", done, err)
		}
	}
	s.created(t, "many", true)
}
