package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"
)

// SetFloor makes Claim return state.ClaimBehind, and Sweep and Evict return nothing, for runs of shards whose mark
// is below floor. A mark is a counter in each shard that package restore raises: a shard with a lower one belongs
// to an older copy of the data. All other methods ignore this floor, and so does Claim if it answers an eager
// claim from memory. A floor of 0 or less, the default, means no floor. SetFloor is safe for concurrent use.
func (s *Store) SetFloor(floor int64) { s.floor.Store(max(0, floor)) }

// Marks returns the lowest and the highest mark of all shards. A missing mark counts as 0.
func (s *Store) Marks(ctx context.Context) (least, greatest int64, err error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.StringCmd, len(s.keys.marks))
	for i, key := range s.keys.marks {
		cmds[i] = pipe.Get(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	least = math.MaxInt64
	for _, c := range cmds {
		n, err := c.Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, 0, fmt.Errorf("read from Redis the counters that show whether the store is an older copy: %w", err)
		}
		least, greatest = min(least, n), max(greatest, n)
	}
	return least, greatest, nil
}

// RaiseMarks sets the mark of each shard to the value of to, unless the mark is already as high or is below
// floor, which is independent of SetFloor. It returns the lowest and the highest of the resulting marks of all
// shards. After an error some marks may be raised; a repetition raises the others.
func (s *Store) RaiseMarks(ctx context.Context, floor, to int64) (least, greatest int64, err error) {
	replies, err := markScript.onEach(ctx, s, s.keys.marks, func(int) []any { return []any{max(0, floor), to} })
	if err != nil {
		return 0, 0, fmt.Errorf("raise in Redis the counters that show whether the store is an older copy: %w", err)
	}
	least = math.MaxInt64
	for _, r := range replies {
		n := r.num(markReached)
		least, greatest = min(least, n), max(greatest, n)
	}
	return least, greatest, nil
}
