package service

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// clockFor is the age at which the gateway replaces a reading of the store's clock. Until then it adds its own elapsed
// time.
const clockFor = 10 * time.Second

// clock is the store's clock. The gateway checks the times in a submission against it, because the same clock wakes
// and ends the run. Between readings it adds the time elapsed in this process.
type clock struct {
	ask  func(context.Context) (time.Time, error)
	asks singleflight.Group

	mu    sync.Mutex
	store time.Time // the latest reading; zero if there is none
	heard time.Time // when the reading was taken, by the monotonic clock
}

// now returns the store's time. If the store does not answer, now continues from the last
// reading; it returns an error only if there has never been one.
func (c *clock) now(ctx context.Context) (state.Time, error) {
	c.mu.Lock()
	store, passed := c.store, time.Since(c.heard)
	c.mu.Unlock()
	if !store.IsZero() && passed < clockFor {
		return state.At(store.Add(passed)), nil
	}
	got, err, _ := c.asks.Do("", func() (any, error) {
		asked := time.Now()
		now, err := c.ask(ctx)
		if err != nil {
			return nil, err
		}
		now = now.Add(time.Since(asked) / 2) // it looked at its clock somewhere in between
		c.mu.Lock()
		defer c.mu.Unlock()
		c.store, c.heard = now, time.Now()
		return now, nil
	})
	switch {
	case err == nil:
		return state.At(got.(time.Time)), nil //nolint:forcetypeassert // made above
	case !store.IsZero():
		return state.At(store.Add(passed)), nil
	default:
		return state.Time{}, err
	}
}
