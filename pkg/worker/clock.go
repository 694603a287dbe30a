package worker

import (
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// clock is the store's clock, as its answers to claims tell: what a turn decides by time
// must be decided by the clock that has woken the run. It lags by as long as the answer
// took, and is never ahead.
type clock struct{ offset atomic.Int64 } // of the store's clock from this process's

// hear takes in what the store's clock was when it answered, just now.
func (c *clock) hear(store time.Time) {
	if !store.IsZero() {
		c.offset.Store(int64(time.Until(store)))
	}
}

func (c *clock) now() state.Time {
	return state.At(time.Now().Add(time.Duration(c.offset.Load())))
}

// local returns when this process's clock shows what the store's shows at t.
func (c *clock) local(t state.Time) time.Time {
	return t.Add(-time.Duration(c.offset.Load()))
}
