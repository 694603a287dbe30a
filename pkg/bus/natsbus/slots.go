package natsbus

import (
	"context"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// minAckPending is how many messages of a queue are handed out at once at least, unless
// Config says otherwise.
const minAckPending = 50_000

// slots knows how many turns all workers together may have in flight, as their heartbeats
// tell. A stream that hands out fewer messages would leave slots empty.
type slots struct {
	asked int // Config.MaxAckPending

	mu      sync.Mutex
	workers map[string]workerSlots
	most    int  // messages that a queue of a stream may have to hand out at once
	raised  bool // most is higher than consumers were told
}

type workerSlots struct {
	slots int
	at    time.Time
}

// forgetSlots is for how long a worker counts that is not heard any more.
const forgetSlots = time.Minute

// pending returns MaxAckPending of a queue of turns, and whether that is what it has to be
// and not the least.
func (s *slots) pending() (n int, exactly bool) {
	if s.asked > 0 {
		return s.asked, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.most, minAckPending), false
}

// hear takes a heartbeat in, and reports whether consumers must be told of more slots.
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
	// All of a lane's turns may be in one stream. A worker has some in hand beside its slots.
	// By steps, so that not every worker that comes changes all consumers.
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

// raisePending tells the consumers of turns of more slots, if they have not been.
func (b *Bus) raisePending(ctx context.Context) {
	b.slots.mu.Lock()
	raised := b.slots.raised
	b.slots.raised = false
	b.slots.mu.Unlock()
	if !raised {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var specs []consumerSpec
	for _, key := range bus.QueueKeys() {
		specs = append(specs, b.queueSpecs(key, &layout{Streams: b.layout.Load().Streams})...)
	}
	if err := b.ensureConsumers(ctx, specs); err != nil {
		b.log.Warn("max ack pending not raised", "error", err, "hint", "let this process change consumers; it retries, and slots may stay empty until then")
		b.slots.mu.Lock()
		b.slots.raised = true
		b.slots.mu.Unlock()
	}
}
