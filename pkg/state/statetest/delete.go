package statetest

import (
	"errors"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run that has ended can be deleted, with all that is kept of it; one in flight cannot.
func testDelete(t *testing.T, s *suite) {
	run := newRun(t)
	run.Agent = "doomed"
	made, err := s.Create(t.Context(), state.NewRun{State: run, Key: "order 7", Fingerprint: "f", RedeliveryDelay: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var live *state.NotEndedError
	if err := s.Delete(t.Context(), run.ID); !errors.As(err, &live) || live.Status != state.Queued {
		t.Fatalf("Delete of a queued run = %v", err)
	}
	if _, err := s.Admit(t.Context(), run.ID, []state.RunID{newRun(t).ID}, 9); err != nil {
		t.Fatal(err)
	}
	s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
	kept := s.create(t)
	if err := s.Delete(t.Context(), made.State.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), run.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Delete again = %v", err)
	}
	if _, err := s.Load(t.Context(), run.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}
	if _, err := s.Log(t.Context(), run.ID, 0, 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Log = %v", err)
	}
	if c := s.claim(t, run.ID, 2); c.Outcome != state.ClaimMissing {
		t.Errorf("Claim = %s", c.Outcome)
	}
	if _, err := s.Signal(t.Context(), run.ID, state.Signal{ID: "late", Message: &state.Message{Role: state.RoleUser}}, time.Minute); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Signal = %v", err)
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "late"}, time.Minute); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Abort = %v", err)
	}
	for _, f := range []state.Filter{{}, {Tenant: run.Tenant}, {Agent: run.Agent}, {Status: state.Statuses()}} {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Runs {
			if r.ID == run.ID {
				t.Errorf("List(%+v) has the deleted run", f)
			}
		}
	}
	counts, err := s.Counts(t.Context())
	if err != nil || counts[state.Completed] != 0 || counts[state.Queued] != 1 {
		t.Errorf("Counts = %v, %v; want the run that was kept", counts, err)
	}
	if due, err := s.Sweep(t.Context(), 10, time.Minute, nil); err != nil || len(due) > 0 {
		t.Errorf("Sweep = %v, %v", due, err)
	}
	again := newRun(t)
	second, err := s.Create(t.Context(), state.NewRun{State: again, Key: "order 7", Fingerprint: "another", RedeliveryDelay: time.Minute})
	if err != nil || second.State.ID != again.ID {
		t.Errorf("the idempotency key gives %s, %v", second.State.ID, err)
	}
	if _, err := s.Load(t.Context(), kept.ID); err != nil {
		t.Error(err)
	}
}
