package onestore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// different and same count the reports in a log.
func different(log *bytes.Buffer) int {
	return strings.Count(log.String(), "processes of this deployment keep their runs in different stores")
}

func same(log *bytes.Buffer) int {
	return strings.Count(log.String(), "all processes of this deployment keep their runs in the same store again")
}

// A process reports once that another one has a different store, and once that none has any more: because it says so,
// leaves or is silent. Meanwhile no run is recorded as lost.
func TestDifferentStores(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(send func(bus.Heartbeat)){
		"the same store again": func(send func(bus.Heartbeat)) { send(bus.Heartbeat{Worker: "other", Store: "Redis", StoreID: "one"}) },
		"left": func(send func(bus.Heartbeat)) {
			send(bus.Heartbeat{Worker: "other", Store: "Redis", StoreID: "two", Leaving: true})
		},
		"silent": func(func(bus.Heartbeat)) { time.Sleep(11 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				id, read := "one", 0
				w := onestore.NewWatch("Redis", func(context.Context) (string, error) { read++; return id, nil }, slog.New(slog.NewTextHandler(&log, nil)))
				b := membus.New()
				stop, err := w.Bus(b).Heartbeats(t.Context(), func(bus.Heartbeat) {})
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				send := func(h bus.Heartbeat) { b.SendHeartbeat(h); synctest.Wait() }
				store := w.Store(memstore.New(memstore.Config{}))
				lose := func() error {
					lost := state.State{ID: "run_1", Transition: state.Transition{Reason: state.EndLost}}
					_, err := store.Create(t.Context(), state.NewRun{State: lost})
					return err
				}
				claim := func() state.Outcome {
					c, err := store.Claim(t.Context(), state.ClaimRequest{Run: "run_2", Version: 1, Token: "t", Worker: "w", Lease: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					return c.Outcome
				}
				if got := claim(); got != state.ClaimBehind {
					t.Errorf("before the heartbeats of others can have arrived, the claim of a missing run is %s", got)
				}
				time.Sleep(1200 * time.Millisecond)
				if got := claim(); got != state.ClaimMissing {
					t.Errorf("without other stores, the claim of a missing run is %s", got)
				}
				look := func(n int) {
					for range n {
						w.Look(t.Context())
					}
				}
				look(3)
				if read != 1 {
					t.Errorf("the id of the store is read %d times, want once", read)
				}
				send(bus.Heartbeat{Worker: "other", Store: "Redis", StoreID: "two"})
				look(2)
				if different(&log) != 0 {
					t.Errorf("reported at once:\n%s", &log)
				}
				look(1)
				if !errors.Is(lose(), onestore.ErrDiffers) || different(&log) != 1 || !strings.Contains(log.String(), "process=other") {
					t.Errorf("after three looks: %v\n%s", lose(), &log)
				}
				look(5)
				for range 2 {
					if got := claim(); got != state.ClaimBehind || strings.Count(log.String(), "a turn message names a run") != 1 {
						t.Errorf("with different stores, the claim of a missing run is %s, and the log\n%s", got, &log)
					}
				}
				end(send)
				look(5)
				if different(&log) != 1 || same(&log) != 1 || errors.Is(lose(), onestore.ErrDiffers) || claim() != state.ClaimMissing {
					t.Errorf("at last: %v\n%s", lose(), &log)
				}
			})
		})
	}
}

// A process whose store has lost its data reads the new id before it reports that others have another store.
func TestStoreWithANewID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		id := "one"
		var failed error
		w := onestore.NewWatch("Redis", func(context.Context) (string, error) { return id, failed }, slog.New(slog.NewTextHandler(&log, nil)))
		b := membus.New()
		var sent []bus.Heartbeat
		watched := w.Bus(b)
		stop, err := watched.Heartbeats(t.Context(), func(h bus.Heartbeat) { sent = append(sent, h) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		w.Look(t.Context())
		id, failed = "two", errors.New("away")
		b.SendHeartbeat(bus.Heartbeat{Worker: "other", Store: "Redis", StoreID: "two"})
		synctest.Wait()
		w.Look(t.Context()) // it cannot read the id
		watched.SendHeartbeat(bus.Heartbeat{Worker: "self"})
		failed = nil
		w.Look(t.Context())
		watched.SendHeartbeat(bus.Heartbeat{Worker: "self"})
		synctest.Wait()
		for range 5 {
			w.Look(t.Context())
		}
		if log.Len() > 0 {
			t.Errorf("the log has\n%s", &log)
		}
		if len(sent) != 3 || sent[1].StoreID != "one" || sent[2].StoreID != "two" || sent[2].Store != "Redis" {
			t.Errorf("heartbeats %+v", sent)
		}
	})
}

// Stores differ only if that is known.
func TestDiffers(t *testing.T) {
	t.Parallel()
	redis, one, two := onestore.Identity{Kind: "Redis"}, onestore.Identity{Kind: "Redis", ID: "1"}, onestore.Identity{Kind: "Redis", ID: "2"}
	for _, tt := range []struct {
		a, b onestore.Identity
		want bool
	}{
		{one, two, true},
		{one, one, false},
		{one, redis, false},
		{one, onestore.Identity{}, false},
		{one, onestore.Identity{Kind: "JetStream"}, true},
		{redis, onestore.Identity{Kind: "JetStream", ID: "1"}, true},
	} {
		if tt.a.Differs(tt.b) != tt.want || tt.b.Differs(tt.a) != tt.want {
			t.Errorf("%v and %v differ: %t, want %t", tt.a, tt.b, tt.a.Differs(tt.b), tt.want)
		}
	}
}
