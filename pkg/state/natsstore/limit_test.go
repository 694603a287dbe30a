package natsstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The inbox limit leaves capacity for the turn that processes the signals, and for an abort (I2).
func TestSignalsLeaveCapacity(t *testing.T) {
	t.Parallel()
	srv := testbed.NATSWith(t, func(o *server.Options) { o.MaxPayload = 128 << 10 })
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := open(t, nc, prefix())
	run := newRun(t, state.UserText("hello"))
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second}); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for size := 1 << 15; size > 0; size /= 4 {
		for err = nil; err == nil; taken++ {
			said := state.UserText(strings.Repeat("x", size))
			_, err = s.Signal(t.Context(), run.ID, state.Signal{ID: ulid.Make().String(), Message: &said}, time.Second)
		}
		taken--
		if _, ok := errors.AsType[*state.InboxFullError](err); !ok {
			t.Fatalf("Signal = %v, want an error that the inbox is full", err)
		}
	}
	if taken == 0 {
		t.Fatal("no signal was taken")
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, time.Second); err != nil {
		t.Fatalf("Abort: %v", err)
	}
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "token", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Second})
	if err != nil || len(c.Signals) != taken {
		t.Fatalf("Claim = %s with %d signals, %v; want %d", c.Outcome, len(c.Signals), err, taken)
	}
	last := state.Entry{At: state.At(time.Now()), Detail: strings.Repeat("x", 1<<12)}
	for _, sig := range c.Signals {
		last.Messages = append(last.Messages, *sig.Message)
	}
	next, err := c.State.Move(state.NextTurn, last)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "token", State: &next, From: c.State.LogLen(), Consumed: taken, RedeliveryDelay: time.Second}); err != nil {
		t.Errorf("Commit: %v", err)
	}
}

// Signals to a running run leave capacity for the commit of its turn, however large the run itself is (I2).
func TestSignalsLeaveCapacityForTheTurnInFlight(t *testing.T) {
	t.Parallel()
	srv := testbed.NATSWith(t, func(o *server.Options) { o.MaxPayload = 128 << 10 })
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := open(t, nc, prefix())
	run := newRun(t, state.UserText("hello"))
	run.Metadata = map[string]string{"large": strings.Repeat("x", 80<<10)}
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "token", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Second})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	for size := 1 << 14; size > 0; size /= 4 {
		for err = nil; err == nil; {
			said := state.UserText(strings.Repeat("x", size))
			_, err = s.Signal(t.Context(), run.ID, state.Signal{ID: ulid.Make().String(), Message: &said}, time.Second)
		}
		if _, ok := errors.AsType[*state.InboxFullError](err); !ok {
			t.Fatalf("Signal = %v, want an error that the inbox is full", err)
		}
	}
	next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now()), Detail: strings.Repeat("x", 1<<12)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "token", State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Second}); err != nil {
		t.Errorf("Commit: %v", err)
	}
}

// The results that a journal accepts leave capacity for the commit that writes them, with what the loop derives from
// them.
func TestResultsLeaveCapacityForTheCommit(t *testing.T) {
	t.Parallel()
	srv := testbed.NATSWith(t, func(o *server.Options) { o.MaxPayload = 128 << 10 })
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := open(t, nc, prefix())
	run := newRun(t, state.UserText("hello"))
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "token", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Second})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	next := *c.State
	for size := 1 << 15; size >= 1<<11; size /= 4 {
		for {
			id := ulid.Make().String()
			m := state.ToolResult(id, strings.Repeat("x", size), false)
			e := state.Entry{Type: state.EntryTool, At: state.At(time.Now()), Message: &m, CallID: id, Name: "t"}
			if _, err = s.Record(t.Context(), c.Lease, state.Record{From: c.State.LogLen(), Results: []state.Entry{e}}); err != nil {
				break
			}
			next = next.Append(e)
		}
		if _, ok := errors.AsType[*state.TooLargeError](err); !ok {
			t.Fatalf("Record = %v, want an error that the result is too large", err)
		}
	}
	next, err = next.Move(state.NextTurn, state.Entry{At: state.At(time.Now()), Detail: strings.Repeat("x", 1<<12)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "token", State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Second}); err != nil {
		t.Errorf("Commit: %v", err)
	}
}

// A server that is full refuses a run with a retryable error. It does not report that the run does not exist,
// which no client retries.
func TestCreateOverTheLimit(t *testing.T) {
	t.Parallel()
	srv := testbed.NATSWith(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 20 })
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := open(t, nc, prefix())
	for range 100 {
		run := newRun(t, state.UserText(strings.Repeat("x", 1<<16)))
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second}); errors.Is(err, state.ErrNotFound) {
			t.Fatal(err)
		} else if err != nil {
			return
		}
	}
	t.Error("everything was accepted")
}

// newRun returns a submission of these messages.
func newRun(t *testing.T, messages ...state.Message) state.State {
	t.Helper()
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default", Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: messages})
	if err != nil {
		t.Fatal(err)
	}
	return run
}
