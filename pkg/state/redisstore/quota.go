package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/state/quota"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// quota runs the script of quotas on one bucket, once even if the client retries it. at is the time
// to use; zero means the server's own.
func (s *Store) quota(ctx context.Context, key string, at time.Time, args ...any) (reply[pausePlace], error) {
	now := ""
	if !at.IsZero() {
		now = strconv.FormatInt(at.UnixMicro(), 10)
	}
	args = append([]any{quota.Lifetime.Milliseconds(), now}, args...)
	return quotaScript.call(ctx, s, []string{s.keys.quota(key), s.keys.quotaCall(key, rand.Text())}, args...)
}

// Take implements state.Quotas.
func (s *Store) Take(ctx context.Context, key string, t state.Take) (state.Taken, error) {
	return s.takeAt(ctx, key, t, time.Time{})
}

func (s *Store) takeAt(ctx context.Context, key string, t state.Take, at time.Time) (state.Taken, error) {
	noReservation := 0
	if t.NoReservation {
		noReservation = 1
	}
	got, err := s.quota(ctx, key, at, "take", t.Quota.Requests, t.Quota.Tokens, t.Tokens, t.Reservation, noReservation)
	if err != nil {
		return state.Taken{}, fmt.Errorf("take from rate limit %s: %w", key, err)
	}
	r := reply[takePlace](got)
	return state.Taken{Wait: time.Duration(r.num(takeWait)) * time.Microsecond, Reservation: r.num(takeReservation), Paused: r.flag(takePaused)}, nil
}

// Correct implements state.Quotas.
func (s *Store) Correct(ctx context.Context, key string, q state.Quota, tokens int64) error {
	return s.correctAt(ctx, key, q, tokens, time.Time{})
}

func (s *Store) correctAt(ctx context.Context, key string, q state.Quota, tokens int64, at time.Time) error {
	if _, err := s.quota(ctx, key, at, "correct", q.Requests, q.Tokens, tokens); err != nil {
		return fmt.Errorf("correct rate limit %s: %w", key, err)
	}
	return nil
}

// Pause implements state.Quotas. The list of slow keys is on another slot; if a crash in between
// leaves it without the key, the next pause adds it.
func (s *Store) Pause(ctx context.Context, key string, d time.Duration) error {
	return s.pauseAt(ctx, key, d, time.Time{})
}

func (s *Store) pauseAt(ctx context.Context, key string, d time.Duration, at time.Time) error {
	r, err := s.quota(ctx, key, at, "pause", d.Microseconds())
	if err != nil {
		return fmt.Errorf("pause rate limit %s: %w", key, err)
	}
	now := time.UnixMicro(r.num(pauseNow))
	list := s.keys.slowed()
	pipe := s.rdb.Pipeline()
	pipe.ZRemRangeByScore(ctx, list, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
	pipe.ZAddGT(ctx, list, redis.Z{Member: key, Score: float64(quota.SlowUntil(d, now).UnixMilli())})
	pipe.PExpire(ctx, list, quota.Lifetime)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("pause rate limit %s: %w", key, err)
	}
	return nil
}

// Paused implements state.Quotas.
func (s *Store) Paused(ctx context.Context) ([]string, error) {
	pipe := s.rdb.Pipeline()
	now := pipe.Time(ctx)
	list := pipe.ZRangeWithScores(ctx, s.keys.slowed(), 0, -1)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read paused rate limits: %w", err)
	}
	var keys []string
	for _, z := range list.Val() {
		if key, ok := z.Member.(string); ok && now.Val().UnixMilli() < int64(z.Score) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
