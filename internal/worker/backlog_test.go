package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// distinctTurns is a bus that records the ids of turn messages. It stores one message for each id.
type distinctTurns struct {
	bus.Bus

	mu  sync.Mutex
	ids map[string]bool
}

func (b *distinctTurns) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	b.mu.Lock()
	b.ids[cmp.Or(id, fmt.Sprint("without an id ", len(b.ids)))] = true
	b.mu.Unlock()
	return b.Bus.PublishTurn(ctx, t, id)
}

// A run whose message is in the backlog gets no second message. A run whose message was lost is found after the
// backlog has drained.
func TestBacklogIsNoLoss(t *testing.T) {
	t.Parallel()
	// In a bubble, no sweep runs between the fetch of a message and the claim of its run.
	synctest.Test(t, func(t *testing.T) {
		const runs = 60
		s := newDeployment(t)
		b := &distinctTurns{Bus: s.bus, ids: map[string]bool{}}
		v := slowAgent(t, s.store, 500*time.Millisecond)
		queued(t, s.store, v) // its message is never published
		for range runs {
			id := queued(t, s.store, v)
			if err := b.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
				t.Fatal(err)
			}
		}
		cfg := s.config()
		cfg.Slots, cfg.RedeliveryDelay = 5, 300*time.Millisecond
		s.workWith(s.store, b, cfg)
		s.awaitCounts(func(c map[state.Status]int64) bool { return c[state.Completed] == runs+1 })
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.ids); n != runs+1 {
			t.Errorf("%d messages were published for %d runs, of which one lost its message", n, runs)
		}
	})
}

// awaitCounts polls until ok accepts the counts of runs, or fails at the test's deadline.
func (s *deployment) awaitCounts(ok func(map[state.Status]int64) bool) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		counts, err := s.store.Counts(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		if ok(counts) {
			return
		}
	}
}

// sweeps counts the passes of a sweeper.
type sweeps struct {
	state.Store

	n *atomic.Int64
}

func (s sweeps) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	s.n.Add(1)
	return s.Store.Sweep(ctx, limit, delay, backlog)
}

// A sweeper reads the backlog once per redelivery delay, not at each pass: one request, about the empty stream.
func TestSweepsAskLittle(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "little"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	asked, err := nc.SubscribeSync("$JS.API.STREAM.INFO.LITTLE_TURNS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.config()
	cfg.SweepInterval, cfg.RedeliveryDelay = time.Millisecond, time.Hour
	store := sweeps{s.store, &atomic.Int64{}}
	stop := s.workWith(store, b, cfg)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for store.n.Load() < 100 {
		<-tick.C
	}
	stop()
	if err := nc.Flush(); err != nil { // all requests have arrived after the flush
		t.Fatal(err)
	}
	if n, _, err := asked.Pending(); n != 1 || err != nil {
		t.Errorf("%d passes of the sweeper requested the stream %d times, %v; want 1", store.n.Load(), n, err)
	}
}

// A run that was accepted but never published gets its message, once, although a backlog is ahead of it. Runs
// whose messages are in the backlog get no second one.
func TestLostMessageBehindABacklog(t *testing.T) {
	t.Parallel()
	const runs = 60
	for _, lost := range []int{1, 20} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			nc := testbed.NATS(t)
			b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "behind"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			v := slowAgent(t, s.store, time.Hour) // the backlog stays
			for i := range runs {
				id := queuedFor(t, s.store, v, 0)
				if i >= runs-lost {
					continue
				}
				if err := b.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
					t.Fatal(err)
				}
			}
			cfg := s.config()
			cfg.Slots = 5
			store := sweeps{s.store, &atomic.Int64{}}
			stop := s.workWith(store, b, cfg)
			last := func() uint64 {
				info, err := turnStream(t, nc, "BEHIND_TURNS").Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return info.State.LastSeq
			}
			testbed.Eventually(t, "each run has a message", func() error {
				if n := last(); n != runs {
					return fmt.Errorf("there are %d", n)
				}
				return nil
			})
			testbed.Eventually(t, "more sweeps", more(store.n, 200))
			stop()
			if n := last(); n != runs {
				t.Errorf("%d messages were published for %d runs", n, runs)
			}
		})
	}
}

// more returns a condition that holds once n has grown by the given number.
func more(n *atomic.Int64, by int64) func() error {
	before := n.Load()
	return func() error {
		if have := n.Load(); have < before+by {
			return fmt.Errorf("have %d, want %d", have, before+by)
		}
		return nil
	}
}

// swept counts the runs that sweeps return.
type swept struct {
	state.Store

	passes, runs *atomic.Int64
}

func (s swept) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	due, err := s.Store.Sweep(ctx, limit, delay, backlog)
	s.passes.Add(1)
	s.runs.Add(int64(len(due)))
	return due, err
}

// Runs that come due during a NATS outage are published after it, however long it lasts: a sweep that cannot
// publish does not postpone them. The redelivery delay of the test is an hour.
func TestSweepWaitsForTheBus(t *testing.T) {
	t.Parallel()
	const runs = 60
	s := newDeployment(t)
	proxy, err := rig.NewProxy(strings.TrimPrefix(testbed.NATSServer(t).URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { proxy.Run(ctx); close(ended) }()
	t.Cleanup(func() { end(); <-ended })
	nc, err := natsbus.Connect("nats://"+proxy.Addr(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "away", AckWait: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	cfg := s.config()
	cfg.RedeliveryDelay, cfg.SweepInterval = time.Hour, 20*time.Millisecond
	store := swept{s.store, &atomic.Int64{}, &atomic.Int64{}}
	s.workWith(store, b, cfg)
	v := slowAgent(t, s.store, 0)
	queuedFor(t, s.store, v, 0)
	s.awaitCounts(func(c map[state.Status]int64) bool { return c[state.Completed] == 1 })
	proxy.Hold()
	proxy.Cut()
	swept := store.runs.Load()
	queuedFor(t, s.store, v, 0)
	testbed.Eventually(t, "a sweep has brought up the first run", more(store.runs, 1))
	for range runs - 2 {
		queuedFor(t, s.store, v, 0)
	}
	testbed.Eventually(t, "more sweeps", more(store.passes, 3))
	if n := store.runs.Load() - swept; n > 10 {
		t.Errorf("sweeps postponed %d of %d runs while NATS was unreachable", n, runs)
	}
	proxy.Heal()
	s.awaitCounts(func(c map[state.Status]int64) bool { return c[state.Completed] == runs })
}
