//go:build hunt

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// The tests in this file show known defects of many runs at once. They fail until the
// defect that each one names is mended: `make hunt` runs them, `make verify` sees that
// they compile. Who mends one moves its test to the package's other tests.

// defaults are the times of a worker that sets none.
func defaults(cfg worker.Config) worker.Config {
	cfg.SweepEvery, cfg.RedeliveryDelay, cfg.HeartbeatEvery, cfg.ShutdownGrace = time.Second, 5*time.Second, 300*time.Millisecond, time.Second
	return cfg
}

// huntAgent stores an agent that answers after delay.
func huntAgent(t *testing.T, store state.Store, delay time.Duration) state.AgentVersion {
	t.Helper()
	def, err := json.Marshal(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "done", Delay: model.Duration(delay)}}}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := store.PutAgent(t.Context(), "a", def)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// huntRun stores a run of the agent with the worker's default redelivery delay. It waits
// until a time unless that is zero.
func huntRun(t *testing.T, store state.Store, v state.AgentVersion, until time.Time) state.RunID {
	t.Helper()
	now := state.At(time.Now())
	run := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: v.Version, Loop: "react", Tenant: "default",
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20},
	}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	run, err := run.Move(state.Submitted, state.Entry{At: now, Messages: []state.Message{input}})
	if err != nil {
		t.Fatal(err)
	}
	if !until.IsZero() {
		at := state.At(until)
		run.ResumeAt = at
		run, err = run.Move(state.WaitingSchedule, state.Entry{At: now, Detail: "start_at", Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: now, ExpiresAt: at, Calls: []state.WaitCall{}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return run.ID
}

func huntStream(t *testing.T, nc *nats.Conn, name string) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// orphan is the store of the worker that starts a child. It pauses before it creates the
// child until before returns; then one read of the parent fails.
type orphan struct {
	state.Store

	parent  atomic.Value
	before  func()
	once    sync.Once
	failing atomic.Bool
}

func (o *orphan) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.State.Parent != nil {
		o.once.Do(func() { o.before(); o.failing.Store(true) })
	}
	return o.Store.Create(ctx, n)
}

func (o *orphan) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if p, _ := o.parent.Load().(state.RunID); p == id && o.failing.CompareAndSwap(true, false) {
		return state.State{}, errors.New("i/o timeout")
	}
	return o.Store.Load(ctx, id)
}

// Finding 3: the child of an aborted parent runs on, with its effects, if the worker that
// created it cannot read the parent afterwards.
func TestHuntOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		var paid atomic.Int32
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
			paid.Add(1)
			return tool.Result{Content: "paid"}, nil
		})
		s.define(agent.Definition{Name: "researcher", Tools: []agent.Tool{{Name: "pay"}}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("pay", "p1"), {Text: "found"}}}})
		created := make(chan struct{})
		o := &orphan{Store: s.store}
		o.before = func() {
			id, _ := o.parent.Load().(state.RunID)
			s.work(s.config()) // another worker, whose store answers
			s.abort(id)
			s.awaitReason(id, state.EndAbortedWaiting)
			close(created)
		}
		cfg := s.config()
		id := s.create(state.Limits{}, []agent.Tool{researcher}, delegation("a"), model.Scripted{Text: "done"})
		o.parent.Store(id)
		s.workOn(o, cfg)
		s.start(id)
		<-created
		time.Sleep(time.Minute) // the bubble's
		children := s.children(id)
		if len(children) == 0 {
			t.Fatal("the parent has no child")
		}
		for _, c := range children {
			if c.Status == state.Completed || paid.Load() > 0 {
				t.Errorf("the child of an aborted run is %s (%s) and made %d payments", c.Status, c.Transition.Reason, paid.Load())
			}
		}
	})
}

// Finding 6: a run whose messages are gone from the stream, by a power cut, a purge or a
// backup, while a worker lives, stops every sweeper of a JetStream store.
func TestHuntGhost(t *testing.T) {
	s := newDeployment(t)
	nc := testbed.NATS(t)
	store, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: "ghost"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s.store = store
	ghost := s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
	stream := huntStream(t, nc, "GHOST_STATE")
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("ghost.state.run."+string(ghost))); err != nil {
		t.Fatal(err)
	}
	// The first messages of these were lost: the sweeper is to find the runs.
	var ids []state.RunID
	for range 20 {
		ids = append(ids, s.create(state.Limits{}, nil, model.Scripted{Text: "done"}))
	}
	s.work(s.config())
	for _, id := range ids {
		s.awaitReason(id, state.EndCompleted)
	}
}

// Finding 7: queued runs count as lost, so the sweeper publishes their turns again and
// again under ids that are never taken for copies.
func TestHuntBacklog(t *testing.T) {
	const runs = 500
	s := newDeployment(t)
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "backlog"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	v := huntAgent(t, s.store, 2*time.Second)
	for range runs {
		id := huntRun(t, s.store, v, time.Time{})
		if err := b.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
			t.Fatal(err)
		}
	}
	cfg := defaults(s.config())
	cfg.Slots = 5
	s.workWith(s.store, b, cfg)
	// Some redelivery delays later.
	s.awaitCounts(func(c map[state.Status]int64) bool { return c[state.Completed] >= 50 })
	info, err := huntStream(t, nc, "BACKLOG_TURNS").Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs > runs {
		t.Errorf("%d runs were submitted, at least 50 have ended, and %d messages wait in the stream of turns", runs, info.State.Msgs)
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

// slowBus takes a while for each turn's message, like a stream with three replicas. Its
// worker may be killed.
type slowBus struct {
	bus.Bus

	each time.Duration
	dead atomic.Bool
}

func (b *slowBus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	if b.dead.Load() {
		return errors.New("killed")
	}
	time.Sleep(b.each)
	return b.Bus.PublishTurn(ctx, t, id)
}

func (b *slowBus) Beat(beat bus.Heartbeat) {
	if !b.dead.Load() {
		b.Bus.Beat(beat)
	}
}

func (b *slowBus) Turns(ctx context.Context, lane bus.QueueKey) (bus.TurnQueue, error) {
	q, err := b.Bus.Turns(ctx, lane)
	return &deadQueue{q, b}, err
}

type deadQueue struct {
	bus.TurnQueue

	b *slowBus
}

func (q *deadQueue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	if q.b.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return q.TurnQueue.Next(ctx)
}

// evictions is a store that remembers whose runs were taken away.
type evictions struct {
	state.Store

	mu  sync.Mutex
	ids map[string]bool
}

func (e *evictions) Evict(ctx context.Context, id string, grace time.Duration) ([]state.Due, error) {
	e.mu.Lock()
	e.ids[id] = true
	e.mu.Unlock()
	return e.Store.Evict(ctx, id, grace)
}

// Finding 1: one of three workers dies, and the two others evict each other, because the
// goroutine that evicts the runs of a dead worker is the one that sends the heartbeats.
func TestHuntCascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 1000
		s := newDeployment(t)
		store := &evictions{Store: s.store, ids: map[string]bool{}}
		var buses []*slowBus
		for range 3 {
			cfg := defaults(s.config())
			cfg.ShutdownGrace, cfg.Slots, cfg.Lease = 20*time.Second, slots, 25*time.Second
			b := &slowBus{Bus: s.bus, each: 3 * time.Millisecond} // measured: three replicas, every write synced
			buses = append(buses, b)
			s.workWith(store, b, cfg)
		}
		time.Sleep(3 * time.Second) // the bubble's, as below
		v := huntAgent(t, s.store, 90*time.Second)
		for range 2 * slots {
			id := huntRun(t, s.store, v, time.Time{})
			if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		buses[0].dead.Store(true)
		time.Sleep(60 * time.Second)
		store.mu.Lock()
		defer store.mu.Unlock()
		if !store.ids["w1"] {
			t.Error("the dead worker was not evicted")
		}
		for _, id := range []string{"w2", "w3"} {
			if store.ids[id] {
				t.Errorf("worker %s lives and was evicted", id)
			}
		}
		buses[0].dead.Store(false)
	})
}
