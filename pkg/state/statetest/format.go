package statetest

import (
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run of a newer format is left alone, and does not keep others from being served.
func testNewerFormat(t *testing.T, s *suite) {
	run := newRun(t)
	run.Format = state.Format + 1
	if made, err := s.Create(t.Context(), state.NewRun{State: run, Key: "k"}); err != nil || made.Existing {
		t.Fatalf("Create = existing %v, %v", made.Existing, err)
	}
	other := s.create(t)
	for range 2 {
		if c := s.claim(t, run.ID, 1); c.Outcome != state.ClaimNewer {
			t.Errorf("Claim = %+v, want newer", c)
		}
	}
	sig := state.Signal{ID: "s1", Message: &state.Message{Role: state.RoleUser}}
	asks := map[string]func() error{
		"Load":      func() error { _, err := s.Load(t.Context(), run.ID); return err },
		"Log":       func() error { _, err := s.Log(t.Context(), run.ID, 0, 0); return err },
		"Signal":    func() error { _, err := s.Signal(t.Context(), run.ID, sig, long); return err },
		"Abort":     func() error { _, err := s.Abort(t.Context(), run.ID, "enough", long); return err },
		"Finalized": func() error { return s.Finalized(t.Context(), run.ID, 1) },
		"Create again": func() error {
			_, err := s.Create(t.Context(), state.NewRun{State: run, Key: "k"})
			return err
		},
	}
	for what, ask := range asks {
		if err := ask(); !errors.Is(err, state.ErrFormat) {
			t.Errorf("%s = %v, want ErrFormat", what, err)
		}
	}
	if due, err := s.Sweep(t.Context(), 10, long); err != nil || len(due) != 0 {
		t.Errorf("Sweep = %v, %v, want nothing: the run is due for newer builds only", due, err)
	}
	page, err := s.List(t.Context(), state.Filter{})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != other.ID {
		t.Errorf("List = %v, %v, want the other run", page.Runs, err)
	}
	if c := s.claim(t, other.ID, 1); c.Outcome != state.Claimed || c.State.Format != state.Format {
		t.Errorf("Claim of the other run = %+v", c)
	}
	if due, err := s.Evict(t.Context(), "w1", long); err != nil || len(due) != 1 {
		t.Errorf("Evict = %v, %v, want the other run", due, err)
	}
}
