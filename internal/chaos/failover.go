package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/rig"
)

// Rollback is a stretch of time whose writes a failover has lost.
type Rollback struct {
	From time.Time // the copy that took over knows nothing later
	To   time.Time // it has taken over
}

// follow makes the second Redis a replica of the first, and waits until it has
// everything.
func (s *site) follow(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.replica.Addr())
	if err != nil {
		return err
	}
	if err := s.redis[1].Client.ReplicaOf(ctx, host, port).Err(); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	return s.inSync(ctx)
}

func (s *site) inSync(ctx context.Context) error {
	return rig.Until(ctx, ready, "the replica is in step", func(ctx context.Context) error {
		info, err := s.redis[1].Client.Info(ctx, "replication").Result()
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
	s.replica.Hold()
	rig.Pause(ctx, lag)
	// What the proxy holds must not get through any more.
	s.replica.Point()
	s.replica.Heal()
	old.Kill(time.Second)
	if err := fresh.Client.ReplicaOf(ctx, "no", "one").Err(); err != nil {
		return roll, fmt.Errorf("promote %s: %w", fresh.Name, err)
	}
	for _, n := range s.nodes() {
		n.toRedis.Point(fresh.Addr)
	}
	roll.To = time.Now()
	s.redis[0], s.redis[1] = fresh, old

	old.Kill(time.Second) // it may have come back already
	if err := os.RemoveAll(old.Dir); err != nil {
		return roll, err
	}
	if err := os.MkdirAll(old.Dir, 0o700); err != nil {
		return roll, err
	}
	if err := rig.Until(ctx, ready, old.Name+" answers", func(ctx context.Context) error { return old.Client.Ping(ctx).Err() }); err != nil {
		return roll, err
	}
	s.replica.Point(fresh.Addr)
	return roll, s.follow(ctx)
}
