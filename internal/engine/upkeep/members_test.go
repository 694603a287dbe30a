package upkeep_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// deployment is the store and the bus of the other workers.
type deployment struct {
	mu        sync.Mutex
	hear      func(bus.Heartbeat)
	alive     map[string]bool // according to the store
	owners    []string
	held      map[string]int // leases by worker; nil: each eviction ends one
	evicted   []string
	due       []state.Due
	refuses   bool // the bus rejects turns
	published []state.RunID

	faults  map[string]int // evictions of a worker that fail
	backlog state.Backlog  // of the bus; nil: it does not answer
	swept   state.Backlog  // that the latest sweep has got
}

func (d *deployment) SetFormat(int) {}

func (d *deployment) Heartbeat(context.Context, string, time.Duration) error { return nil }

func (d *deployment) Alive(_ context.Context, worker string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alive[worker], nil
}

func (d *deployment) Owners(context.Context) ([]string, error) { return d.owners, nil }

func (d *deployment) Evict(_ context.Context, worker string, limit int, _ time.Duration) ([]state.Due, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults[worker] > 0 {
		d.faults[worker]--
		return nil, errors.New("no answer from the store")
	}
	d.evicted = append(d.evicted, worker)
	if d.held != nil {
		var due []state.Due
		for ; d.held[worker] > 0 && len(due) < limit; d.held[worker]-- {
			due = append(due, state.Due{Run: "of-" + state.RunID(worker), Version: int64(d.held[worker])})
		}
		return due, nil
	}
	return []state.Due{{Run: "of-" + state.RunID(worker), Version: 1}}, nil
}

func (d *deployment) Sweep(_ context.Context, limit int, _ time.Duration, backlog state.Backlog) ([]state.Due, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.swept = backlog
	n := min(limit, len(d.due))
	swept := d.due[:n]
	d.due = d.due[n:]
	return swept, nil
}

func (d *deployment) Backlog(context.Context) (state.Backlog, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.backlog == nil {
		return nil, errors.New("no responders")
	}
	return d.backlog, nil
}

func (d *deployment) SendHeartbeat(h bus.Heartbeat) { d.hear(h) }

func (d *deployment) Heartbeats(_ context.Context, fn func(bus.Heartbeat)) (func(), error) {
	d.hear = fn
	return func() {}, nil
}

func (d *deployment) PublishTurn(_ context.Context, t bus.Turn, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses {
		return errors.New("no response from stream")
	}
	d.published = append(d.published, t.Run)
	return nil
}

func (d *deployment) PublishAbort(context.Context, bus.Abort) error { return nil }

func (d *deployment) FinalizeRun(context.Context, state.RunID, int64) error { return nil }

func (d *deployment) sweeper() *upkeep.Sweeper {
	count := prometheus.NewCounter(prometheus.CounterOpts{Name: "swept"})
	return upkeep.NewSweeper(d, d, dispatch.New(d, nil), d, periods, count, slog.New(slog.DiscardHandler))
}

// A worker is evicted if both the bus and the store miss its heartbeats. A worker that leaves, or whose
// heartbeats reach the store, is not evicted. One that held a lease before any other worker listened is.
func TestOnlyDeadWorkersAreEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{alive: map[string]bool{"slow": true}, owners: []string{"before", "me"}}
		leases := upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
		members := upkeep.NewMembers(upkeep.Self{ID: "me", Slots: 1}, d, d, leases, d.sweeper(), periods, slog.New(slog.DiscardHandler))
		stop, err := members.Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		running, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { members.Run(running); close(ended) }()

		for _, worker := range []string{"dead", "slow", "leaving"} {
			d.hear(bus.Heartbeat{Worker: worker, Format: state.Format})
		}
		d.hear(bus.Heartbeat{Worker: "leaving", Leaving: true})
		time.Sleep(10 * upkeep.MissedHeartbeats * periods.Heartbeat)
		end()
		<-ended
		slices.Sort(d.evicted)
		if want := []string{"before", "dead"}; !slices.Equal(slices.Compact(d.evicted), want) {
			t.Errorf("evicted %q, want %q", d.evicted, want)
		}
		slices.Sort(d.published)
		if want := []state.RunID{"of-before", "of-dead"}; !slices.Equal(slices.Compact(d.published), want) {
			t.Errorf("published turns of %q, want %q", d.published, want)
		}
		if !leases.ClaimsEagerly() {
			t.Error("the worker has seen all others, and does not claim eagerly")
		}
	})
}

// The eviction of a worker that held a lease before any other worker listened is retried if the store does not
// answer.
func TestEvictionIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{owners: []string{"before"}, faults: map[string]int{"before": 2}}
		leases := upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
		members := upkeep.NewMembers(upkeep.Self{ID: "me", Slots: 1}, d, d, leases, d.sweeper(), periods, slog.New(slog.DiscardHandler))
		stop, err := members.Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		running, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { members.Run(running); close(ended) }()
		time.Sleep(10 * upkeep.MissedHeartbeats * periods.Heartbeat) // the bubble's clock
		end()
		<-ended
		if d.faults["before"] != 0 || len(d.evicted) != 1 || len(d.published) != 1 {
			t.Errorf("%d faults are left; evicted %q; published turns of %q; want one worker and its turn", d.faults["before"], d.evicted, d.published)
		}
	})
}

// All turns of a dead worker, or of one that restarts, move at once, however many they are.
func TestEvictionOfManyTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{owners: []string{"before"}, held: map[string]int{"me": 600, "before": 600}}
		leases := upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
		members := upkeep.NewMembers(upkeep.Self{ID: "me", Slots: 1}, d, d, leases, d.sweeper(), periods, slog.New(slog.DiscardHandler))
		members.EvictFormerSelf(t.Context())
		if len(d.published) != 600 {
			t.Errorf("a worker that restarts published %d turns, want 600", len(d.published))
		}
		stop, err := members.Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		running, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { members.Run(running); close(ended) }()
		time.Sleep(10 * upkeep.MissedHeartbeats * periods.Heartbeat) // the bubble's clock
		end()
		<-ended
		if len(d.published) != 1200 || d.held["before"] != 0 {
			t.Errorf("%d turns were published, %d leases of the dead worker are left; want 1200 and 0", len(d.published), d.held["before"])
		}
	})
}

// A sweep takes all due runs, however many they are.
func TestSweepOfManyTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{backlog: state.Backlog{}}
		for i := range int64(600) {
			d.due = append(d.due, state.Due{Run: "r", Version: i})
		}
		running, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { d.sweeper().Run(running, func(context.Context) {}); close(ended) }()
		time.Sleep(periods.Sweep + periods.Sweep/2) // the bubble's clock
		end()
		<-ended
		if len(d.published) != 600 {
			t.Errorf("a sweep published %d turns, want 600", len(d.published))
		}
	})
}

// A sweep uses no backlog that the bus no longer confirms: the store would leave every queued run to it.
func TestSweeperForgetsAnOldBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{backlog: state.Backlog{state.Normal: time.Now()}}
		running, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { d.sweeper().Run(running, func(context.Context) {}); close(ended) }()
		time.Sleep(periods.Sweep + periods.Sweep/2) // the bubble's clock
		d.mu.Lock()
		if len(d.swept) != 1 {
			t.Errorf("the sweep has the backlog %v, want that of the bus", d.swept)
		}
		d.backlog = nil
		d.mu.Unlock()
		time.Sleep(periods.RedeliveryDelay + 2*periods.Sweep)
		end()
		<-ended
		if len(d.swept) != 0 {
			t.Errorf("while the bus does not answer, a sweep has the backlog %v, want none", d.swept)
		}
	})
}

// While the bus rejects turns, a sweep takes one due run instead of all. The rejected turns are published as
// soon as the bus accepts them.
func TestRefusedTurnsAreRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{refuses: true, backlog: state.Backlog{}}
		for _, run := range []state.RunID{"r1", "r2", "r3"} {
			d.due = append(d.due, state.Due{Run: run, Version: 1})
		}
		running, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { d.sweeper().Run(running, func(context.Context) {}); close(ended) }()
		time.Sleep(periods.Sweep + periods.Sweep/2)
		d.mu.Lock()
		d.due = append(d.due, state.Due{Run: "r4", Version: 1}, state.Due{Run: "r5", Version: 1})
		d.mu.Unlock()
		time.Sleep(periods.Sweep)
		d.mu.Lock()
		if left := len(d.due); left != 1 {
			t.Errorf("a sweep left %d of two runs while the bus rejected turns, want 1", left)
		}
		d.refuses = false
		d.mu.Unlock()
		time.Sleep(2 * periods.Sweep)
		end()
		<-ended
		slices.Sort(d.published)
		if want := []state.RunID{"r1", "r2", "r3", "r4", "r5"}; !slices.Equal(d.published, want) {
			t.Errorf("published %q, want %q", d.published, want)
		}
	})
}
