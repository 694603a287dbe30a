package statetest

import (
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// commitEagerly commits a turn and claims the next.
func (s *suite) commitEagerly(t *testing.T, c *state.Claim, token string) (state.Lease, state.Committed) {
	t.Helper()
	commit := commitOf(c, move(t, *c.State, state.NextTurn, state.Entry{}))
	commit.EagerClaim = token
	done, err := s.Commit(t.Context(), c.Lease, commit)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	l := c.Lease
	l.Token, l.Version = token, done.Version
	return l, done
}

// A turn that a commit claims belongs to its worker like any claimed turn.
func testEager(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	l, done := s.commitEagerly(t, c, "eager")
	if !done.Claimed || done.Status != state.Queued || done.Version != 2 {
		t.Fatalf("Commit = %+v, want version 2 queued and claimed", done)
	}
	if got, _ := s.Load(t.Context(), run.ID); got.Status != state.Running {
		t.Errorf("an eagerly claimed run is %s", got.Status)
	}
	s.notDue(t, run.ID)
	if owners, err := s.Owners(t.Context()); err != nil || len(owners) != 1 || owners[0] != l.Worker {
		t.Errorf("Owners = %v, %v; want %s", owners, err, l.Worker)
	}
	q := s.request(run.ID, 2, l.Worker)
	q.Token = l.Token
	late := q
	late.Version = 1
	if c, err := s.Claim(t.Context(), late); err != nil || c.Outcome != state.ClaimStale || c.State != nil {
		t.Errorf("Claim of an earlier version with the token = %s with the state %v, %v; want %s without one", c.Outcome, c.State, err, state.ClaimStale)
	}
	again, err := s.Claim(t.Context(), q)
	if err != nil || again.Outcome != state.Claimed || again.Attempt != 1 || again.Base != 2 || again.State.LogLen() != 2 {
		t.Fatalf("Claim with the token = %s, attempt %d, %d of %d entries, %v", again.Outcome, again.Attempt, again.Base, again.State.LogLen(), err)
	}
	if _, err := s.Renew(t.Context(), l, long, long); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if _, err := s.Record(t.Context(), l, state.Record{From: 2, Entries: []state.Entry{response(1, "c1")}, Started: []string{"c1"}}); err != nil {
		t.Errorf("Record: %v", err)
	}
	_, done = s.commitEagerly(t, s.mustRepeat(t, q), "eager again")
	if !done.Claimed || done.Version != 3 {
		t.Errorf("Commit = %+v, want version 3 claimed", done)
	}
}

// mustRepeat claims again with the same token.
func (s *suite) mustRepeat(t *testing.T, q state.ClaimRequest) *state.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), q)
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	return c
}

// Another worker with the message of an eagerly claimed turn may claim the turn, as the first attempt, unless the
// eager worker has renewed its lease or called Record by then. Writes of the eager worker are fenced afterwards (I8).
func testEagerTaken(t *testing.T, s *suite) {
	take := func(run state.RunID, version int64) *state.Claim {
		c, err := s.Claim(t.Context(), s.request(run, version, "other"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	touch := map[string]func(l state.Lease) error{
		"nothing": nil,
		"renewed": func(l state.Lease) error { _, err := s.Renew(t.Context(), l, long, long); return err },
		"recorded": func(l state.Lease) error {
			_, err := s.Record(t.Context(), l, state.Record{From: 2, Entries: []state.Entry{response(1, "c1")}})
			return err
		},
		// A turn that begins with approved calls writes start marks first.
		"started": func(l state.Lease) error {
			_, err := s.Record(t.Context(), l, state.Record{From: 2, Started: []string{"c1"}})
			return err
		},
		// Before calls that a person has approved, there is nothing to write.
		"recorded nothing": func(l state.Lease) error { _, err := s.Record(t.Context(), l, state.Record{From: 2}); return err },
	}
	for name, touch := range touch {
		run := s.create(t)
		l, _ := s.commitEagerly(t, s.mustClaim(t, run.ID, 1), "eager "+name)
		if touch != nil {
			if err := touch(l); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if c := take(run.ID, 2); c.Outcome != state.ClaimBusy {
				t.Errorf("%s: still taken: %s", name, c.Outcome)
			}
			continue
		}
		c := take(run.ID, 2)
		if c.Outcome != state.Claimed || c.Attempt != 1 || c.State.LogLen() != 2 {
			t.Errorf("taken: %s, attempt %d, %d entries", c.Outcome, c.Attempt, c.State.LogLen())
		}
		if _, err := s.Record(t.Context(), l, state.Record{From: 2, Started: []string{"c1"}}); !errors.Is(err, state.ErrFenced) {
			t.Errorf("Record of the eager claim = %v, want %v", err, state.ErrFenced)
		}
		if c := take(run.ID, 2); c.Outcome != state.ClaimBusy {
			t.Errorf("taken a second time: %s", c.Outcome)
		}
	}
}

// An eager claim does not skip pending input (I7): signals and aborts, waits, ends.
func testEagerNot(t *testing.T, s *suite) {
	for name, before := range map[string]func(state.RunID) error{
		"abort": func(id state.RunID) error {
			_, err := s.Abort(t.Context(), id, state.Abort{Reason: "enough"}, long)
			return err
		},
		"signal": func(id state.RunID) error {
			_, err := s.Signal(t.Context(), id, message("m1", "wait"), long)
			return err
		},
	} {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		if err := before(run.ID); err != nil {
			t.Fatal(err)
		}
		if _, done := s.commitEagerly(t, c, "eager "+name); done.Claimed || done.Status != state.Queued {
			t.Errorf("%s: Commit = %+v, want queued and not claimed", name, done)
		}
		if c := s.mustClaim(t, run.ID, 2); c.Attempt != 1 || (c.Abort == nil) == (len(c.Signals) == 0) {
			t.Errorf("%s: claim shows abort %v and %d signals", name, c.Abort, len(c.Signals))
		}
	}
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	commit := commitOf(c, move(t, *c.State, state.EndCompleted, state.Entry{}))
	commit.EagerClaim = "eager"
	if done, err := s.Commit(t.Context(), c.Lease, commit); err != nil || done.Claimed || done.Status != state.Completed {
		t.Errorf("Commit of an end = %+v, %v", done, err)
	}
}

// The message of an eagerly claimed turn may be far back in its queue, or lost. If the run has a pending abort,
// the sweeper's message overtakes it (I7).
func testEagerAbort(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	commit := commitOf(c, move(t, *c.State, state.NextTurn, state.Entry{}))
	commit.EagerClaim, commit.RedeliveryDelay = "eager", short
	if done, err := s.Commit(t.Context(), c.Lease, commit); err != nil || !done.Claimed {
		t.Fatalf("Commit = %+v, %v", done, err)
	}
	if w, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); err != nil || w.Publish || w.Version != 2 {
		t.Fatalf("Abort = %+v, %v", w, err)
	}
	if d := s.sweepFor(t, run.ID, long); !d.NeedsTurn || d.Priority != state.High {
		t.Errorf("Sweep = %+v, want a turn of high priority", d)
	}
	s.mustClaim(t, run.ID, 2)
	due, err := s.Evict(t.Context(), "w1", 100, long)
	if err != nil || len(due) != 1 || !due[0].NeedsTurn || due[0].Priority != state.High {
		t.Errorf("Evict = %+v, %v; want a turn of high priority", due, err)
	}
}

// A store may serve an eager claim from memory, without a later abort. The first write to the journal reports
// the abort (I7).
func testEagerAbortOnRecord(t *testing.T, s *suite) {
	run := s.create(t)
	eager, done := s.commitEagerly(t, s.mustClaim(t, run.ID, 1), "eager")
	if !done.Claimed {
		t.Fatal("not claimed")
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); err != nil {
		t.Fatal(err)
	}
	q := s.request(run.ID, 2, eager.Worker)
	q.Token = eager.Token
	c, err := s.Claim(t.Context(), q)
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	abort, err := s.Record(t.Context(), c.Lease, state.Record{From: c.State.LogLen(), Entries: []state.Entry{response(1, "c1")}, Started: []string{"c1"}})
	if err != nil || abort == nil || abort.Reason != "enough" {
		t.Errorf("Record = %+v, %v; want the abort", abort, err)
	}
}

// A repeated commit reports whether the turn is still claimed.
func testEagerRepeated(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	if _, done := s.commitEagerly(t, c, "eager"); !done.Claimed {
		t.Fatal("not claimed")
	}
	if _, done := s.commitEagerly(t, c, "eager"); !done.Claimed || done.Version != 2 {
		t.Errorf("repeated: %+v, want version 2 claimed", done)
	}
	if taken, err := s.Claim(t.Context(), s.request(run.ID, 2, "other")); err != nil || taken.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", taken.Outcome, err)
	}
	if _, done := s.commitEagerly(t, c, "eager"); done.Claimed || done.Version != 2 {
		t.Errorf("Commit, repeated after another worker claimed the next turn = %+v, want version 2, not claimed", done)
	}
}

// The message of an eagerly claimed turn may be lost like any other, and its worker may die (I2).
func testEagerLost(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	commit := commitOf(c, move(t, *c.State, state.NextTurn, state.Entry{}))
	commit.EagerClaim, commit.RedeliveryDelay = "eager", short
	if done, err := s.Commit(t.Context(), c.Lease, commit); err != nil || !done.Claimed {
		t.Fatalf("Commit = %+v, %v", done, err)
	}
	if d := s.sweepFor(t, run.ID, long); !d.NeedsTurn || d.Version != 2 {
		t.Errorf("Sweep = %+v, want the turn after version 2", d)
	}
	if c := s.mustClaim(t, run.ID, 2); c.Attempt != 2 {
		t.Errorf("attempt %d, want 2: the first may have begun", c.Attempt)
	}

	// A claim detects the same once the lease has ended, without a sweep.
	run = s.create(t)
	c = s.mustClaim(t, run.ID, 1)
	commit = commitOf(c, move(t, *c.State, state.NextTurn, state.Entry{}))
	commit.EagerClaim, commit.RedeliveryDelay = "eager in the past", -long // clocks of processes differ
	if done, err := s.Commit(t.Context(), c.Lease, commit); err != nil || !done.Claimed {
		t.Fatalf("Commit = %+v, %v", done, err)
	}
	if c := s.mustClaim(t, run.ID, 2); c.Attempt != 2 || c.TakenOver.IsZero() {
		t.Errorf("Claim of an eagerly claimed turn after its lease ended = attempt %d, TakenOver %s; want attempt 2 and a time", c.Attempt, c.TakenOver)
	}

	run = s.create(t)
	l, _ := s.commitEagerly(t, s.mustClaim(t, run.ID, 1), "eager too")
	due, err := s.Evict(t.Context(), l.Worker, 100, long)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, d := range due {
		found = found || d.Run == run.ID && d.NeedsTurn && d.Version == 2
	}
	if !found {
		t.Errorf("Evict = %+v, want run %s", due, run.ID)
	}
}

// An eager claim that is released counts no attempt.
func testEagerReleased(t *testing.T, s *suite) {
	run := s.create(t)
	l, _ := s.commitEagerly(t, s.mustClaim(t, run.ID, 1), "eager")
	if err := s.Release(t.Context(), l, 0); err != nil {
		t.Fatalf("Release: %v", err)
	}
	if got, _ := s.Load(t.Context(), run.ID); got.Status != state.Queued {
		t.Errorf("the run is %s, want %s", got.Status, state.Queued)
	}
	if c := s.mustClaim(t, run.ID, 2); c.Attempt != 1 {
		t.Errorf("attempt %d, want 1", c.Attempt)
	}
}
