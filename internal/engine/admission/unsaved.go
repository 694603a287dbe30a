package admission

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// instant is the time after which a call in flight does not count any more: it has no outcome yet, so a crash
// would not lose one.
const instant = 5 * time.Millisecond

// Unsaved limits the outcomes of calls that only this worker has: responses of models or results of tools that the
// store does not have yet, and that a crash would lose. New calls wait while the limit is reached. So a store that is
// slower than models and tools delays their calls, instead of more and more outcomes collecting in memory. Unsaved is
// safe for concurrent use.
type Unsaved struct {
	mu      sync.Mutex
	limit   int
	count   int
	waiting list.List // of *Outcome, the oldest first
}

// Outcome is the outcome of a call, or of calls that run at once. The caller must call Returned when the calls
// have returned, and Saved at the end, also if it has made no call. On a nil Outcome both do nothing.
type Outcome struct {
	all   *Unsaved
	calls int
	timer *time.Timer
	ready chan struct{} // of an outcome that waits: its calls may start

	// Guarded by Unsaved.mu.
	counted  bool
	returned bool
}

// NewUnsaved returns an Unsaved for limit outcomes. Calls that take longer than instant and return at the same
// time may exceed it.
func NewUnsaved(limit int) *Unsaved { return &Unsaved{limit: limit} }

// Start waits, behind the calls of Start that wait already, until the limit allows the outcomes of that many more
// calls, until no others count, or until ctx ends; the caller must check ctx before it makes the calls. Before a turn
// calls Start, it must mark its earlier outcome in the same Unsaved as Saved.
func (u *Unsaved) Start(ctx context.Context, calls int) *Outcome {
	o := &Outcome{all: u, calls: calls}
	if o.enter() {
		return o
	}
	select {
	case <-o.ready:
	case <-ctx.Done():
		o.leave()
	}
	return o
}

// enter counts o if there is capacity. Else o waits.
func (o *Outcome) enter() bool {
	u := o.all
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting.Len() == 0 && u.fits(o) {
		o.begin()
		return true
	}
	o.ready = make(chan struct{})
	u.waiting.PushBack(o)
	return false
}

// leave removes o from the outcomes that wait.
func (o *Outcome) leave() {
	u := o.all
	u.mu.Lock()
	defer u.mu.Unlock()
	for e := u.waiting.Front(); e != nil; e = e.Next() {
		if e.Value == o {
			u.waiting.Remove(e)
			u.grant()
			return
		}
	}
}

// Returned records that the calls have returned.
func (o *Outcome) Returned() {
	if o == nil {
		return
	}
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.returned = true
	o.add()
}

// Saved records that the store has the outcome, or that it is lost. It may be called again, and without
// Returned.
func (o *Outcome) Saved() {
	if o == nil {
		return
	}
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.remove()
}

func (u *Unsaved) fits(o *Outcome) bool { return u.count == 0 || u.count+o.calls <= u.limit }

// grant lets outcomes begin while there is capacity.
func (u *Unsaved) grant() {
	for e := u.waiting.Front(); e != nil; e = u.waiting.Front() {
		o := e.Value.(*Outcome) //nolint:forcetypeassert // the list holds nothing else
		if !u.fits(o) {
			return
		}
		u.waiting.Remove(e)
		o.begin()
		close(o.ready)
	}
}

// begin counts o until its calls prove slow.
func (o *Outcome) begin() {
	o.add()
	o.timer = time.AfterFunc(instant, func() {
		o.all.mu.Lock()
		defer o.all.mu.Unlock()
		if !o.returned {
			o.remove()
		}
	})
}

func (o *Outcome) add() {
	if !o.counted {
		o.counted = true
		o.all.count += o.calls
	}
}

func (o *Outcome) remove() {
	if o.timer != nil {
		o.timer.Stop()
	}
	if o.counted {
		o.counted = false
		o.all.count -= o.calls
		o.all.grant()
	}
}
