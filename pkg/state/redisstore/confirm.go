package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// defaultConfirmWithin is the time in which replicas must confirm a write.
	defaultConfirmWithin = time.Second

	// maxConfirmWithin leaves the client time for the answer.
	maxConfirmWithin = readTimeout - time.Second

	// confirmTries is the number of times a write is sent to a cluster that reshards or fails over.
	confirmTries = 4

	// markerTTL is the lifetime of the key that ends a message of confirmed writes.
	markerTTL = time.Minute
)

// confirm lists the copies that must have a write before it counts. The zero value requires only
// that of the server that answers.
type confirm struct {
	replicas int
	aof      bool // in synced append-only files, including the server's own
	within   time.Duration
}

// parseConfirm parses "replicas:1", "aof" or "aof:1"; "" and "off" require no confirmation.
func parseConfirm(text string, within time.Duration) (confirm, error) {
	if within == 0 {
		within = defaultConfirmWithin
	}
	c := confirm{within: within}
	if within < time.Millisecond || within > maxConfirmWithin {
		return c, fmt.Errorf("ConfirmWithin, the time for a write to be confirmed, is %s: set 1ms to %s", within, maxConfirmWithin)
	}
	if text == "" || text == "off" {
		return c, nil
	}
	kind, number, given := strings.Cut(text, ":")
	c.aof = kind == "aof"
	if given {
		c.replicas, _ = strconv.Atoi(number)
	}
	if kind != "aof" && kind != "replicas" || (given || !c.aof) && (c.replicas < 1 || c.replicas > 100) {
		return c, fmt.Errorf("redis confirm (TURNPIKE_REDIS_CONFIRM; in Go, Redis.Confirm) is %q: write replicas:1 (one replica has received the write), aof (the server has it on disk), aof:1 (the server and one replica have it on disk), with up to 100 replicas, or off", text)
	}
	return c, nil
}

func (c confirm) on() bool { return c.aof || c.replicas > 0 }

func (c confirm) String() string {
	switch {
	case c.aof && c.replicas > 0:
		return fmt.Sprintf("aof:%d", c.replicas)
	case c.aof:
		return "aof"
	case c.replicas > 0:
		return fmt.Sprintf("replicas:%d", c.replicas)
	default:
		return "off"
	}
}

// ask appends a request for the number of copies that have the writes of a message. The server waits only for
// copies of what this connection has written. So ask writes the marker before the request: a script that is retried
// on a new connection may write nothing there, and the server would count copies that lack its writes.
func (c confirm) ask(ctx context.Context, pipe redis.Pipeliner, marker string) asked {
	a := asked{marked: pipe.Do(ctx, "set", marker, 1, "px", markerTTL.Milliseconds())}
	if c.aof {
		a.copies = pipe.Do(ctx, "waitaof", 1, c.replicas, c.within.Milliseconds())
	} else {
		a.copies = pipe.Do(ctx, "wait", c.replicas, c.within.Milliseconds())
	}
	return a
}

// asked is that request in flight. Its answer is meaningless without the marker.
type asked struct{ marked, copies *redis.Cmd }

// verdict evaluates the answer.
func (c confirm) verdict(a asked) error {
	got, err := a.copies.Result()
	if err = cmp.Or(a.marked.Err(), err); err != nil {
		return fmt.Errorf("ask Redis how many of its copies have the write: %w", err)
	}
	e := state.UnconfirmedError{Want: c.replicas, Unsynced: c.aof, Within: c.within}
	switch got := got.(type) {
	case int64: // wait
		e.Have = int(got)
	case []any: // waitaof: the server's own, replicas
		if len(got) == 2 {
			own, _ := got[0].(int64)
			replicas, _ := got[1].(int64)
			e.Have, e.Unsynced = int(replicas), own < 1
		}
	}
	if e.Have < e.Want || e.Unsynced {
		return &e
	}
	return nil
}

// confirmed sends a write to the server that has a key, together with the request for confirmation.
// It retries if the cluster has moved the key.
func (s *Store) confirmed(ctx context.Context, key string, write func(redis.Pipeliner) *redis.Cmd) (any, error) {
	for try := 1; ; try++ {
		node, err := s.master(ctx, key)
		if err != nil {
			return nil, err
		}
		pipe := node.Pipeline()
		cmd := write(pipe)
		question := s.confirm.ask(ctx, pipe, s.keys.marker(key))
		_, _ = pipe.Exec(ctx) // each command has its own error
		v, err := cmd.Result()
		if err == nil || errors.Is(err, redis.Nil) {
			if unconfirmed := s.confirm.verdict(question); unconfirmed != nil {
				return nil, unconfirmed
			}
			return v, err
		}
		cluster, ok := s.rdb.(*redis.ClusterClient)
		if !ok || try == confirmTries || !elsewhere(err) {
			return v, err
		}
		cluster.ReloadState(ctx)
		select {
		case <-time.After(50 * time.Millisecond << try):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// master returns the server that has a key.
func (s *Store) master(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return s.rdb, nil
}

// elsewhere reports whether another server of a cluster may execute a command that failed here.
func elsewhere(err error) bool {
	if !refused(err) {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	for _, prefix := range []string{"MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "LOADING ", "MASTERDOWN "} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// write executes one command, and waits for its confirmation if Config.Confirm requires one.
func (s *Store) write(ctx context.Context, command, key string, args ...any) (any, error) {
	all := append([]any{command, key}, args...)
	if !s.confirm.on() {
		return s.rdb.Do(ctx, all...).Result()
	}
	return s.confirmed(ctx, key, func(p redis.Pipeliner) *redis.Cmd { return p.Do(ctx, all...) })
}

// checkConfirm reports which copies must have a write before it counts, and whether they can.
func (s *Store) checkConfirm(info *redis.InfoCmd, at string) state.Finding {
	c := s.confirm
	online := 0
	for name, value := range info.Val()["Replication"] {
		if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online") {
			online++
		}
	}
	f := state.Finding{Name: "redis: confirm" + at, OK: true, Detail: fmt.Sprintf("%s, %d replicas connected", c, online)}
	switch {
	case c.aof && !waitsForAOF(info):
		f.OK, f.Fatal = false, true
		f.Detail += ", but the server is too old to report which writes are on disk"
		f.Remedy = "upgrade to Redis 7.2 or Valkey, or set TURNPIKE_REDIS_CONFIRM=replicas:N (in Go, Redis.Confirm)"
	case c.aof && info.Item("Persistence", "aof_enabled") != "1":
		f.OK, f.Fatal = false, true
		f.Detail += ", but appendonly is off"
		f.Remedy = "set `appendonly yes`, also on replicas: without it Redis confirms no write"
	case online < c.replicas:
		f.OK = false
		f.Remedy = "start replicas, find out why they are not in sync (`INFO replication`), or lower TURNPIKE_REDIS_CONFIRM (in Go, Redis.Confirm): until enough replicas are connected, Turnpike confirms no write"
	case online > 0 && !c.on():
		f.Detail += ": a failover loses writes that the replica has not received; to wait for it, set TURNPIKE_REDIS_CONFIRM=replicas:1"
	}
	return f
}

// waitsForAOF reports whether a server has WAITAOF. Valkey reports itself as Redis 7.2.4.
func waitsForAOF(info *redis.InfoCmd) bool {
	var major, minor int
	_, err := fmt.Sscanf(info.Item("Server", "redis_version"), "%d.%d", &major, &minor)
	return err == nil && (major > 7 || major == 7 && minor >= 2)
}
