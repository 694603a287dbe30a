package service

import (
	"errors"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A rollback that a run has accepted gets the same result when its sender repeats it, although the run has started a
// call since then. Another rollback is refused.
func TestRepeatedRollback(t *testing.T) {
	t.Parallel()
	s := newTaking(t, &orders{})
	run, err := s.Submissions.Submit(t.Context(), s.c, Submission{Request: api.SubmitRequest{Agent: "a", Input: api.Text("hi")}, Body: []byte(`{}`), Source: "http"})
	if err != nil {
		t.Fatal(err)
	}
	send := func(id string) error {
		_, err := s.Signals.Send(t.Context(), s.c, Sending{Run: string(run.ID), Request: api.SignalRequest{SignalID: id, Message: api.Text("more"), Mode: api.ModeRollback}})
		return err
	}
	if err := send("first"); err != nil {
		t.Fatal(err)
	}
	store := s.Signals.store
	c, err := store.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: run.Version, Token: "t", Worker: "w", Lease: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	c.State.Open = []state.OpenCall{{ID: "c1", Name: "pay", Arguments: "{}", Needs: state.NeedAsync}}
	next, err := c.State.Move(state.WaitingTool, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen(), Consumed: 1}); err != nil {
		t.Fatal(err)
	}
	err = send("second")
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeEffectsStarted {
		t.Errorf("another rollback gets %v, want %s", err, api.CodeEffectsStarted)
	}
	if err := send("first"); err != nil {
		t.Errorf("the first rollback, sent again, gets %v", err)
	}
}
