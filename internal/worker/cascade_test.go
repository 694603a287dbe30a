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

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// defaults resets cfg's intervals to those of a worker that sets none.
func defaults(cfg worker.Config) worker.Config {
	cfg.SweepInterval, cfg.RedeliveryDelay, cfg.HeartbeatInterval, cfg.ShutdownGrace = time.Second, 5*time.Second, 300*time.Millisecond, time.Second
	return cfg
}

// slowAgent stores an agent that answers after delay.
func slowAgent(t *testing.T, store state.Store, delay time.Duration) state.AgentVersion {
	t.Helper()
	def, err := json.Marshal(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "done", Delay: model.Duration(delay)}}}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := store.PutAgent(t.Context(), state.DefaultTenant, "a", def, false)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// queued stores a run of the agent with a worker's default redelivery delay.
func queued(t *testing.T, store state.Store, v state.AgentVersion) state.RunID {
	t.Helper()
	return queuedFor(t, store, v, 5*time.Second)
}

// queuedFor stores a run of the agent that becomes due for a sweep after delay.
func queuedFor(t *testing.T, store state.Store, v state.AgentVersion, delay time.Duration) state.RunID {
	t.Helper()
	run := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: v.Version, Loop: "react", Tenant: "default",
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20},
	}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{input}})
	if err == nil {
		_, err = store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: delay})
	}
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// slowBus takes a while to publish each turn message, like a stream with three replicas. Its worker can be
// killed.
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

func (b *slowBus) SendHeartbeat(heartbeat bus.Heartbeat) {
	if !b.dead.Load() {
		b.Bus.SendHeartbeat(heartbeat)
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

// evictions is the store of a worker that can be killed. All copies record in one place which workers were
// evicted.
type evictions struct {
	state.Store

	bus *slowBus
	mu  *sync.Mutex
	ids map[string]bool
}

func (e *evictions) Heartbeat(ctx context.Context, id string, lasts time.Duration) error {
	if e.bus.dead.Load() {
		return errors.New("killed")
	}
	return e.Store.Heartbeat(ctx, id, lasts)
}

func (e *evictions) Evict(ctx context.Context, id string, limit int, delay time.Duration) ([]state.Due, error) {
	due, err := e.Store.Evict(ctx, id, limit, delay)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids[id] = e.ids[id] || len(due) > 0
	return due, err
}

// When a worker with a thousand runs dies, the other workers do not evict each other, however long they take to
// resume its runs.
func TestOneDeathIsOneEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 1000
		s := newDeployment(t)
		var mu sync.Mutex
		evicted := map[string]bool{}
		var buses []*slowBus
		start := func() {
			cfg := defaults(s.config())
			cfg.ShutdownGrace, cfg.Slots, cfg.LeaseDuration = 20*time.Second, slots, 25*time.Second
			b := &slowBus{Bus: s.bus, each: 3 * time.Millisecond} // measured with three replicas and every write synced
			buses = append(buses, b)
			s.workWith(&evictions{s.store, b, &mu, evicted}, b, cfg)
		}
		v := slowAgent(t, s.store, 90*time.Second)
		publish := func() {
			for range slots {
				id := queued(t, s.store, v)
				if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
					t.Fatal(err)
				}
			}
		}
		start()                     // the first worker takes a thousand runs before other workers exist
		time.Sleep(3 * time.Second) // the bubble's clock, as below
		publish()
		time.Sleep(10 * time.Second)
		start()
		start()
		time.Sleep(3 * time.Second)
		publish()
		time.Sleep(10 * time.Second)
		buses[0].dead.Store(true)
		time.Sleep(60 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if !evicted["w1"] {
			t.Error("the dead worker was not evicted")
		}
		for _, id := range []string{"w2", "w3"} {
			if evicted[id] {
				t.Errorf("live worker %s was evicted", id)
			}
		}
		buses[0].dead.Store(false)
	})
}
