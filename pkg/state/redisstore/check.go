package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxSkew is the maximum error of the server's clock.
const maxSkew = 5 * time.Second

// Check inspects the server, for doctor and at startup; in a cluster, every master.
func (s *Store) Check(ctx context.Context) []state.Finding {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return s.checkServer(ctx, s.rdb, "")
	}
	var mu sync.Mutex
	var all []state.Finding
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		found := s.checkServer(ctx, node, " at "+node.Options().Addr)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found...)
		return nil
	})
	if err != nil {
		return []state.Finding{unreachable("redis: cluster", err)}
	}
	slices.SortFunc(all, func(a, b state.Finding) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func unreachable(name string, err error) state.Finding {
	remedy := cmp.Or(credential.TLSRemedy(err, "TURNPIKE_REDIS"), "start redis-server, or set TURNPIKE_REDIS_URL (in Go, Redis.URL) to the address of a running one")
	if text := err.Error(); strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") {
		remedy = "set TURNPIKE_REDIS_USER and TURNPIKE_REDIS_PASSWORD (in Go, Redis.Login) to a user of the server and its password"
	}
	if strings.Contains(err.Error(), "NOPERM") {
		remedy = "permit the command that the error names to the Redis user of this process"
	}
	return state.Finding{Name: name, Fatal: true, Detail: err.Error(), Remedy: remedy}
}

// checkServer inspects one server; at names it if there are several.
func (s *Store) checkServer(ctx context.Context, node redis.Cmdable, at string) []state.Finding {
	server := state.Finding{Name: "redis: server" + at, OK: true, Fatal: true}
	// All sections: servers before 7.0 do not take a list, and must be reported as too old.
	info := node.InfoMap(ctx)
	if err := info.Err(); err != nil {
		return []state.Finding{unreachable(server.Name, err)}
	}
	version := info.Item("Server", "redis_version")
	server.Detail = "version " + version
	var major int
	if _, err := fmt.Sscanf(version, "%d.", &major); err != nil || major < 7 {
		server.OK, server.Remedy = false, "upgrade to Redis 7.0 or later"
	}
	policy := state.Finding{Name: "redis: maxmemory-policy" + at, OK: true, Fatal: true, Detail: info.Item("Memory", "maxmemory_policy")}
	if policy.Detail != "noeviction" {
		policy.OK, policy.Remedy = false, "set `maxmemory-policy noeviction`: with any other policy Redis may delete runs when its memory is full"
	}
	return []state.Finding{server, policy, checkWrites(info, at), s.checkAOF(ctx, node, info, at), checkClock(ctx, node, at), s.checkConfirm(info, at)}
}

// checkWrites reports the reason why the server refuses writes, if it does, according to its INFO:
// the user of doctor may lack the permission to write.
func checkWrites(info *redis.InfoCmd, at string) state.Finding {
	f := state.Finding{Name: "redis: writes" + at, OK: true, Broken: true, Detail: "accepted"}
	number := func(section, key string) int64 {
		n, _ := strconv.ParseInt(info.Item(section, key), 10, 64)
		return n
	}
	used, limit := number("Memory", "used_memory"), number("Memory", "maxmemory")
	switch {
	case limit > 0 && used >= limit:
		f.OK, f.Detail = false, fmt.Sprintf("refused: %d MiB of memory are in use, maxmemory is %d MiB", used>>20, limit>>20)
		f.Remedy = refusals["OOM"]
	case info.Item("Persistence", "aof_enabled") == "1" && info.Item("Persistence", "aof_last_write_status") == "err":
		f.OK, f.Detail, f.Remedy = false, "refused: the last write of the append-only file failed", "check in the log of redis-server whether its disk is full or read-only"
	case info.Item("Persistence", "rdb_last_bgsave_status") == "err":
		f.OK, f.Broken, f.Detail = false, false, "the last snapshot (RDB) failed; the server refuses writes until one succeeds, unless stop-writes-on-bgsave-error is off"
		f.Remedy = "check in the log of redis-server whether its disk is full or read-only"
	case info.Item("Replication", "role") == "slave":
		f.OK, f.Detail, f.Remedy = false, "refused: the server is a replica", "set TURNPIKE_REDIS_URL (in Go, Redis.URL) to the primary"
	case info.Item("Persistence", "loading") == "1":
		f.OK, f.Detail, f.Remedy = false, "refused: the server is loading its data from disk", "wait until the server has loaded its data"
	case limit > 0 && used >= limit/10*9:
		f.OK, f.Broken, f.Detail = false, false, fmt.Sprintf("%d MiB of memory are in use, maxmemory is %d MiB", used>>20, limit>>20)
		f.Remedy = "raise maxmemory, or delete ended runs (TURNPIKE_RETENTION, turnpike gc)"
	}
	return f
}

// CheckWrites writes an expiring key, in a cluster one to each shard, and reports whether the
// server accepts it.
func (s *Store) CheckWrites(ctx context.Context) state.Finding {
	f := state.Finding{Name: "redis: test write", OK: true, Broken: true, Detail: "accepted"}
	shards := 1
	if _, cluster := s.rdb.(*redis.ClusterClient); cluster {
		shards = state.Shards // on all masters
	}
	var writes errgroup.Group // a confirmed write may take a second
	for shard := range shards {
		writes.Go(func() error { return s.writeReady(ctx, shard) })
	}
	if err := writes.Wait(); err != nil {
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that the server runs and answers; if it does, find the cause in the log of redis-server"
		for word, remedy := range refusals {
			if strings.Contains(err.Error(), word) {
				f.Remedy = remedy
			}
		}
		if _, ok := errors.AsType[*state.UnconfirmedError](err); ok {
			f.Remedy = "start replicas, find out why they are not in sync (`INFO replication`), or lower TURNPIKE_REDIS_CONFIRM (in Go, Redis.Confirm)"
		}
		if strings.Contains(err.Error(), "NOPERM") {
			f.Broken, f.Detail = false, "unknown: "+err.Error()
		}
	}
	return f
}

// refusals maps the first word of the server's error for a refused write to the remedy.
var refusals = map[string]string{
	"NOREPLICAS": "start as many replicas as min-replicas-to-write requires, or lower that setting",
	"MISCONF":    "the last snapshot or append-only write failed: check in the log of redis-server whether its disk is full or read-only",
	"OOM":        "raise maxmemory first, since a full server refuses deletions as well; then delete ended runs (TURNPIKE_RETENTION, turnpike gc)",
	"READONLY":   "the server is a replica: set TURNPIKE_REDIS_URL (in Go, Redis.URL) to the primary",
	"LOADING":    "the server is loading its data from disk: wait until it has loaded them",
	"NOPERM":     "run `turnpike doctor` with the Redis user of a gateway or a worker, which may write",
}

func (s *Store) checkAOF(ctx context.Context, node redis.Cmdable, info *redis.InfoCmd, at string) state.Finding {
	f := state.Finding{Name: "redis: appendonly" + at, OK: true, Fatal: s.requireAOF}
	if info.Item("Persistence", "aof_enabled") != "1" {
		f.OK, f.Detail, f.Remedy = false, "off", "set `appendonly yes` and `appendfsync always`: without them a restart of Redis loses runs"
		return f
	}
	// Hosted servers often refuse CONFIG; that does not reveal what they sync.
	fsync := "unknown"
	if got, err := node.ConfigGet(ctx, "appendfsync").Result(); err == nil && got["appendfsync"] != "" {
		fsync = got["appendfsync"]
	}
	f.Detail = "on, appendfsync " + fsync
	return f
}

func checkClock(ctx context.Context, node redis.Cmdable, at string) state.Finding {
	f := state.Finding{Name: "redis: clock" + at, OK: true, Fatal: true, Detail: "in sync"}
	asked := time.Now()
	now, err := node.Time(ctx).Result()
	if err != nil {
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that the server runs and answers, and that its user may use the command TIME"
		return f
	}
	// The server read its clock between the request and the answer.
	if skew := min(now.Sub(asked).Abs(), time.Since(now).Abs()); skew > maxSkew {
		f.OK, f.Detail = false, fmt.Sprintf("differs by %s from the clock of this machine, at most %s is allowed", skew.Round(time.Millisecond), maxSkew)
		f.Remedy = "run an NTP client on both machines: deadlines and schedules depend on the clocks"
	}
	return f
}
