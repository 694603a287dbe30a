package timelimit

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Calls counts the calls that were abandoned. The zero value is ready to use, and so is
// nil.
type Calls struct{ abandoned atomic.Int64 }

// Abandoned returns how many calls were abandoned and have not returned yet.
func (c *Calls) Abandoned() int64 {
	if c == nil {
		return 0
	}
	return c.abandoned.Load()
}

func (c *Calls) add(n int64) {
	if c != nil {
		c.abandoned.Add(n)
	}
}

// Panic is the value and the stack of a call that panicked.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("%v", p.Value) }

// Caught returns the value of recover as a *Panic; nil if there was no panic. A *Panic of another
// goroutine stays as it is. Raised again with panic, it becomes one of the caller.
func Caught(recovered any) *Panic {
	switch p := recovered.(type) {
	case nil:
		return nil
	case *Panic:
		return p
	default:
		return &Panic{p, debug.Stack()}
	}
}

// result is what became of a call.
type result[T any] struct {
	value  T
	failed *Panic
}

// Straggle is the time that the caller of a tool or a model waits after its time limit, in case it
// notices the limit late.
const Straggle = time.Second

// Call calls f on a separate goroutine and returns its value. If f has not returned by the end of ctx, Call waits for
// patience more, and then returns without f: ok is false, c counts f until it returns, and a panic of f is ignored. If
// f panics before that, Call panics with a *Panic.
func Call[T any](ctx context.Context, c *Calls, patience time.Duration, f func() T) (value T, ok bool) {
	const inFlight, returned, abandoned = 0, 1, 2
	var state atomic.Int32
	done := make(chan result[T], 1)
	go func() {
		var r result[T]
		defer func() {
			r.failed = Caught(recover())
			if !state.CompareAndSwap(inFlight, returned) {
				c.add(-1)
			}
			done <- r
		}()
		r.value = f()
	}()
	select {
	case r := <-done:
		return r.get()
	case <-ctx.Done():
	}
	if patience > 0 {
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case r := <-done:
			return r.get()
		case <-late.C:
		}
	}
	c.add(1)
	if !state.CompareAndSwap(inFlight, abandoned) {
		c.add(-1)
		return (<-done).get()
	}
	return value, false
}

func (r result[T]) get() (T, bool) {
	if r.failed != nil {
		panic(r.failed)
	}
	return r.value, true
}
