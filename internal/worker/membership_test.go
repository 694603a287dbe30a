package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// hiccup is a store whose first eviction fails.
type hiccup struct {
	state.Store

	failed *atomic.Bool
}

func (h hiccup) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	if h.failed.CompareAndSwap(false, true) {
		return nil, errors.New("the store does not answer")
	}
	return h.Store.Evict(ctx, worker, limit, delay)
}

// A dead worker is evicted as soon as the store answers, also if the store did not answer when the worker's
// silence was noticed, and whether or not it was ever seen (I2).
func TestEvictionIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, heard := range map[string]bool{"heard": true, "never heard": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			id := s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
			c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "token", Worker: "ghost", Lease: time.Hour, RedeliveryDelay: time.Second})
			if err != nil || c.Outcome != state.Claimed {
				t.Fatalf("Claim = %s, %v", c.Outcome, err)
			}
			store := hiccup{s.store, &atomic.Bool{}}
			listening := make(chan struct{})
			stop, err := s.bus.Heartbeats(t.Context(), func(heartbeat bus.Heartbeat) {
				if heartbeat.Worker != "ghost" {
					select {
					case <-listening:
					default:
						close(listening)
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			cfg := s.config()
			cfg.HeartbeatInterval = 200 * time.Millisecond // a worker that stalls restarts its observation
			s.workOn(store, cfg)
			if heard {
				<-listening
				s.bus.SendHeartbeat(bus.Heartbeat{Worker: "ghost"})
			}
			s.awaitReason(id, state.EndCompleted)
			if !store.failed.Load() {
				t.Error("no worker tried to evict")
			}
		})
	}
}

// deafBus is a bus that delivers no heartbeats once it is deaf.
type deafBus struct {
	bus.Bus

	deaf *atomic.Bool
}

func (b deafBus) Heartbeats(ctx context.Context, fn func(bus.Heartbeat)) (func(), error) {
	return b.Bus.Heartbeats(ctx, func(h bus.Heartbeat) {
		if !b.deaf.Load() {
			fn(h)
		}
	})
}

// A worker that misses its own heartbeats evicts no other worker, even one that the store misses as well: its
// own subscription may be broken.
func TestDeafWorkerEvictsNoOther(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"deaf": true, "hearing": false} {
		amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
			b := deafBus{s.bus, &atomic.Bool{}}
			stop := s.workWith(l, b, cfg)
			defer stop()
			for range 10 {
				time.Sleep(cfg.HeartbeatInterval)
				s.bus.SendHeartbeat(bus.Heartbeat{Worker: "other", Format: state.Format})
			}
			id := s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
			c, err := s.store.Claim(s.t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "token", Worker: "other", Lease: time.Hour, RedeliveryDelay: time.Second})
			if err != nil || c.Outcome != state.Claimed {
				s.t.Fatalf("Claim = %s, %v", c.Outcome, err)
			}
			b.deaf.Store(deaf)
			time.Sleep(time.Minute)
			if st, err := s.store.Load(s.t.Context(), id); err != nil || (st.Status == state.Running) != deaf {
				s.t.Errorf("%s: a minute after the owner's last heartbeat the run is %s, %v", name, st.Status, err)
			}
		})
	}
}

// A worker that restarts under its id resumes its turns at once, although no other worker noticed its absence
// (I2).
func TestRestartUnderTheSameID(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
	cfg := s.config()
	c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "token", Worker: cfg.ID, Lease: time.Hour, RedeliveryDelay: time.Second})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	s.work(cfg)
	s.awaitReason(id, state.EndCompleted)
}
