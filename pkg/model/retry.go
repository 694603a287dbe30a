package model

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// RetryPolicy bounds the retries of a model call inside one turn. The zero value
// is the default: two retries, begun within five seconds, none after a known
// delay above two. Longer waits give the turn back instead of holding a worker
// (I6).
type RetryPolicy struct {
	Retries int           // 0 means 2; negative means none
	First   time.Duration // first delay; 0 means 200 ms
	Longest time.Duration // longest delay; 0 means 2 s
	Within  time.Duration // no retry begins later than this after the first call began; 0 means 5 s
}

// Retry calls generate until it succeeds, fails for good, or the policy ends it,
// and returns its last error. Delays grow and have jitter; a Retry-After of
// the provider is kept to (A17).
//
// It retries Overloaded, RateLimited and Transport only. A Timeout has held the
// worker long enough, and after a response that broke off half-way a new try would
// show its pieces twice: both go up.
func Retry(ctx context.Context, p RetryPolicy, generate func(context.Context) error) error {
	p = p.withDefaults()
	var grow *backoff.ExponentialBackOff // only once something has failed
	began := time.Now()
	for try := 0; ; try++ {
		err := generate(ctx)
		if err == nil || try >= p.Retries || ctx.Err() != nil {
			return err
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || !e.soon() || e.RetryAfter > p.Longest {
			return err
		}
		if grow == nil {
			grow = backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(p.First), backoff.WithMaxInterval(p.Longest), backoff.WithMaxElapsedTime(0),
			)
		}
		delay := max(grow.NextBackOff(), e.RetryAfter)
		if time.Since(began)+delay > p.Within {
			return err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Retries == 0 {
		p.Retries = 2
	}
	if p.First == 0 {
		p.First = 200 * time.Millisecond
	}
	if p.Longest == 0 {
		p.Longest = 2 * time.Second
	}
	if p.Within == 0 {
		p.Within = 5 * time.Second
	}
	return p
}

// soon reports whether the same call may succeed in a moment.
func (e *Error) soon() bool {
	return !e.Streamed && (e.Class == Overloaded || e.Class == RateLimited || e.Class == Transport)
}
