package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/state/quota"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// quotas keep each bucket as the one message of a subject, in a stream of their own: its
// max_age deletes a bucket a day after its last change, and the stream of runs has no max_age.
type quotas struct {
	stream jetstream.Stream

	// turn serializes this process's access to the buckets: concurrent writes would only cause
	// conflicts. It is a channel so that a caller that waits for another one's server request still
	// observes its own deadline.
	turn chan struct{}
	last map[string]stored // by subject: the last value seen, which may be out of date
}

type stored struct {
	data []byte
	seq  uint64
}

// openQuotas creates the stream if it is missing.
func (s *Store) openQuotas(ctx context.Context) error {
	want := jetstream.StreamConfig{
		Name: streamName(s.cfg.Prefix, "QUOTA"), Subjects: []string{s.cfg.Prefix + ".quota.>"},
		Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxMsgsPerSubject: 1, MaxAge: quota.Lifetime, AllowDirect: false,
	}
	stream, err := s.ensure(ctx, want)
	if err != nil {
		return err
	}
	s.quotas = quotas{stream: stream, turn: make(chan struct{}, 1), last: map[string]stored{}}
	return nil
}

// bucketSubject and slowedSubject return the subjects of a bucket, and of the list of those that a
// pause has slowed down.
func (s *Store) bucketSubject(key string) string { return s.cfg.Prefix + ".quota.key." + key }
func (s *Store) slowedSubject() string           { return s.cfg.Prefix + ".quota.slowed" }

// swap atomically replaces the last message of a subject by the result of fn, if the message is still the one that fn
// received (nil: none). It starts from the last value that this process stored, and reads from the server if there is
// none, or after a conflict. After a conflict it calls fn again; after maxConflicts it returns an error. If fn returns
// an error, swap returns that and stores nothing. If the publication fails for another reason than a conflict, the
// result may or may not be stored.
func (s *Store) swap(ctx context.Context, subject string, fn func(old []byte) (any, error)) error {
	select {
	case s.quotas.turn <- struct{}{}:
		defer func() { <-s.quotas.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	last, known := s.quotas.last[subject]
	for try := range maxConflicts {
		if !known {
			var err error
			if last, err = s.lastQuota(ctx, subject); err != nil {
				return err
			}
		}
		v, err := fn(last.data)
		if err != nil {
			return err
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		seq, err := s.publish(ctx, subject, json.RawMessage(data), last.seq)
		if err == nil {
			if len(s.quotas.last) >= maxBuckets {
				clear(s.quotas.last)
			}
			s.quotas.last[subject] = stored{data, seq}
			return nil
		}
		delete(s.quotas.last, subject)
		if !conflict(err) {
			return err
		}
		known = false
		if !pause(ctx, time.Duration(rand.IntN(1000*min(try+1, 20)))*time.Microsecond) { //nolint:gosec // jitter
			return ctx.Err()
		}
	}
	return fmt.Errorf("update the rate limit in subject %s: other processes changed it %d times in a row: retry", subject, maxConflicts)
}

// maxBuckets is the maximum number of buckets whose last value a process remembers.
const maxBuckets = 1024

func (s *Store) lastQuota(ctx context.Context, subject string) (stored, error) {
	m, err := s.quotas.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	return stored{m.Data, m.Sequence}, nil
}

func (s *Store) bucket(ctx context.Context, key string, change func(*quota.Bucket, time.Time)) error {
	return s.swap(ctx, s.bucketSubject(key), func(old []byte) (any, error) {
		var b quota.Bucket
		if len(old) > 0 {
			if err := json.Unmarshal(old, &b); err != nil {
				return nil, fmt.Errorf("decode rate limit: %w", err)
			}
		}
		change(&b, s.clock.now())
		return b, nil
	})
}

// Take implements state.Quotas.
func (s *Store) Take(ctx context.Context, key string, t state.Take) (taken state.Taken, err error) {
	if err = s.bucket(ctx, key, func(b *quota.Bucket, now time.Time) { taken = b.Take(t, now) }); err != nil {
		return state.Taken{}, fmt.Errorf("take from rate limit %s: %w", key, err)
	}
	return taken, nil
}

// Correct implements state.Quotas.
func (s *Store) Correct(ctx context.Context, key string, q state.Quota, tokens int64) error {
	if err := s.bucket(ctx, key, func(b *quota.Bucket, now time.Time) { b.Correct(q, tokens, now) }); err != nil {
		return fmt.Errorf("correct rate limit %s: %w", key, err)
	}
	return nil
}

// Pause implements state.Quotas. The list of slow keys is another message; if a crash in between
// leaves it without the key, the next pause adds it.
func (s *Store) Pause(ctx context.Context, key string, d time.Duration) error {
	err := s.bucket(ctx, key, func(b *quota.Bucket, now time.Time) { b.Pause(d, now) })
	if err == nil {
		err = s.swap(ctx, s.slowedSubject(), func(old []byte) (any, error) {
			slow, err := s.slow(old)
			if until := quota.SlowUntil(d, s.clock.now()); err == nil && until.After(slow[key]) {
				slow[key] = until
			}
			return slow, err
		})
	}
	if err != nil {
		return fmt.Errorf("pause rate limit %s: %w", key, err)
	}
	return nil
}

// slow decodes the list of slow keys, without those whose slow time is over.
func (s *Store) slow(data []byte) (map[string]time.Time, error) {
	slow := map[string]time.Time{}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &slow); err != nil {
			return nil, fmt.Errorf("decode paused rate limits: %w", err)
		}
	}
	now := s.clock.now()
	maps.DeleteFunc(slow, func(_ string, until time.Time) bool { return !now.Before(until) })
	return slow, nil
}

// Paused implements state.Quotas.
func (s *Store) Paused(ctx context.Context) ([]string, error) {
	last, err := s.lastQuota(ctx, s.slowedSubject())
	if err != nil {
		return nil, fmt.Errorf("read paused rate limits: %w", err)
	}
	slow, err := s.slow(last.data)
	return slices.Sorted(maps.Keys(slow)), err
}
