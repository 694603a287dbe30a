package gateway

import (
	"container/list"
	"sync"
	"time"
)

const (
	// lookAfter is how long a request with ?wait relies on hints before it looks at the store.
	lookAfter = time.Second

	// lookEvery is the pause between two such looks of all requests together, and hurryEvery
	// that after one which has found that a hint was lost: others may have been, too.
	lookEvery  = 100 * time.Millisecond
	hurryEvery = 2 * time.Millisecond
)

// waiters are the requests that wait for a run to come to rest. Hints of the bus tell each when
// to look at the store. For hints that are lost they take turns: so many looks a second come
// from here, and no more, however many wait.
type waiters struct {
	mu    sync.Mutex
	queue list.List     // of *waiter: who has looked longest ago is the first
	none  chan struct{} // closed with the last waiter; nil: there is none
	hurry time.Time     // who has not looked since is to do so soon
}

type waiter struct {
	all    *waiters
	place  *list.Element
	looked time.Time
	turn   chan struct{} // to look
}

// join adds a waiter that is about to look.
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

// leave takes a waiter off. lost says that no hint has told it what it has found.
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

// looks notes that a waiter looks now.
func (one *waiter) looks() {
	w := one.all
	w.mu.Lock()
	defer w.mu.Unlock()
	one.looked = time.Now()
	w.queue.MoveToBack(one.place)
}

// giveTurns tells one waiter after another to look, until there is none.
func (w *waiters) giveTurns(none <-chan struct{}) {
	pause := time.NewTimer(lookEvery)
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

// next gives a turn to who has looked longest ago, if that is long ago, and returns how long to
// wait for the next.
func (w *waiters) next() (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.queue.Front()
	if first == nil {
		return lookEvery
	}
	one := first.Value.(*waiter) //nolint:forcetypeassert // see queue
	pause = lookEvery
	if one.looked.Before(w.hurry) {
		pause = hurryEvery
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
