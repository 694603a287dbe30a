package service

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// full is a store that accepts no signals.
type full struct{ state.Store }

func (full) Signal(context.Context, state.RunID, state.Signal, time.Duration) (state.Wake, error) {
	return state.Wake{}, errors.New("no memory left")
}

// A message for a run that is busy or being deleted, or that the store does not accept, is delivered again, however
// often, until the run accepts it. One for a run that does not exist becomes a dead letter.
func TestSignalsOfATriggerWait(t *testing.T) {
	t.Parallel()
	s := newTaking(t, &orders{})
	store := s.Triggers.store
	run, err := s.Submissions.Submit(t.Context(), s.c, Submission{Request: api.SubmitRequest{Agent: "a", Input: api.Text("hi")}, Body: []byte(`{}`), Source: "http"})
	if err != nil {
		t.Fatal(err)
	}
	r := s.runner(api.TriggerSettings{Signal: &api.HookSignal{Run: "event.run", Message: "'more'", Mode: api.ModeReject}})
	step := func(what string, id state.RunID, want string) {
		t.Helper()
		m := seen{id: "ORDERS:1:1", subject: "orders", body: fmt.Sprintf(`{"run": %q}`, id), deliveries: 100}
		if r.take(t.Context(), &m); m.became != want {
			t.Errorf("%s: the message was %s, want %s", what, m.became, want)
		}
	}
	step("queued", run.ID, "again")
	c, err := store.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: run.Version, Token: "t", Worker: "w", Lease: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	step("running", run.ID, "again")
	ended, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &ended, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Seal(t.Context(), run.ID, "d"); err != nil {
		t.Fatal(err)
	}
	step("being deleted", run.ID, "again")
	if err := store.Unseal(t.Context(), run.ID, "d"); err != nil {
		t.Fatal(err)
	}
	s.Triggers.store = full{store}
	step("not accepted by the store", run.ID, "again")
	s.Triggers.store = store
	step("ended", run.ID, "acknowledged")
	step("missing", state.FirstIDAt(time.Now()), "terminated run_not_found")
}
