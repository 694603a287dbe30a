package gateway_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// fainting is a store that stops answering about a run once it has stored a signal.
type fainting struct {
	state.Store

	taken atomic.Bool
}

func (s *fainting) Signal(ctx context.Context, id state.RunID, sig state.Signal, d time.Duration) (state.Wake, error) {
	defer s.taken.Store(true)
	return s.Store.Signal(ctx, id, sig, d)
}

func (s *fainting) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if s.taken.Load() {
		return state.State{}, errors.New("no answer")
	}
	return s.Store.Load(ctx, id)
}

// The audit records an action whose answer failed, with unknown outcome, and does not record refused actions.
func TestAuditOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	s := newGuardedOn(t, &fainting{Store: memstore.New(memstore.Config{})})
	run := s.run("acme")
	c := s.client("acme", access.Submitter)
	if _, err := s.client("acme", access.Viewer).Signal(t.Context(), run.ID, api.SignalRequest{Message: api.Text("hello")}); err == nil {
		t.Fatal("a viewer could send a message")
	}
	if _, err := c.Signal(t.Context(), run.ID, api.SignalRequest{Message: api.Text("hello")}); err == nil {
		t.Fatal("the request did not fail")
	}
	page, err := s.client("acme", access.Admin).Audit(t.Context(), "", 10)
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []string
	for _, e := range page.Items {
		if e.Target == run.ID && e.Action == "run.signal" {
			outcomes = append(outcomes, e.Outcome)
		}
	}
	if len(outcomes) != 1 || outcomes[0] != api.OutcomeUnknown {
		t.Errorf("outcomes of signals in the audit: %q, want one unknown: %+v", outcomes, page.Items)
	}
}
