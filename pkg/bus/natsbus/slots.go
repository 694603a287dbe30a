package natsbus

import (
	"context"
	"math/rand/v2"
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
	own     map[string]bool // names of the workers of this process
	place   place           // see where
	most    int             // maximum number of unacknowledged messages of a queue in a stream
	raised  bool            // most is higher than in the consumers' configuration
}

type workerSlots struct {
	slots, turns int
	stopping     bool
	at           time.Time
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
	if h.Gateway {
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
	turns := 0
	for _, n := range h.Turns {
		turns += n
	}
	s.workers[h.Worker] = workerSlots{h.Slots, turns, h.Stopping, now}
	if known || s.asked > 0 {
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

// raisePending updates the consumers of turns for more slots, if they need it. All workers notice at the same time that
// they do, so about one of them tries in each second: an update writes a file. The last consumer is updated after all others: if it has the
// limit, another process has done it.
func (ts *turnStreams) raisePending(ctx context.Context) {
	ts.slots.mu.Lock()
	raised, workers := ts.slots.raised, len(ts.slots.workers)
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
	most, last := specs[0].config.MaxAckPending, specs[len(specs)-1]
	c, err := ts.js.Consumer(ctx, last.stream, last.config.Durable)
	if err != nil || !last.enough(c.CachedInfo().Config.MaxAckPending) {
		if workers > 1 && rand.IntN(workers) > 0 { //nolint:gosec // not a secret
			return // it tries again in a second
		}
		if err = ts.ensureConsumers(ctx, specs[:len(specs)-1]); err == nil {
			err = ts.ensureConsumer(ctx, last)
		}
	}
	if err != nil {
		ts.log.Warn("max ack pending of NATS consumers not raised, so slots may stay empty; this process retries", "error", err, "hint", "do what the error says; if it has no remedy, check that NATS is reachable and permits this process to change consumers")
		return
	}
	ts.slots.mu.Lock()
	defer ts.slots.mu.Unlock()
	ts.slots.raised = ts.slots.most > most // more workers may have come
}
