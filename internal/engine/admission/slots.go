package admission

import (
	"context"
	"slices"
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Slots are the turns that may be in flight at once. While none is free, the queues with waiting turns share the
// released slots by weight, and a queue that was idle gets no extra slots for that time.
//
// On a worker that tenants share, a queue for noisy tenants gets a slot only if more than a tenth of all slots, rounded
// down, are free, so it may get none while turns of other queues wait. Without this rule, a tenant whose calls do not
// return would hold every slot until their time limits.
//
// Slots is safe for concurrent use.
type Slots struct {
	kept   int
	shared func() bool

	mu      sync.Mutex
	free    int
	waiting []waiter

	// clocks advance with each slot that a queue has waited for. The queue that is furthest behind
	// gets the next slot, and now is the clock of that queue.
	clocks map[bus.QueueKey]int
	now    int
}

type waiter struct {
	key bus.QueueKey
	got chan struct{}
}

// NewSlots returns n slots; shared reports whether tenants share the worker.
func NewSlots(n int, shared func() bool) *Slots {
	return &Slots{free: n, kept: n / 10, shared: shared, clocks: map[bus.QueueKey]int{}}
}

// stride is the amount that a slot adds to the clock of a queue. Seven slots divide into four for
// high, two for normal and one for low. Both queues of a lane get the same number.
func stride(l bus.QueueKey) int {
	switch l.Lane {
	case state.High:
		return 1
	case state.Low:
		return 4
	default:
		return 2
	}
}

// TryAcquire takes a slot for a turn of a queue if it may have one now, and reports whether it did.
func (s *Slots) TryAcquire(l bus.QueueKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freeFor(l) <= 0 {
		return false
	}
	s.free--
	return true
}

// Free returns how many turns of a queue may have a slot now.
func (s *Slots) Free(l bus.QueueKey) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.freeFor(l))
}

// freeFor is the number of slots that turns of a queue may take, or less than 0. The caller holds mu.
func (s *Slots) freeFor(l bus.QueueKey) int {
	if l.Noisy && s.shared() {
		return s.free - s.kept
	}
	return s.free
}

// Acquire waits for a slot, for a turn of a queue, until ctx ends. If it returns nil, the caller must call
// Release; otherwise the error is that of ctx.
func (s *Slots) Acquire(ctx context.Context, l bus.QueueKey) error {
	s.mu.Lock()
	if s.freeFor(l) > 0 {
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
		s.Release() // this caller got it at the same moment
	}
	return ctx.Err()
}

// Release returns a slot. If queues wait that may have it, the next of them gets it.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	next := -1
	for i, w := range s.waiting {
		if s.freeFor(w.key) > 0 && (next < 0 || s.at(w.key) < s.at(s.waiting[next].key)) {
			next = i
		}
	}
	if next < 0 {
		return
	}
	w := s.waiting[next]
	s.waiting = slices.Delete(s.waiting, next, next+1)
	s.free--
	s.now = s.at(w.key)
	s.clocks[w.key] = s.now + stride(w.key)
	close(w.got)
}

// at is the clock of a queue that waits.
func (s *Slots) at(l bus.QueueKey) int { return max(s.clocks[l], s.now) }
