package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// asking is how long a slot that others want is held while the bus is asked: longer than
// it takes to answer, and nothing beside a turn. A lane that has run dry costs it once.
const asking = 2 * time.Millisecond

// next returns a message of a lane, with a slot for it. It asks for no more messages than
// slots are free, so that an idle worker elsewhere gets what this one could only hold.
func (w *Worker) next(ctx context.Context, lane bus.Lane, queue bus.TurnQueue) (bus.TurnDelivery, error) {
	waited, err := w.slot(ctx, lane, queue)
	if err != nil {
		return nil, err
	}
	queue.Ahead(w.cfg.Slots - 1 - int(w.taken.Load()))
	if waited {
		// Others want this slot, too. Given up before it is known what the lane has, it
		// would be theirs, and each lane would get every other slot whatever its weight.
		brief, cancel := context.WithTimeout(ctx, asking)
		d, err := queue.Next(brief)
		cancel()
		if err == nil {
			return d, nil
		}
	}
	w.slots.release()
	d, err := queue.Next(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := w.slot(ctx, lane, queue); err != nil {
		w.check(d.Nak(0), "nak")
		return nil, err
	}
	return d, nil
}

// slot takes a slot, and reports whether it had to wait. While none is free, the queue
// keeps nothing for this worker.
func (w *Worker) slot(ctx context.Context, lane bus.Lane, queue bus.TurnQueue) (waited bool, err error) {
	if w.slots.tryAcquire() {
		return false, nil
	}
	queue.Ahead(0)
	return true, w.slots.acquire(ctx, lane)
}

// slots are the turns that may be under way at once. While none is free, the lanes that
// wait share by weight those that become free: none waits for ever, and a lane that was
// idle has no claim to what it did not use.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []waiter

	// clocks of lanes go on with each slot that they have waited for. The lane that is
	// furthest behind gets the next, and now is where that one was.
	clocks map[bus.Lane]int
	now    int
}

type waiter struct {
	lane bus.Lane
	got  chan struct{}
}

func newSlots(n int) *slots { return &slots{free: n, clocks: map[bus.Lane]int{}} }

// stride is how far a slot moves the clock of a lane. Of seven slots high gets four,
// normal two and low one; a crowd has as many as the lane beside it.
func stride(l bus.Lane) int {
	switch l.Priority {
	case state.High:
		return 1
	case state.Low:
		return 4
	default:
		return 2
	}
}

// tryAcquire takes a slot if one is free.
func (s *slots) tryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

// acquire waits for a slot until ctx ends.
func (s *slots) acquire(ctx context.Context, l bus.Lane) error {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	got := make(chan struct{})
	s.waiting = append(s.waiting, waiter{l, got})
	s.mu.Unlock()
	select {
	case <-got:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.IndexFunc(s.waiting, func(w waiter) bool { return w.got == got })
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.release() // it came at the same moment
	}
	return ctx.Err()
}

// release gives a slot back, to whoever is to have it next.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	next := 0
	for i, w := range s.waiting {
		if s.at(w.lane) < s.at(s.waiting[next].lane) {
			next = i
		}
	}
	w := s.waiting[next]
	s.waiting = slices.Delete(s.waiting, next, next+1)
	s.now = s.at(w.lane)
	s.clocks[w.lane] = s.now + stride(w.lane)
	close(w.got)
}

// at is the clock of a lane that waits.
func (s *slots) at(l bus.Lane) int { return max(s.clocks[l], s.now) }
