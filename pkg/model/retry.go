package model

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// RetryPolicy bounds the retries of a model call inside one turn. The zero value
// is the default: two retries, none after a known delay above two seconds. Longer
// waits give the turn back instead of holding a worker.
type RetryPolicy struct {
	Retries int           // 0 means 2; negative means none
	First   time.Duration // first delay; 0 means 200 ms
	Longest time.Duration // longest delay; 0 means 2 s
}

// Retry calls generate until it succeeds, fails for good, or the policy ends it,
// and returns what it returned last. Delays grow and have jitter; a Retry-After of
// the provider is kept to (A17).
func Retry(ctx context.Context, p RetryPolicy, generate func(context.Context) (Response, error)) (Response, error) {
	if p.Retries == 0 {
		p.Retries = 2
	}
	if p.First == 0 {
		p.First = 200 * time.Millisecond
	}
	if p.Longest == 0 {
		p.Longest = 2 * time.Second
	}
	grow := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(p.First), backoff.WithMaxInterval(p.Longest), backoff.WithMaxElapsedTime(0),
	)
	for try := 0; ; try++ {
		resp, err := generate(ctx)
		if err == nil || try >= p.Retries || ctx.Err() != nil {
			return resp, err
		}
		var e *Error
		if !errors.As(err, &e) || !e.Class.Retryable() || e.RetryAfter > p.Longest {
			return resp, err
		}
		delay := max(grow.NextBackOff(), e.RetryAfter)
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return resp, err
		}
	}
}
