package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// stickyBus is the bus of one worker. It records the turns that the worker publishes, and can hold back what arrives in
// the worker's own queue.
type stickyBus struct {
	bus.Bus

	back  atomic.Int32  // the number of turns that cannot be given back
	open  func() error  // opens the worker's own queue; nil succeeds
	slots int           // of the other worker; 0: the same as this worker's
	holds bool          // a message of the own queue arrives once gate is closed, else at once
	gate  chan struct{} // made in the bubble
	dead  chan struct{} // once it is closed, the worker takes no turn and sends no heartbeat; made in the bubble

	mu        sync.Mutex
	published []bus.Turn
}

func (b *stickyBus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	b.mu.Lock()
	b.published = append(b.published, t)
	b.mu.Unlock()
	if t.Sticky == "" && b.back.Add(-1) >= 0 {
		return errors.New("not published")
	}
	return b.Bus.PublishTurn(ctx, t, id)
}

func (b *stickyBus) StickyTurns(ctx context.Context, id string) (bus.TurnQueue, error) {
	if b.open != nil {
		if err := b.open(); err != nil {
			return nil, err
		}
	}
	q, err := b.Bus.StickyTurns(ctx, id)
	return gated{q, b.gate}, err
}

func (b *stickyBus) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	q, err := b.Bus.Turns(ctx, key)
	return dying{q, b.dead}, err
}

func (b *stickyBus) SendHeartbeat(h bus.Heartbeat) {
	if !isClosed(b.dead) {
		b.Bus.SendHeartbeat(h)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// dying is a lane as a worker sees it that may die.
type dying struct {
	bus.TurnQueue

	dead <-chan struct{}
}

func (m dying) Next(ctx context.Context) (bus.TurnDelivery, error) {
	if isClosed(m.dead) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return m.TurnQueue.Next(ctx)
}

// sticky returns for each published turn whether it went to the worker's own queue.
func (b *stickyBus) sticky() (all []bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.published {
		all = append(all, t.Sticky != "")
	}
	return all
}

type gated struct {
	bus.TurnQueue

	gate chan struct{}
}

func (g gated) Next(ctx context.Context) (bus.TurnDelivery, error) {
	select {
	case <-g.gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return g.TurnQueue.Next(ctx)
}

// dyingStore is a store that a dead worker reaches no more with its heartbeats.
type dyingStore struct {
	state.Store

	dead <-chan struct{}
}

func (s dyingStore) Heartbeat(ctx context.Context, worker string, lasts time.Duration) error {
	if isClosed(s.dead) {
		return nil
	}
	return s.Store.Heartbeat(ctx, worker, lasts)
}

// workers returns the workers that took the turns of a run.
func (s *deployment) workers(id state.RunID) (names []string) {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range log {
		if e.Worker != "" && e.Turn > 0 {
			names = append(names, e.Worker)
		}
	}
	return slices.Compact(names)
}

// besideAnother runs test with two workers that know each other; b is the bus of the first one, w1. The agents have the
// tool one.
func besideAnother(t *testing.T, b *stickyBus, tune func(cfg *worker.Config), test func(s *deployment, stop func())) {
	t.Helper()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		b.Bus = s.bus
		if b.gate = make(chan struct{}); !b.holds {
			close(b.gate)
		}
		tune(&cfg)
		b.dead = make(chan struct{})
		stop := s.workWith(dyingStore{l, b.dead}, b, cfg)
		other := cfg
		other.ID, other.Slots, other.Registry, other.Without.Sticky = "w2", cmp.Or(b.slots, cfg.Slots), nil, true
		time.Sleep(listen) // w2 gets no turn before the test wants it
		s.workWith(s.store, &late{Bus: s.bus}, other)
		time.Sleep(listen)
		test(s, stop)
	})
}

// late is the bus of a worker that takes turns from the lanes only if no other worker does so within a second.
type late struct{ bus.Bus }

func (b *late) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	q, err := b.Bus.Turns(ctx, key)
	return slow{q}, err
}

type slow struct{ bus.TurnQueue }

func (q slow) Next(ctx context.Context) (bus.TurnDelivery, error) {
	select {
	case <-time.After(listen/2 + listen/20): // not at the moment at which a test begins
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	brief, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	d, err := q.TurnQueue.Next(brief)
	if err != nil && ctx.Err() == nil {
		return q.Next(ctx)
	}
	return d, err
}

func (s *deployment) submitThreeTurns() state.RunID {
	s.t.Helper()
	return s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), call("one", "c2"), model.Scripted{Text: "end"})
}

// With several workers, the next turn of a run stays with the worker that took the last one, and its message is on the
// bus.
func TestNextTurnIsSticky(t *testing.T) {
	t.Parallel()
	b := &stickyBus{}
	registry := prometheus.NewRegistry()
	besideAnother(t, b, func(cfg *worker.Config) { cfg.Registry = registry }, func(s *deployment, _ func()) {
		id := s.submitThreeTurns()
		s.awaitReason(id, state.EndCompleted)
		if got, want := begun(s.t, registry), map[string]float64{"lane new": 1, "sticky memory": 2}; !maps.Equal(got, want) {
			s.t.Errorf("turns begun by queue and log: %v, want %v", got, want)
		}
		if got := s.workers(id); !slices.Equal(got, []string{"w1"}) {
			s.t.Errorf("the turns were taken by %v, want w1 only", got)
		}
		if got := b.sticky(); !slices.Equal(got, []bool{true, true}) {
			s.t.Errorf("sticky turns: %v, want two", got)
		}
		if n, err := s.bus.Lag(s.t.Context()); n != 0 || err != nil {
			s.t.Errorf("%d messages are left, %v", n, err)
		}
	})
}

// begun returns the values of the metric turnpike_turns_begun_total by queue and log.
func begun(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	turns := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "turnpike_turns_begun_total" { // its labels are in alphabetical order
				turns[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return turns
}

// A worker without a free slot, one without a queue of its own, and one that may not have one, publish the next turn in
// the lane.
func TestNextTurnIsNotSticky(t *testing.T) {
	t.Parallel()
	for name, tune := range map[string]func(b *stickyBus, cfg *worker.Config){
		"no free slot":         func(_ *stickyBus, cfg *worker.Config) { cfg.Slots = 1 },
		"no permission":        func(b *stickyBus, _ *worker.Config) { b.open = func() error { return errors.New("not permitted") } },
		"taken out":            func(_ *stickyBus, cfg *worker.Config) { cfg.Without.Sticky = true },
		"without eager claims": func(_ *stickyBus, cfg *worker.Config) { cfg.Without.EagerClaims = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &stickyBus{}
			besideAnother(t, b, func(cfg *worker.Config) { tune(b, cfg) }, func(s *deployment, _ func()) {
				s.awaitReason(s.submitThreeTurns(), state.EndCompleted)
				if got := b.sticky(); slices.Contains(got, true) || len(got) == 0 {
					s.t.Errorf("sticky turns: %v, want none", got)
				}
			})
		})
	}
}

// A worker that is alone gets the next turn from the lane.
func TestNextTurnOfALoneWorker(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		b := &stickyBus{Bus: s.bus, gate: make(chan struct{}), dead: make(chan struct{})}
		close(b.gate)
		s.workWith(l, b, cfg)
		time.Sleep(listen)
		s.awaitReason(s.submitThreeTurns(), state.EndCompleted)
		if got := b.sticky(); !slices.Equal(got, []bool{false, false}) {
			s.t.Errorf("sticky turns: %v, want none of two", got)
		}
	})
}

// A worker that has more than its share of the turns in flight publishes the next ones in the lane, so that the other
// worker gets them.
func TestWorkerOverItsShare(t *testing.T) {
	t.Parallel()
	b := &stickyBus{}
	besideAnother(t, b, func(cfg *worker.Config) { cfg.Slots = 8 }, func(s *deployment, _ func()) {
		hold := newBlocking()
		s.tools["hold"] = hold
		for range 4 { // w2 has as many slots, and none in flight
			s.submit(state.Limits{}, []agent.Tool{{Name: "hold"}}, call("hold", "c1"), model.Scripted{Text: "end"})
		}
		for range 4 {
			<-hold.started
		}
		time.Sleep(time.Second) // for heartbeats
		s.awaitReason(s.submitThreeTurns(), state.EndCompleted)
		if got := b.sticky(); !slices.Contains(got, false) || slices.Contains(got, true) {
			s.t.Errorf("sticky turns: %v, want none", got)
		}
		close(hold.release)
	})
}

// On a worker that tenants share, the turns of a noisy tenant stay in their lane, and those of others are sticky.
func TestTurnsOfNoisyTenantsAreNotSticky(t *testing.T) {
	t.Parallel()
	b := &stickyBus{slots: 1}
	besideAnother(t, b, func(cfg *worker.Config) { cfg.Slots = 8 }, func(s *deployment, _ func()) {
		hold := newBlocking()
		s.tools["hold"] = hold
		s.tenant = "loud"
		for range 3 {
			s.publishOf(s.create(state.Limits{}, []agent.Tool{{Name: "hold"}}, call("hold", "c1"), model.Scripted{Text: "end"}), "loud", false)
			<-hold.started
		}
		turns := func(tenant string) {
			s.t.Helper()
			s.tenant = tenant
			id := s.create(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), call("one", "c2"), model.Scripted{Text: "end"})
			s.publishOf(id, tenant, false)
			s.awaitReason(id, state.EndCompleted)
		}
		turns(state.DefaultTenant)
		turns("loud")
		if got := b.sticky(); !slices.Equal(got, []bool{true, true, false, false}) {
			s.t.Errorf("sticky turns: %v, want the two of the quiet tenant only", got)
		}
		close(hold.release)
	})
}

// A worker that stops publishes the turns of its own queue in their lanes, and another worker takes them before the
// redelivery delay and without a sweep.
func TestStickyTurnOfAStoppedWorker(t *testing.T) {
	t.Parallel()
	b := &stickyBus{holds: true}
	besideAnother(t, b, func(cfg *worker.Config) {
		cfg.RedeliveryDelay, cfg.SweepInterval = time.Hour, time.Hour
	}, func(s *deployment, stop func()) {
		id := s.submitThreeTurns()
		s.await(id, "a sticky turn", func(state.State) bool { return len(b.sticky()) == 1 })
		began := time.Now()
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		time.Sleep(time.Millisecond) // it has stopped to take turns
		close(b.gate)
		s.awaitReason(id, state.EndCompleted)
		<-stopped
		if took := time.Since(began); took > time.Minute {
			s.t.Errorf("the run took %s more", took)
		}
		if got := s.workers(id); !slices.Equal(got, []string{"w1", "w2"}) {
			s.t.Errorf("the turns were taken by %v, want w1 and then w2", got)
		}
	})
}

// A turn of the worker's own queue that gets no slot goes to another worker.
func TestStickyTurnWithoutASlot(t *testing.T) {
	t.Parallel()
	b := &stickyBus{holds: true}
	besideAnother(t, b, func(cfg *worker.Config) { cfg.Slots, cfg.RedeliveryDelay = 2, time.Hour }, func(s *deployment, _ func()) {
		hold := newBlocking()
		s.tools["hold"] = hold
		id := s.submitThreeTurns()
		s.await(id, "a sticky turn", func(state.State) bool { return len(b.sticky()) == 1 })
		for range 2 {
			s.submit(state.Limits{}, []agent.Tool{{Name: "hold"}}, call("hold", "c1"), model.Scripted{Text: "end"})
			<-hold.started
		}
		close(b.gate)
		s.awaitReason(id, state.EndCompleted)
		if got := s.workers(id); !slices.Equal(got, []string{"w1", "w2"}) {
			s.t.Errorf("the turns were taken by %v, want w1 and then w2", got)
		}
		close(hold.release)
	})
}

// A turn that cannot be given back stays in the worker's own queue, which delivers it again after the ack wait: no
// sweep is needed. Then it is given back, and nothing is left.
func TestStickyTurnThatIsNotGivenBack(t *testing.T) {
	t.Parallel()
	b := &stickyBus{holds: true}
	besideAnother(t, b, func(cfg *worker.Config) {
		cfg.Slots, cfg.RedeliveryDelay, cfg.SweepInterval = 2, time.Hour, time.Hour
	}, func(s *deployment, _ func()) {
		hold := newBlocking()
		s.tools["hold"] = hold
		id := s.submitThreeTurns()
		s.await(id, "a sticky turn", func(state.State) bool { return len(b.sticky()) == 1 })
		for range 2 {
			s.submit(state.Limits{}, []agent.Tool{{Name: "hold"}}, call("hold", "c1"), model.Scripted{Text: "end"})
			<-hold.started
		}
		b.back.Store(1)
		close(b.gate)
		s.awaitReason(id, state.EndCompleted)
		if got := s.workers(id); !slices.Equal(got, []string{"w1", "w2"}) || b.back.Load() >= 0 {
			s.t.Errorf("the turns were taken by %v, want w1 and then w2 after a turn that was not given back", got)
		}
		synctest.Wait() // for the acknowledgements
		if n, err := s.bus.Lag(s.t.Context()); n != 2 || err != nil {
			s.t.Errorf("%d messages are left, %v, want those of the two runs that go on", n, err)
		}
		close(hold.release)
	})
}

// The turns in the own queue of a worker that died reach another worker with its eviction.
func TestStickyTurnOfADeadWorker(t *testing.T) {
	t.Parallel()
	b := &stickyBus{holds: true}
	besideAnother(t, b, func(cfg *worker.Config) { cfg.RedeliveryDelay = time.Hour }, func(s *deployment, _ func()) {
		id := s.submitThreeTurns()
		s.await(id, "a sticky turn", func(state.State) bool { return len(b.sticky()) == 1 })
		close(b.dead)
		s.awaitReason(id, state.EndCompleted)
		if got := s.workers(id); !slices.Equal(got, []string{"w1", "w2"}) {
			s.t.Errorf("the turns were taken by %v, want w1 and then w2", got)
		}
	})
}

// A worker that is added gets its share of the turns, although each run is sticky: the others publish in the lanes what
// exceeds theirs, and NATS delivers it to the workers in turn.
func TestAddedWorkerGetsItsShare(t *testing.T) {
	t.Parallel()
	const runs, turns = 48, 60
	s := newDeployment(t)
	s.tools["wait"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		select {
		case <-time.After(30 * time.Millisecond): // most turns wait for models and tools
		case <-ctx.Done():
		}
		return tool.Result{Content: "1"}, nil
	})
	nc := testbed.NATS(t)
	start := func() *natsbus.Bus {
		b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "share"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		cfg := s.config()
		cfg.Slots, cfg.RedeliveryDelay, cfg.SweepInterval, cfg.HeartbeatInterval = 64, time.Minute, time.Second, 100*time.Millisecond
		cfg.Without.EagerClaims, cfg.Without.Sticky = false, false
		s.workWith(s.store, b, cfg)
		return b
	}
	b := start()
	start()
	var responses []model.Scripted
	for i := range turns {
		responses = append(responses, call("wait", fmt.Sprint("c", i)))
	}
	responses = append(responses, model.Scripted{Text: "end"})
	var ids []state.RunID
	for range runs {
		id := s.create(state.Limits{MaxTurns: 2 * turns}, []agent.Tool{{Name: "wait"}}, responses...)
		if err := b.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	s.await(ids[runs-1], "some turns", func(st state.State) bool { return st.Turn > turns/6 })
	start()
	last := map[string]int{}
	for _, id := range ids {
		s.awaitReason(id, state.EndCompleted)
		log, err := s.store.Log(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log {
			if e.Worker != "" && e.Turn > turns*2/3 {
				last[e.Worker]++
			}
		}
	}
	all := last["w1"] + last["w2"] + last["w3"]
	for _, name := range []string{"w1", "w2", "w3"} {
		if last[name] < all/10 { // heartbeats are late on a busy machine
			t.Errorf("of the last third of all turns the workers have %v, want about a third each", last)
		}
	}
}
