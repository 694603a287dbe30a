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

// distinctTurns is a bus that remembers the ids of the turn messages that it gets. It stores one message
// for each id.
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

// A backlog is no loss: while it explains that a run waits, no other message of the run is
// published. A run whose message was lost is found when the backlog is gone.
func TestBacklogIsNoLoss(t *testing.T) {
	t.Parallel()
	// In a bubble no sweep comes between the fetch of a message and the claim of its run.
	synctest.Test(t, func(t *testing.T) {
		const runs = 60
		s := newDeployment(t)
		b := &distinctTurns{Bus: s.bus, ids: map[string]bool{}}
		v := slowAgent(t, s.store, 500*time.Millisecond)
		queued(t, s.store, v) // nobody publishes its message
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
			t.Errorf("%d messages were published for %d runs, and one that was lost", n, runs)
		}
	})
}

// awaitCounts polls until the counts of runs satisfy ok, or the test's deadline.
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

// A sweeper asks for the backlog once in a redelivery delay, and not with each pass: six
// questions, one for each queue.
func TestSweepsAskLittle(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "little"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	asked, err := nc.SubscribeSync("$JS.API.CONSUMER.INFO.>")
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
	if err := nc.Flush(); err != nil { // what was asked is here then
		t.Fatal(err)
	}
	if n, _, err := asked.Pending(); n != 6 || err != nil {
		t.Errorf("%d passes of the sweeper asked %d times for a consumer, %v; want 6", store.n.Load(), n, err)
	}
}

// A run that was accepted and whose message was never published does not wait for the backlog before
// which it would stand: it gets its message once. The others, whose messages wait, get no second one.
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

// more returns a condition: n is higher by the given number than it was.
func more(n *atomic.Int64, by int64) func() error {
	before := n.Load()
	return func() error {
		if have := n.Load(); have < before+by {
			return fmt.Errorf("have %d, want %d", have, before+by)
		}
		return nil
	}
}

// swept counts the runs that sweeps have brought up.
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

// Runs that are due while NATS is away are published when it is back, however long it was away: no
// sweep that cannot publish puts them off. The redelivery delay of the test is an hour.
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
		t.Errorf("sweeps have put off %d of %d runs although NATS was away", n, runs)
	}
	proxy.Heal()
	s.awaitCounts(func(c map[state.Status]int64) bool { return c[state.Completed] == runs })
}
