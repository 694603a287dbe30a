package stream

import (
	"container/list"
	"sync"
	"time"
)

const (
	// lookAfter bounds how long a waiter relies on notices before it reads the store.
	lookAfter = time.Second

	// lookPause is the time between two such reads by all waiters together, and hurryPause that time after a read has
	// shown that a notice was lost, because others may be lost also.
	lookPause  = 100 * time.Millisecond
	hurryPause = 2 * time.Millisecond
)

// waiters are the requests that wait for runs. A waiter reads the store first, and after a notice from the bus about
// its run. Because notices may be lost, the waiters also take turns to read the store. The pauses between these turns
// (lookPause, hurryPause) bound their number per second, however many waiters there are.
type waiters struct {
	mu    sync.Mutex
	queue list.List     // *waiter values, the one with the oldest read first
	none  chan struct{} // closed with the last waiter; nil: there are none
	hurry time.Time     // waiters that have not read the store since must do so soon
}

type waiter struct {
	all    *waiters
	place  *list.Element
	looked time.Time
	turn   chan struct{} // receives a value when the waiter must read the store
}

// join adds a waiter that is about to read the store. The caller must call leave.
func (w *waiters) join() *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &waiter{all: w, looked: time.Now(), turn: make(chan struct{}, 1)}
	one.place = w.queue.PushBack(one)
	if w.none == nil {
		w.none = make(chan struct{})
		go w.giveTurns(w.none) // ends with the last waiter
	}
	return one
}

// leave removes a waiter. lost reports that the waiter found the end of its run without a notice.
func (one *waiter) leave(lost bool) {
	w := one.all
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.Remove(one.place)
	if w.queue.Len() == 0 {
		close(w.none)
		w.none = nil
	}
	if lost {
		w.hurry = time.Now()
	}
}

// looks records that a waiter reads the store now.
func (one *waiter) looks() {
	w := one.all
	w.mu.Lock()
	defer w.mu.Unlock()
	one.looked = time.Now()
	w.queue.MoveToBack(one.place)
}

// giveTurns gives the waiters turns to read the store, until the last one leaves.
func (w *waiters) giveTurns(none <-chan struct{}) {
	pause := time.NewTimer(lookPause)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
			pause.Reset(w.next())
		case <-none:
			return
		}
	}
}

// next gives a turn to the waiter with the oldest read, if that is old enough. It returns the time until the next call.
func (w *waiters) next() (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.queue.Front()
	if first == nil {
		return lookPause
	}
	one := first.Value.(*waiter) //nolint:forcetypeassert // see queue
	pause = lookPause
	if one.looked.Before(w.hurry) {
		pause = hurryPause
	} else if time.Since(one.looked) < lookAfter {
		return pause
	}
	one.looked = time.Now()
	w.queue.MoveToBack(first)
	select {
	case one.turn <- struct{}{}:
	default:
	}
	return pause
}
