package statetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A commit with RequireInboxConsumed neither ends a run nor changes anything while the inbox holds
// signals that the turn has not consumed.
func testRequireInboxConsumed(t *testing.T, s *suite) {
	end := func(c *state.Claim, r state.Reason, signals int) (state.Committed, error) {
		done := commitOf(c, move(t, *c.State, r, state.Entry{}))
		done.RequireInboxConsumed, done.Consumed = true, signals
		return s.Commit(t.Context(), c.Lease, done)
	}
	wantEnd := func(t *testing.T, id state.RunID, done state.Committed, err error, want state.Status) {
		t.Helper()
		if err != nil || done.Status != want {
			t.Errorf("Commit = %+v, %v; want the run %s", done, err, want)
		}
		if got, _ := s.Load(t.Context(), id); got.Status != want {
			t.Errorf("the run is %s, want %s", got.Status, want)
		}
	}

	t.Run("a message", func(t *testing.T) {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		s.mustSignal(t, run.ID, message("m1", "wait"))
		if done, err := end(c, state.EndCompleted, 0); !errors.Is(err, state.ErrUnconsumedSignals) {
			t.Fatalf("Commit = %+v, %v; want ErrUnconsumedSignals", done, err)
		}
		log, err := s.Log(t.Context(), run.ID, 0, 0)
		if err != nil || len(log) != 1 {
			t.Errorf("the log has %d entries, %v; want it unchanged", len(log), err)
		}
		// The lease is still valid, and repeating its claim returns the new signals.
		again, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: c.Lease.Token, Worker: "w1", Lease: long, RedeliveryDelay: long})
		if err != nil || again.Outcome != state.Claimed || len(again.Signals) != 1 || again.Attempt != 1 {
			t.Fatalf("Claim again = %+v, %v", again, err)
		}
		done, err := end(c, state.EndCompleted, 1)
		wantEnd(t, run.ID, done, err, state.Completed)
	})

	t.Run("a result", func(t *testing.T) {
		run := s.create(t)
		v := s.wait(t, run.ID, 1, "c1", "c2")
		s.mustSignal(t, run.ID, resultSignal("s1", "c1"))
		c := s.mustClaim(t, run.ID, v)
		s.mustSignal(t, run.ID, resultSignal("s2", "c2"))
		if done, err := end(c, state.EndExpired, 1); !errors.Is(err, state.ErrUnconsumedSignals) {
			t.Errorf("Commit = %+v, %v; want ErrUnconsumedSignals", done, err)
		}
	})

	t.Run("messages around an abort", func(t *testing.T) {
		for _, reason := range []state.Reason{state.EndAbortedStreaming, state.EndCompleted} {
			run := s.create(t)
			c := s.mustClaim(t, run.ID, 1)
			s.mustSignal(t, run.ID, message("m1", "before"))
			if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); err != nil {
				t.Fatal(err)
			}
			s.mustSignal(t, run.ID, message("m2", "after"))
			if done, err := end(c, reason, 0); !errors.Is(err, state.ErrUnconsumedSignals) {
				t.Errorf("Commit that ends an aborted run as %s, with a message from before the abort in its inbox = %+v, %v; want ErrUnconsumedSignals", reason, done, err)
			}
			done, err := end(c, reason, 1)
			wantEnd(t, run.ID, done, err, state.Queued)
			if c := s.mustClaim(t, run.ID, 2); len(c.Signals) != 1 || c.Signals[0].ID != "m2" {
				t.Errorf("%s: the run continues with %s", reason, encode(t, c.Signals))
			}
		}
	})

	t.Run("a run that goes on", func(t *testing.T) {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		s.mustSignal(t, run.ID, message("m1", "wait"))
		done, err := end(c, state.NextTurn, 0)
		wantEnd(t, run.ID, done, err, state.Queued)
	})
}

func (s *suite) mustSignal(t *testing.T, id state.RunID, sig state.Signal) {
	t.Helper()
	if _, err := s.Signal(t.Context(), id, sig, long); err != nil {
		t.Fatalf("Signal %s: %v", sig.ID, err)
	}
}

// A signal under a known id counts once. If both have fingerprints, these must be equal.
func testSignalFingerprint(t *testing.T, s *suite) {
	run := s.create(t)
	send := func(id, fingerprint string) (state.Wake, error) {
		sig := message(id, "hello")
		sig.Fingerprint = fingerprint
		return s.Signal(t.Context(), run.ID, sig, long)
	}
	for i, step := range []struct {
		id, fingerprint string
		conflict        bool
		signals         int
	}{
		{"a", "one", false, 1}, {"a", "one", false, 1}, {"a", "two", true, 1}, {"a", "", false, 1},
		{"b", "", false, 2}, {"b", "two", false, 2}, {"b", "one", false, 2},
		{"c", "two", false, 3}, {"c", "two", false, 3}, {"c", "one", true, 3}, {"a", "two", true, 3}, {"a", "one", false, 3},
	} {
		if _, err := send(step.id, step.fingerprint); errors.Is(err, state.ErrIdempotencyConflict) != step.conflict || err != nil && !step.conflict {
			t.Errorf("step %d: %v", i+1, err)
		}
		c := s.mustClaim(t, run.ID, 1)
		if len(c.Signals) != step.signals {
			t.Errorf("step %d: %d signals, want %d", i+1, len(c.Signals), step.signals)
		}
		if err := s.Release(t.Context(), c.Lease, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// ManySignals tests that a store keeps the ids and fingerprints of a run's last thousand signals only. It is
// slow if a run is one value.
func ManySignals(t *testing.T, store state.RunStore) {
	t.Helper()
	s := &suite{RunStore: store}
	run := s.create(t)
	send := func(id, fingerprint string) (state.Wake, error) {
		sig := message(id, "hello")
		sig.Fingerprint = fingerprint
		return s.Signal(t.Context(), run.ID, sig, long)
	}
	for n := range 1001 {
		if _, err := send(fmt.Sprint("many", n), "one"); err != nil {
			t.Fatal(err)
		}
		if n%100 == 0 {
			s.commit(t, s.mustClaim(t, run.ID, int64(1+n/100)), state.UserMessage, state.Entry{})
		}
	}
	if _, err := send("many0", "two"); err != nil {
		t.Errorf("a dropped id: %v", err)
	}
	if _, err := send("many2", "two"); !errors.Is(err, state.ErrIdempotencyConflict) {
		t.Errorf("a kept id: %v", err)
	}
}
