package service

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// defaultRate is the default of max_per_minute of hooks and triggers, and maxRate its maximum.
	defaultRate = 600
	maxRate     = 60_000

	// rateWindow is the time in which max_per_minute deliveries are allowed.
	rateWindow = time.Minute
)

func checkRate(perMinute int) error {
	if perMinute < 0 || perMinute > maxRate {
		return fmt.Errorf("max_per_minute is %d: set 1 to %d, or 0 for the default of %d", perMinute, maxRate, defaultRate)
	}
	return nil
}

// rateOf returns the limit of a setting max_per_minute; 0 is the default.
func rateOf(perMinute int) int { return cmp.Or(perMinute, defaultRate) }

// limiter allows a number of deliveries in any minute, which may all come at once. Each gateway has its own limiters. A
// limiter keeps some 8 bytes for each delivery of the last minute or later. Its zero value is ready for use.
type limiter struct {
	mu    sync.Mutex
	start time.Time
	taken []time.Duration // ascending: when each delivery is allowed, since start
}

// allow counts a delivery and returns 0 if fewer than limit are counted in the last minute, including those that
// reserve has counted for later. Otherwise it counts nothing, and returns how long to wait until one is allowed, unless
// others come first.
func (l *limiter) allow(limit int) (after time.Duration) {
	after, _ = l.take(limit, false)
	return after
}

// reserve counts a delivery at the time at which it is allowed, and returns that time.
func (l *limiter) reserve(limit int) (at time.Time) {
	_, at = l.take(limit, true)
	return at
}

// cancel removes a delivery that reserve has counted, and that is not made.
func (l *limiter) cancel(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.taken, at.Sub(l.start)); i >= 0 {
		l.taken = slices.Delete(l.taken, i, i+1)
	}
}

// idle reports whether no delivery of the last minute or later is counted, as with the zero value.
func (l *limiter) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.taken)
	return n == 0 || l.taken[n-1] <= time.Since(l.start)-rateWindow
}

func (l *limiter) take(limit int, ahead bool) (after time.Duration, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.start)
	for len(l.taken) > 0 && l.taken[0] <= now-rateWindow {
		l.taken = l.taken[1:]
	}
	if len(l.taken) == 0 {
		l.start, l.taken, now = time.Now(), nil, 0
	}
	if n := len(l.taken); n >= limit {
		after = l.taken[n-limit] + rateWindow - now
	}
	if after == 0 || ahead {
		l.taken = append(l.taken, now+after)
	}
	return after, l.start.Add(now + after)
}
