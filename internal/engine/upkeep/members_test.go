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
	mute      bool   // heartbeats of this worker are lost
	during    func() // called by each eviction

	faults  map[string]int // evictions of a worker that fail
	backlog state.Backlog  // of the bus; nil: it does not answer
	swept   state.Backlog  // that the latest sweep has got
	sweeps  int            // requests for due runs

	sent  []bus.Heartbeat // of the worker me
	lasts time.Duration   // that the latest heartbeat of the worker me in the store lasts
}

func (d *deployment) SetFormat(int) {}

func (d *deployment) Heartbeat(_ context.Context, _ string, lasts time.Duration) error {
	d.set(func() { d.lasts = lasts })
	return nil
}

func (d *deployment) Alive(_ context.Context, worker string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alive[worker], nil
}

func (d *deployment) Owners(context.Context) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.owners), nil
}

func (d *deployment) Evict(_ context.Context, worker string, limit int, _ time.Duration) ([]state.Due, error) {
	if d.during != nil {
		d.during()
	}
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
	d.sweeps++
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

func (d *deployment) SendHeartbeat(h bus.Heartbeat) {
	d.mu.Lock()
	mute := d.mute
	d.sent = append(d.sent, h)
	d.mu.Unlock()
	if !mute {
		d.hear(h)
	}
}

func alone() int { return 1 }

// set changes d while workers use it.
func (d *deployment) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// join starts the worker me, and returns its leases and a function that stops it.
func (d *deployment) join(t *testing.T) (leases *upkeep.Leases, leave func()) {
	t.Helper()
	leases = upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
	members := upkeep.NewMembers(upkeep.Self{ID: "me", Slots: 1}, d, d, leases, d.sweeper(), periods, slog.New(slog.DiscardHandler))
	stop, err := members.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { members.Run(running); close(ended) }()
	return leases, func() { end(); <-ended; stop() }
}

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
		leases, leave := d.join(t)

		for _, worker := range []string{"dead", "slow", "leaving"} {
			d.hear(bus.Heartbeat{Worker: worker, Format: state.Format})
		}
		d.hear(bus.Heartbeat{Worker: "leaving", Leaving: true})
		time.Sleep(10 * upkeep.MissedHeartbeats * periods.Heartbeat)
		leave()
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

// A worker claims eagerly only while it knows the other workers and each of them can read its format. Gateways do not
// matter: they take over no turns.
func TestNoEagerClaimsBesideAnOlderWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{alive: map[string]bool{"old": true}}
		leases, leave := d.join(t)
		defer leave()
		rounds := func(n int) { time.Sleep(time.Duration(n)*periods.Heartbeat + periods.Heartbeat/2) } // the bubble's clock
		is := func(when string, want bool) {
			t.Helper()
			if got := leases.ClaimsEagerly(); got != want {
				t.Errorf("%s: eager claims are %v, want %v", when, got, want)
			}
		}
		old := bus.Heartbeat{Worker: "old", Format: state.Format - 1}
		rounds(1)
		is("before it knows the others", false)
		rounds(2 * upkeep.MissedHeartbeats)
		is("alone", true)
		d.hear(old)
		is("an older worker is heard", false)
		rounds(2)
		is("an older worker was heard", false)
		rounds(2 * upkeep.MissedHeartbeats)
		is("an older worker is unreachable", false)
		d.hear(bus.Heartbeat{Worker: "old", Format: state.Format})
		rounds(1)
		is("the older worker was upgraded", true)
		d.hear(old)
		d.set(func() { d.alive["old"] = false })
		rounds(2 * upkeep.MissedHeartbeats)
		is("an older worker has died", true)
		d.hear(old)
		d.hear(bus.Heartbeat{Worker: "old", Leaving: true})
		rounds(1)
		is("an older worker has left", true)
		d.hear(bus.Heartbeat{Worker: "old gateway", Gateway: true, Format: state.Format - 1})
		rounds(1)
		is("an older gateway was heard", true)
	})
}

// A worker that misses its own heartbeats cannot know the others: it evicts none and claims nothing eagerly. When it has
// heard itself for a while, it also evicts the workers that died unheard in the meantime.
func TestWorkerWithoutItsOwnHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{}
		leases, leave := d.join(t)
		defer leave()
		long := func() { time.Sleep(10 * upkeep.MissedHeartbeats * periods.Heartbeat) } // the bubble's clock
		is := func(when string, eager bool, evicted ...string) {
			t.Helper()
			d.mu.Lock()
			defer d.mu.Unlock()
			slices.Sort(d.evicted)
			if d.evicted = slices.Compact(d.evicted); !slices.Equal(d.evicted, evicted) || leases.ClaimsEagerly() != eager {
				t.Errorf("%s: eager claims are %v, evicted %q; want %v, %q", when, leases.ClaimsEagerly(), d.evicted, eager, evicted)
			}
		}
		long()
		is("it hears itself", true)
		d.hear(bus.Heartbeat{Worker: "heard", Format: state.Format})
		d.set(func() { d.mute, d.owners = true, []string{"unheard"} })
		long()
		is("it is deaf", false)
		d.set(func() { d.mute = false })
		long()
		is("it hears itself again", true, "heard", "unheard")
	})
}

// An eviction ends when its worker hears the other one again, or misses its own heartbeats, and so cannot know whether
// the other one lives.
func TestEvictionEnds(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]func(d *deployment){
		"the other is heard": func(d *deployment) { d.hear(bus.Heartbeat{Worker: "before", Format: state.Format}) },
		"the worker is deaf": func(d *deployment) {
			d.set(func() { d.mute = true })
			time.Sleep(upkeep.MissedHeartbeats * periods.Heartbeat) // the bubble's clock
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &deployment{owners: []string{"before"}, held: map[string]int{"before": 600}}
			d.during = func() { during(d) }
			_, leave := d.join(t)
			time.Sleep(2 * upkeep.MissedHeartbeats * periods.Heartbeat)
			leave()
			if len(d.evicted) != 1 || d.held["before"] == 0 {
				t.Errorf("%s: evicted %q, %d leases are left; want one part of the leases ended", name, d.evicted, d.held["before"])
			}
		})
	}
}

// A worker counts as back from its first heartbeat until it may be dead.
func TestWorkerIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{}
		members := upkeep.NewMembers(upkeep.Self{ID: "me"}, d, d, upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler)), d.sweeper(), periods, slog.New(slog.DiscardHandler))
		stop, err := members.Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		is := func(when string, want bool) {
			t.Helper()
			if got := members.Back("other"); got != want || members.Back("") {
				t.Errorf("%s: back is %v, want %v; no worker is back: %v", when, got, want, members.Back(""))
			}
		}
		is("before", false)
		d.hear(bus.Heartbeat{Worker: "other", Format: state.Format})
		d.hear(bus.Heartbeat{Format: state.Format})
		is("heard", true)
		time.Sleep(upkeep.MissedHeartbeats * periods.Heartbeat) // the bubble's clock
		is("heard a while ago", true)
		time.Sleep(periods.Heartbeat)
		is("unheard for longer", false)
	})
}

// The eviction of a worker that held a lease before any other worker listened is retried if the store does not
// answer.
func TestEvictionIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{owners: []string{"before"}, faults: map[string]int{"before": 2}}
		_, leave := d.join(t)
		time.Sleep(10 * upkeep.MissedHeartbeats * periods.Heartbeat) // the bubble's clock
		leave()
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
		go func() { d.sweeper().Run(running, alone, func(context.Context) {}); close(ended) }()
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
		go func() { d.sweeper().Run(running, alone, func(context.Context) {}); close(ended) }()
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
		go func() { d.sweeper().Run(running, alone, func(context.Context) {}); close(ended) }()
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
