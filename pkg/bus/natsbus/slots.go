package natsbus

import (
	"context"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// minAckPending is the minimum number of unacknowledged messages of a queue, unless Config
// overrides it.
const minAckPending = 50_000

// slots tracks the number of turns that all workers together may have in flight, from their
// heartbeats. A stream that delivers fewer messages would leave slots empty.
type slots struct {
	asked int // Config.MaxAckPending

	mu      sync.Mutex
	workers map[string]workerSlots
	most    int  // maximum number of unacknowledged messages of a queue in a stream
	raised  bool // most is higher than in the consumers' configuration
}

type workerSlots struct {
	slots int
	at    time.Time
}

// forgetSlots is the time that a worker counts after its last heartbeat.
const forgetSlots = time.Minute

// pending returns MaxAckPending of a queue of turns, and whether it is exact rather than a minimum.
func (s *slots) pending() (n int, exactly bool) {
	if s.asked > 0 {
		return s.asked, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.most, minAckPending), false
}

// hear records a heartbeat, and reports whether consumers need an update for more slots.
func (s *slots) hear(h bus.Heartbeat, now time.Time) bool {
	if h.Gateway || s.asked > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Leaving {
		delete(s.workers, h.Worker)
		return false
	}
	known := s.workers[h.Worker].slots == h.Slots
	if s.workers == nil {
		s.workers = map[string]workerSlots{}
	}
	s.workers[h.Worker] = workerSlots{h.Slots, now}
	if known {
		return false
	}
	all := 0
	for name, w := range s.workers {
		if now.Sub(w.at) > forgetSlots {
			delete(s.workers, name)
			continue
		}
		all += w.slots
	}
	// All of a lane's turns may be in one stream. A worker holds some messages in addition to its
	// slots. Doubling keeps each new worker from changing all consumers.
	most := minAckPending
	for most < all+all/4 {
		most *= 2
	}
	if most <= max(s.most, minAckPending) {
		return false
	}
	s.most, s.raised = most, true
	return true
}

// raisePending updates the consumers of turns for more slots, if they need it.
func (ts *turnStreams) raisePending(ctx context.Context) {
	ts.slots.mu.Lock()
	raised := ts.slots.raised
	ts.slots.raised = false
	ts.slots.mu.Unlock()
	if !raised {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var specs []consumerSpec
	for _, key := range bus.QueueKeys() {
		specs = append(specs, ts.queueSpecs(key, &layout{Streams: ts.layout.Load().Streams})...)
	}
	if err := ts.ensureConsumers(ctx, specs); err != nil {
		ts.log.Warn("max ack pending of NATS consumers not raised, so slots may stay empty; this process retries", "error", err, "hint", "do what the error says; if it has no remedy, check that NATS is reachable and permits this process to change consumers")
		ts.slots.mu.Lock()
		ts.slots.raised = true
		ts.slots.mu.Unlock()
	}
}
