package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

func open(tb testing.TB, nc *nats.Conn, prefix string) *natsstore.Store {
	tb.Helper()
	// Without a deadline a request to JetStream has five seconds, and a busy machine may take longer.
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	tb.Cleanup(cancel)
	s, err := natsstore.Open(ctx, nc, natsstore.Config{Prefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func prefix() string { return "t-" + strings.ToLower(ulid.Make().String()) }

func TestStore(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	statetest.Exercise(t, func(t *testing.T) state.Store { t.Helper(); return open(t, nc, prefix()) })
	statetest.ManySignals(t, open(t, nc, prefix()))
}

// Processes that share a store see each other's changes at once: every other call goes to another store, whose
// index lags behind.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	server := testbed.NATSServer(t)
	statetest.Exercise(t, func(t *testing.T) state.Store {
		t.Helper()
		p := prefix()
		var stores [2]*natsstore.Store
		for i := range stores {
			nc, err := server.Conn(fmt.Sprint("process ", i))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			stores[i] = open(t, nc, p)
		}
		return newAlternating(stores[0], stores[1])
	})
}

// Runs of a newer format cost a sweeper nothing: they are not in the index.
func TestRollbackOfFormat(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, prefix())
	for range 20 {
		run := newRun(t)
		run.Format = state.Format + 1
		if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
	}
	own := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: own}); err != nil {
		t.Fatal(err)
	}
	before := nc.Stats()
	if due, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil || len(due) != 1 || due[0].Run != own.ID {
		t.Errorf("Sweep = %+v, %v; want the run that this build can read", due, err)
	}
	if n := nc.Stats().OutMsgs - before.OutMsgs; n > 2 {
		t.Errorf("a sweep of one run and 20 of a newer format sent %d messages", n)
	}
}

// Acknowledged writes are there after a restart.
func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := state.RunID(state.RunPrefix + ulid.Make().String())
	for restart := range 3 {
		server, err := devserver.Start(devserver.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		nc, err := server.Conn("test")
		if err != nil {
			t.Fatal(err)
		}
		s, err := natsstore.Open(t.Context(), nc, natsstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if restart == 0 {
			run, err := state.State{ID: id, Priority: state.Normal}.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		page, err := s.List(t.Context(), state.Filter{})
		if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != id {
			t.Fatalf("restart %d: List = %+v, %v", restart, page, err)
		}
		if log, err := s.Log(t.Context(), id, 0, 0); err != nil || len(log) != 1 {
			t.Fatalf("restart %d: Log = %d entries, %v", restart, len(log), err)
		}
		_ = s.Close()
		nc.Close()
		server.Close()
	}
}

func BenchmarkTurn(b *testing.B) { statetest.Benchmark(b, open(b, testbed.NATS(b), "")) }

// An eager claim that was taken away is made again like any claim, under the same token (I8).
func TestEagerClaimIsMadeAnew(t *testing.T) {
	t.Parallel()
	s := open(t, testbed.NATS(t), prefix())
	run := newRun(t, state.UserText("hello"))
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	ask := state.ClaimRequest{Run: run.ID, Version: 1, Token: "first", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}
	c, err := s.Claim(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "first", State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour, EagerClaim: "eager"})
	if err != nil || !done.Claimed {
		t.Fatalf("Commit = %+v, %v", done, err)
	}
	if _, err := s.Evict(t.Context(), "w", 100, time.Hour); err != nil {
		t.Fatal(err)
	}
	ask.Version, ask.Token = 2, "eager"
	if c, err = s.Claim(t.Context(), ask); err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	if _, err := s.Renew(t.Context(), c.Lease, time.Hour, time.Hour); err != nil {
		t.Errorf("Renew of a claim that was granted: %v", err)
	}
}

// Evict reports a lease that it could not end, also if it has ended others: its caller would not repeat the call.
func TestEvictReportsFailures(t *testing.T) {
	t.Parallel()
	nc, p := testbed.NATS(t), prefix()
	s := open(t, nc, p)
	var ids []state.RunID
	for range 2 {
		run, err := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Priority: state.Normal, Tenant: state.DefaultTenant}.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: string(run.ID), Worker: "w1", Lease: time.Hour, RedeliveryDelay: time.Hour})
		if err != nil || c.Outcome != state.Claimed {
			t.Fatalf("Claim = %s, %v", c.Outcome, err)
		}
		ids = append(ids, run.ID)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), p+".state.run."+string(ids[1]), []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	due, err := s.Evict(t.Context(), "w1", 10, time.Hour)
	if len(due) != 1 || due[0].Run != ids[0] || !errors.Is(err, state.ErrDamaged) {
		t.Errorf("Evict = %+v, %v; want run %s, and ErrDamaged for the other run", due, err, ids[0])
	}
}

// A page that ends where the cached log ends is not the last one if another process has written more.
func TestPageAtTheEndOfTheCache(t *testing.T) {
	t.Parallel()
	nc, p := testbed.NATS(t), prefix()
	reader, writer := open(t, nc, p), open(t, nc, p)
	run := newRun(t, state.UserText("hello"))
	if _, err := reader.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second}); err != nil {
		t.Fatal(err)
	}
	// With this claim the reader caches the first entry.
	c, err := reader.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "token", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Second})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Commit(t.Context(), c.Lease, state.Commit{ID: "token", State: &next, From: 1, RedeliveryDelay: time.Second}); err != nil {
		t.Fatal(err)
	}
	page, err := reader.LogPage(t.Context(), run.ID, 0, 1, 0)
	if err != nil || len(page.Entries) != 1 || !page.More {
		t.Errorf("the page has %d entries, more: %t, %v; want 1 and more", len(page.Entries), page.More, err)
	}
}
