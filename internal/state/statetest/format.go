package statetest

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run in a newer format is not touched, and does not block others.
func testNewerFormat(t *testing.T, s *suite) {
	run := newRun(t)
	run.Format = state.Format + 1
	if made, err := s.Create(t.Context(), state.NewRun{State: run, Key: "k"}); err != nil || made.Existing {
		t.Fatalf("Create = existing %v, %v", made.Existing, err)
	}
	other := s.create(t)
	for range 2 {
		if c := s.claim(t, run.ID, 1); c.Outcome != state.ClaimUnsupportedFormat {
			t.Errorf("Claim = %+v, want newer", c)
		}
	}
	sig := state.Signal{ID: "s1", Message: &state.Message{Role: state.RoleUser}}
	asks := map[string]func() error{
		"Load":          func() error { _, err := s.Load(t.Context(), run.ID); return err },
		"LoadByKey":     func() error { _, err := s.LoadByKey(t.Context(), run.Tenant, "k", ""); return err },
		"Log":           func() error { _, err := s.Log(t.Context(), run.ID, 0, 0); return err },
		"LogPage":       func() error { _, err := s.LogPage(t.Context(), run.ID, 0, 1, 1); return err },
		"Signal":        func() error { _, err := s.Signal(t.Context(), run.ID, sig, long); return err },
		"Abort":         func() error { _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); return err },
		"MarkFinalized": func() error { return s.MarkFinalized(t.Context(), run.ID, 1) },
		"Seal":          func() error { _, err := s.Seal(t.Context(), run.ID, "t"); return err },
		"Unseal":        func() error { return s.Unseal(t.Context(), run.ID, "t") },
		"Delete":        func() error { return s.Delete(t.Context(), run.ID) },
		"Admit": func() error {
			_, err := s.Admit(t.Context(), run.ID, []state.RunID{run.ID.Plus(1)}, 9)
			return err
		},
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
	if counts, err := s.Counts(t.Context()); err != nil || counts[state.Queued] == 0 {
		t.Errorf("Counts next to a run in a newer format = %v, %v; want the other run counted, with or without the newer one", counts, err)
	}
	if due, err := s.Sweep(t.Context(), 10, long, nil); err != nil || len(due) != 0 {
		t.Errorf("Sweep next to a run in a newer format = %v, %v; want no runs, since only newer builds may continue this one", due, err)
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
	s.Variables = json.RawMessage(`{"who":"Ada"}`)
	s.Limits = state.Limits{MaxTurns: 9, OutputTokens: 8, CostUSD: 7, DeadlineAt: future, WarnAt: 0.5}
	s.Stream, s.ReplyTo, s.TraceSpan = "turns", "reply.to", "00-trace"
	s.LoopState.Data = json.RawMessage(`{"phase":"final"}`)
	return s
}

// Commits keep all fields that are fixed at submission, in every format that the caller sets: a store writes no
// format that it cannot read.
func testFormats(t *testing.T, s *suite) {
	run := full(t)
	s.store(t, run)
	version := int64(1)
	for _, write := range []int{0, state.Format, state.Format + 1} {
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
		for what, got := range map[string]state.State{"Load": loaded, "List": page.Runs[0], "Claim": *c.State} {
			if got.Format < 1 || got.Format > state.Format {
				t.Errorf("after SetFormat(%d) %s returns format %d, want 1 to %d", write, what, got.Format, state.Format)
			}
			// Turns change these fields.
			same := run
			same.Format, same.Status, same.Transition, same.Version, same.UpdatedAt, same.StartedAt, same.LogBytes = got.Format, got.Status, got.Transition, version, got.UpdatedAt, got.StartedAt, got.LogBytes
			if diff := cmp.Diff(encode(t, same), encode(t, got)); diff != "" {
				t.Errorf("%s after SetFormat(%d):\n%s", what, write, diff)
			}
		}
	}
}

// A store keeps the state of a loop as the loop encoded it.
func testLoopState(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	next := move(t, *c.State, state.NextTurn, state.Entry{})
	next.LoopState = state.LoopState{Version: 3, Data: json.RawMessage(`{"plan":["a","b"]}`)}
	s.commitState(t, c, next)
	got, err := s.Load(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(next.LoopState, got.LoopState); diff != "" {
		t.Errorf("Load returns another loop state:\n%s", diff)
	}
	if c := s.mustClaim(t, run.ID, 2); cmp.Diff(next.LoopState, c.State.LoopState) != "" {
		t.Errorf("Claim returns the loop state %+v", c.State.LoopState)
	}
}
