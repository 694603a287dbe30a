package model

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// RetryPolicy bounds the retries of a model call within one turn. The zero value means at most two retries that begin
// within five seconds of the first call, and none if the provider asks for a delay above two seconds. When the policy
// allows no further retry, Retry returns the error without waiting, and the loop decides: another model, a later
// turn, or the end of the run. So a long wait occupies no worker (I6).
type RetryPolicy struct {
	Retries int           // 0 means 2; negative means none
	First   time.Duration // first delay before jitter; 0 means 200 ms
	Longest time.Duration // longest delay before jitter, and longest Retry-After; 0 means 2 s
	Within  time.Duration // latest start of a retry, from the start of the first call; 0 means 5 s
}

// Retry calls generate until it succeeds, fails with an error that a retry cannot fix, or the policy or ctx ends the
// retries. It returns the last error. Before jitter, each delay is 1.5 times the previous one, up to p.Longest; jitter
// adds or subtracts up to half of it. No delay is shorter than a Retry-After of the provider (A17).
//
// Retry retries only Overloaded, RateLimited and Transport, and only if no piece of the response was streamed: a new
// try would show the pieces twice. A Timeout has already kept the worker long enough.
func Retry(ctx context.Context, p RetryPolicy, generate func(context.Context) error) error {
	r := retries{policy: p.withDefaults(), began: time.Now()}
	for {
		if err := generate(ctx); err == nil || !r.again(ctx, err) {
			return err
		}
	}
}

// retries are the retries of a call. A turn waits in Retry, so Retry itself has a small frame.
type retries struct {
	policy RetryPolicy
	made   int
	began  time.Time
	grow   *backoff.ExponentialBackOff // only once something has failed
}

// again reports whether the call that failed with err is to be made again now. It waits for the delay before.
func (r *retries) again(ctx context.Context, err error) bool {
	if r.made >= r.policy.Retries || ctx.Err() != nil {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.soon() || e.RetryAfter > r.policy.Longest {
		return false
	}
	if r.grow == nil {
		r.grow = backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(r.policy.First), backoff.WithMaxInterval(r.policy.Longest), backoff.WithMaxElapsedTime(0),
		)
	}
	delay := max(r.grow.NextBackOff(), e.RetryAfter)
	if time.Since(r.began)+delay > r.policy.Within {
		return false
	}
	r.made++
	timer := time.NewTimer(delay)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		timer.Stop()
		return false
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

// soon reports whether the same call may succeed after a short delay.
func (e *Error) soon() bool {
	return !e.Streamed && (e.Class == Overloaded || e.Class == RateLimited || e.Class == Transport)
}
