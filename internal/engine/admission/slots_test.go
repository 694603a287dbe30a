package admission_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func shared() bool { return true }
func alone() bool  { return false }

var (
	high   = bus.QueueKey{Lane: state.High}
	normal = bus.QueueKey{Lane: state.Normal}
	low    = bus.QueueKey{Lane: state.Low}
)

// queues waits with n turns of a queue, and counts the slots that the queue gets.
func queues(t *testing.T, s *admission.Slots, key bus.QueueKey, n int, got map[bus.QueueKey]int) {
	t.Helper()
	for range n {
		go func() { // ends when the test's context ends
			if s.Acquire(t.Context(), key) == nil {
				got[key]++ // Release hands out one slot at a time
			}
		}()
	}
	synctest.Wait()
}

// releases returns a slot n times, each time after the turn that got it has noted that.
func releases(s *admission.Slots, n int) {
	for range n {
		s.Release()
		synctest.Wait()
	}
}

// Queues that wait share the slots 4 to 2 to 1, and a queue that was idle gets no more than its share afterwards.
func TestSlotsAreSharedByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := admission.NewSlots(1, alone)
		if !s.TryAcquire(normal) || s.TryAcquire(high) {
			t.Fatal("want one slot")
		}
		got := map[bus.QueueKey]int{}
		queues(t, s, high, 100, got)
		queues(t, s, normal, 100, got)
		releases(s, 30)
		if got[high] != 20 || got[normal] != 10 {
			t.Errorf("high got %d and normal %d of 30 slots, want 20 and 10", got[high], got[normal])
		}
		clear(got)
		queues(t, s, low, 100, got)
		releases(s, 28)
		if got[high] != 16 || got[normal] != 8 || got[low] != 4 {
			t.Errorf("high got %d, normal %d and low %d of 28 slots, want 16, 8 and 4", got[high], got[normal], got[low])
		}
	})
}

// A turn that no longer waits gets no slot.
func TestSlotOfATurnThatNoLongerWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := admission.NewSlots(1, alone)
		s.TryAcquire(normal)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- s.Acquire(ctx, high) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire = %v, want the error of the context", err)
		}
		s.Release()
		if !s.TryAcquire(normal) {
			t.Error("the slot is lost")
		}
		s.Release()
		if n := s.Free(normal); n != 1 {
			t.Errorf("%d slots are free, want 1", n)
		}
	})
}

// On a worker that tenants share, a tenth of the slots is kept from noisy tenants.
func TestSlotsOfNoisyTenants(t *testing.T) {
	t.Parallel()
	noisy := bus.QueueKey{Lane: state.Normal, Noisy: true}
	s := admission.NewSlots(20, shared)
	for range 18 {
		if !s.TryAcquire(noisy) {
			t.Fatal("a slot is refused")
		}
	}
	if s.TryAcquire(noisy) || s.Free(noisy) != 0 {
		t.Error("noisy tenants get the slots that are kept from them")
	}
	if !s.TryAcquire(normal) || s.Free(normal) != 1 {
		t.Error("another tenant gets no slot")
	}
	if n := admission.NewSlots(20, alone).Free(noisy); n != 20 {
		t.Errorf("a noisy tenant alone may have %d slots, want 20", n)
	}
}

// A noisy tenant that waits gets no kept slot when it is released, but another tenant that waits does.
func TestReleasedSlotsOfNoisyTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		noisy := bus.QueueKey{Lane: state.Normal, Noisy: true}
		s := admission.NewSlots(10, shared)
		for range 10 {
			s.TryAcquire(normal)
		}
		got := map[bus.QueueKey]int{}
		queues(t, s, noisy, 2, got)
		queues(t, s, low, 1, got)
		releases(s, 1)
		if got[noisy] != 0 || got[low] != 1 {
			t.Errorf("noisy tenants got %d and others %d slots, want the first slot for the others", got[noisy], got[low])
		}
		releases(s, 1)
		if got[noisy] != 0 || s.Free(normal) != 1 {
			t.Errorf("noisy tenants got %d slots, and %d are free, want the slot to be kept", got[noisy], s.Free(normal))
		}
		releases(s, 1)
		if got[noisy] != 1 || s.Free(normal) != 1 {
			t.Errorf("noisy tenants got %d slots, and %d are free, want 1 and 1", got[noisy], s.Free(normal))
		}
	})
}

// A turn that stops waiting when it gets a slot leaves the slot to others.
func TestSlotOfATurnThatStopsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := admission.NewSlots(1, alone)
		for range 100 { // either may be first
			s.TryAcquire(normal)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() { gone <- s.Acquire(ctx, high) }()
			synctest.Wait()
			cancel()
			s.Release()
			if <-gone == nil {
				s.Release()
			}
			if n := s.Free(normal); n != 1 {
				t.Fatalf("%d slots are free, want 1", n)
			}
		}
	})
}
