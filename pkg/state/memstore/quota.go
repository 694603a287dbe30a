package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/quota"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// bucket applies change to a quota in one step.
func (s *Store) bucket(ctx context.Context, key string, change func(*quota.Bucket, time.Time)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	b, known := s.quotas[key]
	if !known {
		maps.DeleteFunc(s.quotas, func(_ string, b quota.Bucket) bool { return b.At < now.Add(-quota.Lifetime).UnixMicro() })
	}
	change(&b, now)
	s.quotas[key] = b
	return nil
}

// Take implements state.Quotas.
func (s *Store) Take(ctx context.Context, key string, t state.Take) (taken state.Taken, err error) {
	err = s.bucket(ctx, key, func(b *quota.Bucket, now time.Time) { taken = b.Take(t, now) })
	return taken, err
}

// Correct implements state.Quotas.
func (s *Store) Correct(ctx context.Context, key string, q state.Quota, tokens int64) error {
	return s.bucket(ctx, key, func(b *quota.Bucket, now time.Time) { b.Correct(q, tokens, now) })
}

// Pause implements state.Quotas.
func (s *Store) Pause(ctx context.Context, key string, d time.Duration) error {
	return s.bucket(ctx, key, func(b *quota.Bucket, now time.Time) {
		b.Pause(d, now)
		if until := quota.SlowUntil(d, now); until.After(s.slowed[key]) {
			s.slowed[key] = until
		}
	})
}

// Paused implements state.Quotas.
func (s *Store) Paused(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	maps.DeleteFunc(s.slowed, func(_ string, until time.Time) bool { return !now.Before(until) })
	return slices.Sorted(maps.Keys(s.slowed)), nil
}
