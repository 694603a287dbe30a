package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A backlog is no loss: while it explains that a run waits, no other message of the run is
// published. A run whose message was lost is found when the backlog is gone.
func TestBacklogIsNoLoss(t *testing.T) {
	t.Parallel()
	const runs = 60
	s := newDeployment(t)
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "backlog"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
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
	info, err := turnStream(t, nc, "BACKLOG_TURNS").Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := info.State.LastSeq; n != runs+1 {
		t.Errorf("%d messages were published for %d runs, and one that was lost", n, runs)
	}
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
	var asked atomic.Int64
	if _, err := nc.Subscribe("$JS.API.CONSUMER.INFO.>", func(*nats.Msg) { asked.Add(1) }); err != nil {
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
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 6 {
		t.Errorf("%d passes of the sweeper asked %d times for a consumer, want 6", store.n.Load(), n)
	}
}
