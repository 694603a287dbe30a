package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The scripts are the turn protocol's second writing; pkg/state/record is the
// first, and statetest holds both to the same behaviour.
var (
	//go:embed scripts/lib.lua
	lib string
	//go:embed scripts/create.lua
	createSrc string
	//go:embed scripts/claim.lua
	claimSrc string
	//go:embed scripts/renew.lua
	renewSrc string
	//go:embed scripts/record.lua
	recordSrc string
	//go:embed scripts/commit.lua
	commitSrc string
	//go:embed scripts/release.lua
	releaseSrc string
	//go:embed scripts/signal.lua
	signalSrc string
	//go:embed scripts/abort.lua
	abortSrc string
	//go:embed scripts/sweep.lua
	sweepSrc string
	//go:embed scripts/evict.lua
	evictSrc string
	//go:embed scripts/finalized.lua
	finalizedSrc string
	//go:embed scripts/agent.lua
	agentSrc string
	//go:embed scripts/quota.lua
	quotaSrc string

	createScript    = script(createSrc)
	claimScript     = script(claimSrc)
	renewScript     = script(renewSrc)
	recordScript    = script(recordSrc)
	commitScript    = script(commitSrc)
	releaseScript   = script(releaseSrc)
	signalScript    = script(signalSrc)
	abortScript     = script(abortSrc)
	sweepScript     = script(sweepSrc)
	evictScript     = script(evictSrc)
	finalizedScript = script(finalizedSrc)
	agentScript     = script(agentSrc)
	quotaScript     = redis.NewScript(quotaSrc)
)

// script returns a script as this build runs it.
func script(src string) *redis.Script {
	return redis.NewScript(fmt.Sprintf("local FORMAT, CROWD = %d, %d\n", state.Format, state.Crowd) + lib + src)
}

// reply is what a script returned: a list whose first element says which list.
type reply []any

// together calls a script that may be repeated, together with others.
func (s *Store) together(ctx context.Context, script *redis.Script, keys []string, args ...any) (reply, error) {
	if s.joint == nil {
		return s.call(ctx, script, keys, args...)
	}
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", script.Hash(), len(keys))
	for i := range keys {
		all = append(all, &keys[i]) // a pointer needs no room of its own in an interface
	}
	all = append(all, args...)
	v, err := s.joint.do(ctx, all...)
	// A server that does not know the script is told by one of all who ask: each by
	// itself would need a connection of its own.
	if redis.HasErrorPrefix(err, "NOSCRIPT") && s.load(ctx, script) == nil {
		v, err = s.joint.do(ctx, all...)
	}
	if refused(err) {
		return s.call(ctx, script, keys, args...)
	}
	return listOf(v, err)
}

// load makes a script known to the server, once for all who ask at the same time.
func (s *Store) load(ctx context.Context, script *redis.Script) error {
	_, err, _ := s.loads.Do(script.Hash(), func() (any, error) { return nil, script.Load(ctx, s.rdb).Err() })
	return err
}

// fields reads fields of a hash, together with others.
func (s *Store) fields(ctx context.Context, key string, names ...string) (reply, error) {
	if s.joint != nil {
		args := []any{"hmget", key}
		for _, n := range names {
			args = append(args, n)
		}
		if v, err := s.joint.do(ctx, args...); !refused(err) {
			return listOf(v, err)
		}
	}
	return s.rdb.HMGet(ctx, key, names...).Result()
}

// add puts a member into a sorted set, in the order of the members, together with
// others.
func (s *Store) add(ctx context.Context, key, member string) error {
	if s.joint != nil {
		if _, err := s.joint.do(ctx, "zadd", key, 0, member); !refused(err) {
			return err
		}
	}
	return s.rdb.ZAdd(ctx, key, redis.Z{Member: member}).Err()
}

// refused reports whether the server did not do what was asked: it does not know the
// script yet, or can do nothing just now. Alone it is sent along, and repeated as the
// client knows best.
func refused(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

func listOf(v any, err error) (reply, error) {
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, errNothing
	}
	return list, nil
}

// errNothing is no answer that any script gives.
var errNothing = errors.New("script returned nothing")

func (s *Store) call(ctx context.Context, script *redis.Script, keys []string, args ...any) (reply, error) {
	v, err := script.Run(ctx, s.rdb, keys, args...).Slice()
	if err != nil {
		return nil, err
	}
	if len(v) == 0 {
		return nil, errNothing
	}
	return v, nil
}

func (r reply) str(i int) string {
	if i >= len(r) {
		return ""
	}
	switch v := r[i].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return ""
	}
}

func (r reply) num(i int) int64 {
	if i < len(r) {
		if n, ok := r[i].(int64); ok {
			return n
		}
	}
	n, err := strconv.ParseInt(r.str(i), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (r reply) list(i int) ([]string, error) {
	if i >= len(r) {
		return nil, fmt.Errorf("script returned %d elements", len(r))
	}
	elements, ok := r[i].([]any)
	if !ok {
		return nil, fmt.Errorf("script returned %T, want a list", r[i])
	}
	out := make([]string, len(elements))
	for j, e := range elements {
		if out[j], ok = e.(string); !ok {
			return nil, fmt.Errorf("script returned a list of %T", e)
		}
	}
	return out, nil
}
