package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Rollback is a stretch of time whose writes a failover has lost.
type Rollback struct {
	From time.Time // the copy that took over knows nothing later
	To   time.Time // it has taken over
}

// follow makes the second Redis a replica of the first, and waits until it has
// everything.
func (s *site) follow(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.replica.addr())
	if err != nil {
		return err
	}
	if err := s.redis[1].rdb.ReplicaOf(ctx, host, port).Err(); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	return s.inSync(ctx)
}

func (s *site) inSync(ctx context.Context) error {
	return until(ctx, ready, "the replica is in step", func(ctx context.Context) error {
		info, err := s.redis[1].rdb.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "master_link_status:up") {
			return fmt.Errorf("%s", info)
		}
		return nil
	})
}

// failover lets the replica fall behind for a while, kills the primary, and lets
// the replica take over as it is. The former primary starts anew as its replica.
func (s *site) failover(ctx context.Context, lag time.Duration) (Rollback, error) {
	old, fresh := s.redis[0], s.redis[1]
	roll := Rollback{From: time.Now()}
	s.replica.hold()
	pause(ctx, lag)
	// What the proxy holds must not get through any more.
	s.replica.point()
	s.replica.heal()
	old.kill(time.Second)
	if err := fresh.rdb.ReplicaOf(ctx, "no", "one").Err(); err != nil {
		return roll, fmt.Errorf("promote %s: %w", fresh.name, err)
	}
	for _, n := range s.nodes() {
		n.toRedis.point(fresh.addr)
	}
	roll.To = time.Now()
	s.redis[0], s.redis[1] = fresh, old

	old.kill(time.Second) // it may have come back already
	if err := os.RemoveAll(old.dir); err != nil {
		return roll, err
	}
	if err := os.MkdirAll(old.dir, 0o700); err != nil {
		return roll, err
	}
	if err := until(ctx, ready, old.name+" answers", func(ctx context.Context) error { return old.rdb.Ping(ctx).Err() }); err != nil {
		return roll, err
	}
	s.replica.point(fresh.addr)
	return roll, s.follow(ctx)
}
