// Package clock keeps the store's clock for a worker, which may be off by seconds, and waits.
package clock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Clock is the store's clock, estimated from the store's answers to claims. The loop of a turn decides by this clock,
// because the store's clock decided when the run was due. Clock is behind the store's clock by the time that the answer
// needed to arrive. A claim may have waited for others in the same batch, so a slower answer replaces a quicker one
// only after clockFor, or if the clock of this process was set back. The zero value shows the time of this process. A
// Clock is safe for concurrent use.
type Clock struct {
	offset atomic.Int64 // of the store's clock from this process's
	heard  atomic.Int64 // the time of that measurement, by this process's clock; 0: never
}

// clockFor limits how long a quick answer takes precedence over slower ones.
const clockFor = 10 * time.Second

// Hear sets the clock by a time that the store has just answered; the zero time has no effect.
func (c *Clock) Hear(store time.Time) {
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

// Now returns the current time by the store's clock.
func (c *Clock) Now() state.Time {
	return state.At(time.Now().Add(time.Duration(c.offset.Load())))
}

// Local returns the time that this process's clock shows when the store's clock shows t.
func (c *Clock) Local(t state.Time) time.Time {
	return t.Add(-time.Duration(c.offset.Load()))
}

// Pause waits for d, or until ctx ends. It returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
