package redisstore

import (
	"context"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// QuotaAt is the quotas of a store with a clock of the test's own.
type QuotaAt struct {
	*Store

	Now func() time.Time
}

// Take implements state.Quotas.
func (q QuotaAt) Take(ctx context.Context, key string, t state.Take) (state.Taken, error) {
	return q.takeAt(ctx, key, t, q.Now())
}

// Correct implements state.Quotas.
func (q QuotaAt) Correct(ctx context.Context, key string, limit state.Quota, tokens int64) error {
	return q.correctAt(ctx, key, limit, tokens, q.Now())
}

// Pause implements state.Quotas.
func (q QuotaAt) Pause(ctx context.Context, key string, d time.Duration) error {
	return q.pauseAt(ctx, key, d, q.Now())
}

// Known is what the store knows of a run's log: how many entries, and the sum of the last.
func (s *Store) Known(id state.RunID) (n int, sum string) {
	known := s.cache.Get(id)
	return len(known.Entries), known.Sum
}
