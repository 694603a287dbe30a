package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"
)

// ID returns the id of the data of this deployment in Redis. The first call of any process creates the id, and all
// processes get the same one. Data in another database or server has another id, and so has data that was deleted.
func (s *Store) ID(ctx context.Context) (string, error) {
	id := ulid.Make().String()
	existing, err := s.rdb.SetArgs(ctx, s.keys.identity(), id, redis.SetArgs{Mode: "NX", Get: true}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return id, nil
	case err != nil:
		return "", fmt.Errorf("create the id of the store in Redis: %w", err)
	default:
		return existing, nil
	}
}

// StoredID returns the id that ID has created, or "" before the first call of ID.
func (s *Store) StoredID(ctx context.Context) (string, error) {
	id, err := s.rdb.Get(ctx, s.keys.identity()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("read the id of the store from Redis: %w", err)
	}
	return id, nil
}
