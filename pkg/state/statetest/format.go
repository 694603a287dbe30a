package statetest

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		"Abort":     func() error { _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); return err },
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
	if due, err := s.Sweep(t.Context(), 10, long, nil); err != nil || len(due) != 0 {
		t.Errorf("Sweep = %v, %v, want nothing: the run is due for newer builds only", due, err)
	}
	page, err := s.List(t.Context(), state.Filter{})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != other.ID {
		t.Errorf("List = %v, %v, want the other run", page.Runs, err)
	}
	if c := s.claim(t, other.ID, 1); c.Outcome != state.Claimed || c.State.Format != state.Format {
		t.Errorf("Claim of the other run = %+v", c)
	}
	if due, err := s.Evict(t.Context(), "w1", 100, long); err != nil || len(due) != 1 {
		t.Errorf("Evict = %v, %v, want the other run", due, err)
	}
}

// full returns a run with something in each field that is fixed at submission.
func full(t *testing.T) state.State {
	t.Helper()
	s := newRun(t)
	confidence, cost := 0.5, state.MicroUSD(7)
	s.Facts.Confidence = &confidence
	s.Usage.CostUSD = &cost
	s.Metadata = map[string]string{"k": "v"}
	s.Parent = &state.Parent{RunID: s.ID.Plus(-1), CallID: "c", Depth: 1}
	s.Batch = &state.Batch{Index: 1, Size: 2, MaxParallel: 1}
	s.OutputSchema = json.RawMessage(`{"type":"object"}`)
	s.Limits = state.Limits{MaxTurns: 9, OutputTokens: 8, CostUSD: 7, DeadlineAt: future, WarnAt: 0.5}
	s.Stream, s.ReplyTo, s.TraceSpan = "turns", "reply.to", "00-trace"
	s.LoopState.Data = json.RawMessage(`{"phase":"final"}`)
	return s
}

// A store writes the old format until it is told better. A run is then taken to the new
// one by its next commit, without a loss, and never back.
func testFormats(t *testing.T, s *suite) {
	s.SetFormat(0)
	run := full(t)
	s.store(t, run)
	version := int64(1)
	turn := func(write, want int) {
		t.Helper()
		s.SetFormat(write)
		c := s.mustClaim(t, run.ID, version)
		version = s.commit(t, c, state.NextTurn, state.Entry{}).Version
		loaded, err := s.Load(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.List(t.Context(), state.Filter{Batch: run.BatchID()})
		if err != nil || len(page.Runs) != 1 {
			t.Fatalf("List = %d runs, %v", len(page.Runs), err)
		}
		c = s.mustClaim(t, run.ID, version)
		if err := s.Release(t.Context(), c.Lease, 0); err != nil {
			t.Fatal(err)
		}
		for what, got := range map[string]state.State{"Load": loaded, "List": page.Runs[0], "Claim": c.State} {
			if got.Format != want {
				t.Errorf("%s tells of format %d, want %d", what, got.Format, want)
			}
			// What the turns have changed is not what this is about.
			same := run
			same.Format, same.Status, same.Transition, same.Version, same.UpdatedAt, same.StartedAt = want, got.Status, got.Transition, version, got.UpdatedAt, got.StartedAt
			if diff := cmp.Diff(encode(t, same), encode(t, got)); diff != "" {
				t.Errorf("%s after a commit in format %d:\n%s", what, want, diff)
			}
		}
	}
	if got, err := s.Load(t.Context(), run.ID); err != nil || got.Format != state.OldFormat {
		t.Errorf("a store that was told nothing writes format %d, %v", got.Format, err)
	}
	turn(state.OldFormat, state.OldFormat)
	turn(state.Format, state.Format)
	turn(state.Format, state.Format)
	turn(state.OldFormat, state.Format)
	turn(state.Format+1, state.Format) // nobody writes what it does not know
}

// What the old format cannot hold is written in the new one: an older build leaves the
// run alone then, and does not lose it.
func testFormatHasCapacity(t *testing.T, s *suite) {
	s.SetFormat(state.OldFormat)
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	next := move(t, c.State, state.NextTurn, state.Entry{})
	next.LoopState = state.LoopState{Version: 3, Data: json.RawMessage(`{"plan":["a","b"]}`)}
	s.commitState(t, c, next)
	got, err := s.Load(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(next.LoopState, got.LoopState); diff != "" || got.Format != 2 {
		t.Errorf("the loop keeps something else, in format %d:\n%s", got.Format, diff)
	}
	if c := s.mustClaim(t, run.ID, 2); cmp.Diff(next.LoopState, c.State.LoopState) != "" {
		t.Errorf("Claim gives %+v", c.State.LoopState)
	}
}
