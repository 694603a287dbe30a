package statetest

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The record of a lost run is an ended run: it can be read, is in its tenant's lists, is due until it is
// finalized, and never replaces an existing run.
func testLost(t *testing.T, s *suite) {
	have := s.create(t)
	lost, err := have.Lost(created, "why")
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Create(t.Context(), state.NewRun{State: lost, RedeliveryDelay: long})
	if err != nil || !made.Existing || made.State.Status != state.Queued {
		t.Errorf("the record of an existing run = %+v, %v", made, err)
	}
	known := state.State{ID: newRun(t).ID, Tenant: "acme"}
	if lost, err = known.Lost(created, "why"); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		if made, err := s.Create(t.Context(), state.NewRun{State: lost, RedeliveryDelay: time.Millisecond}); err != nil || made.Existing != again {
			t.Fatalf("Create of the record = %+v, %v", made, err)
		}
	}
	st, err := s.Load(t.Context(), lost.ID)
	if err != nil || st.Status != state.Failed || st.Transition.Reason != state.EndLost || st.Version != 1 || st.Error == nil || st.CreatedAt.IsZero() {
		t.Errorf("the run is %+v, %v", st, err)
	}
	c, err := s.Claim(t.Context(), s.request(lost.ID, 6, "w1"))
	if err != nil || c.Outcome != state.ClaimTerminal {
		t.Errorf("Claim = %s, %v", c.Outcome, err)
	}
	s.catchUp(t)
	page, err := s.List(t.Context(), state.Filter{Tenant: "acme", Status: []state.Status{state.Failed}})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != lost.ID {
		t.Errorf("the list has %d runs, %v", len(page.Runs), err)
	}
	if d := s.sweepFor(t, lost.ID, time.Millisecond); !d.Finalize {
		t.Errorf("due is %+v", d)
	}
	if err := s.MarkFinalized(t.Context(), lost.ID, lost.LogLen()); err != nil {
		t.Fatal(err)
	}
}
