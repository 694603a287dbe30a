package upkeep_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A worker dies after it has committed the end of a run, and a message continues the run before it is
// finalized: the webhook gets both ends.
func TestEveryEndIsAnnounced(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	f := upkeep.NewFinalizer(store, membus.New(), upkeep.FinalizerConfig{Clock: &clock.Clock{}, Log: slog.New(slog.DiscardHandler)})
	run := state.State{
		ID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAA", Tenant: "acme", Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal,
		Webhook: &state.Webhook{URL: "https://example.com", Secret: state.SecretReferences{"secret://X"}},
	}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("go")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	// turn changes the run, and returns the number of its entries.
	turn := func(why state.Reason, change func(*state.State)) int64 {
		was, err := store.Load(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		c, err := store.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: was.Version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
		if err != nil || c.Outcome != state.Claimed {
			t.Fatal(c.Outcome, err)
		}
		next := *c.State
		change(&next)
		if next, err = next.Move(why, state.Entry{At: state.At(time.Now())}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(t.Context(), c.Lease, state.Commit{ID: fmt.Sprint(was.Version), State: &next, From: c.State.LogLen(), Consumed: len(c.Signals), RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		return next.LogLen()
	}
	first := turn(state.EndCompleted, func(s *state.State) { s.Turn = 1 })
	say := state.UserText("go on")
	if _, err := store.Signal(t.Context(), run.ID, state.Signal{ID: "s", Message: &say}, time.Hour); err != nil {
		t.Fatal(err)
	}
	turn(state.UserMessage, func(s *state.State) { s.TurnBase = s.Turn })
	second := turn(state.EndCompleted, func(s *state.State) { s.Turn = 2 })
	if err := f.FinalizeRun(t.Context(), run.ID, 0); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []int64{first, second} {
		if _, err := store.Timer(t.Context(), webhook.Timer(run, seq)); err != nil {
			t.Errorf("the end at entry %d is not announced: %v", seq, err)
		}
	}
	// A later end announces only itself.
	if err := store.PutTimer(t.Context(), webhook.Timer(run, first), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := f.FinalizeRun(t.Context(), run.ID, first); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Timer(t.Context(), webhook.Timer(run, first)); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("an end that was finalized is announced again: %v", err)
	}
}
