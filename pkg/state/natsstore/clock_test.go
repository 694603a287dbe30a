package natsstore_test

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// Processes with clocks hours apart use the server's clock: a run with a later start is due for all of them at
// the same time, and a lease has the same end for all.
func TestClockIsTheServers(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	prefix := "c" + ulid.Make().String()
	stores := map[time.Duration]*natsstore.Store{}
	for _, skew := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} {
		s, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: prefix, Now: func() time.Time { return time.Now().Add(skew) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		stores[skew] = s
	}
	const lease, near = 3 * time.Hour, 10 * time.Minute // the server is in this process; its answer takes less
	id := state.RunID(state.RunPrefix + ulid.Make().String())
	at := state.At(time.Now())
	run, err := state.State{ID: id, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default", Priority: state.Normal, Limits: state.Limits{MaxTurns: 9}}.
		Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stores[5*time.Hour].Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for skew, s := range stores {
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "t" + skew.String(), Worker: "w", Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(c.Now).Abs(); d > near {
			t.Errorf("a store whose process is %s off reports a time %s from now", skew, d)
		}
		if c.Outcome == state.ClaimBusy && (c.Busy < lease-near || c.Busy > lease+near) {
			t.Errorf("a lease of %s lasts %s more for a store whose process is %s off", lease, c.Busy, skew)
		}
		if due, err := s.Sweep(t.Context(), 9, time.Hour, nil); err != nil || len(due) > 0 {
			t.Errorf("a store whose process is %s off takes the run from its worker: %v, %v", skew, due, err)
		}
	}
}
