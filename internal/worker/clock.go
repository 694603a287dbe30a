package worker

import (
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// clock is the store's clock, as its answers to claims tell: what a turn decides by time
// must be decided by the clock that has woken the run. It lags by as long as the answer
// took, and of the answers of the last clockFor the one counts that took least: a claim may
// have waited for others that travelled with it.
type clock struct {
	offset atomic.Int64 // of the store's clock from this process's
	heard  atomic.Int64 // when that was measured, by this process's clock; 0: never
}

// clockFor is how long a quick answer counts more than a slow one.
const clockFor = 10 * time.Second

// hear takes in what the store's clock was when it answered, just now.
func (c *clock) hear(store time.Time) {
	if store.IsZero() {
		return
	}
	now := time.Now()
	offset, heard := int64(store.Sub(now)), c.heard.Load()
	age := now.UnixNano() - heard
	if heard == 0 || offset >= c.offset.Load() || age > int64(clockFor) || age < 0 {
		c.offset.Store(offset)
		c.heard.Store(now.UnixNano())
	}
}

func (c *clock) now() state.Time {
	return state.At(time.Now().Add(time.Duration(c.offset.Load())))
}

// local returns when this process's clock shows what the store's shows at t.
func (c *clock) local(t state.Time) time.Time {
	return t.Add(-time.Duration(c.offset.Load()))
}
