package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// Rollback is an interval whose writes a failover has lost.
type Rollback struct {
	From time.Time // the replica has nothing later
	To   time.Time // the time of the takeover
}

// follow makes the second Redis a replica of the first, and waits until it has caught up.
func (s *deployment) follow(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.replica.Addr())
	if err != nil {
		return err
	}
	if err := s.redis[1].Client.ReplicaOf(ctx, host, port).Err(); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	_, err = s.inSync(ctx)
	return err
}

// inSync waits until the replica has everything that the primary had at a moment, and returns that moment.
func (s *deployment) inSync(ctx context.Context) (since time.Time, err error) {
	err = rig.Until(ctx, ready, "the replica is in step", func(ctx context.Context) error {
		since = time.Now()
		had, err := offset(ctx, s.redis[0], "master_repl_offset")
		if err != nil {
			return err
		}
		has, err := offset(ctx, s.redis[1], "slave_repl_offset")
		if err == nil && has < had {
			err = fmt.Errorf("%s is at offset %d, %s at %d", s.redis[1].Name, has, s.redis[0].Name, had)
		}
		return err
	})
	return since, err
}

// offset reads a server's position in the stream of a primary's writes.
func offset(ctx context.Context, r *rig.RedisServer, field string) (int64, error) {
	info, err := r.Client.InfoMap(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	role := info["Replication"]
	if field == "slave_repl_offset" && role["master_link_status"] != "up" {
		return 0, fmt.Errorf("%s has no link to its primary", r.Name)
	}
	return strconv.ParseInt(role[field], 10, 64)
}

// failover lets the replica fall behind for a while, kills the primary, and promotes the replica as
// it is. The former primary restarts as its replica.
func (s *deployment) failover(ctx context.Context, lag time.Duration) (Rollback, error) {
	old, fresh := s.redis[0], s.redis[1]
	// It may still be reading what it missed while the primary was down.
	since, err := s.inSync(ctx)
	if err != nil {
		return Rollback{}, err
	}
	roll := Rollback{From: since}
	s.replica.Hold()
	rig.Pause(ctx, lag)
	ctx = context.WithoutCancel(ctx) // a failover that has begun is completed when the campaign ends
	// Data that the proxy holds must not pass any more.
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

	old.Kill(time.Second) // it may be back already
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
