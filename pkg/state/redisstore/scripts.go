package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The scripts are a reimplementation of the turn protocol in internal/state/record; statetest holds
// both to the same behaviour.
var (
	//go:embed scripts/lib.lua
	lib string
	//go:embed scripts/create.lua
	createSrc string
	//go:embed scripts/log.lua
	logSrc string
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
	//go:embed scripts/admit.lua
	admitSrc string
	//go:embed scripts/delete.lua
	deleteSrc string
	//go:embed scripts/seal.lua
	sealSrc string
	//go:embed scripts/unseal.lua
	unsealSrc string
	//go:embed scripts/prevent.lua
	preventSrc string
	//go:embed scripts/freekey.lua
	freeKeySrc string
	//go:embed scripts/batch.lua
	batchSrc string
	//go:embed scripts/mark.lua
	markSrc string
	//go:embed scripts/firsts.lua
	firstsSrc string
	//go:embed scripts/list.lua
	listSrc string
	//go:embed scripts/small.lua
	smallSrc string
	//go:embed scripts/agent.lua
	agentSrc string
	//go:embed scripts/agentdelete.lua
	agentDeleteSrc string
	//go:embed scripts/replace.lua
	replaceSrc string
	//go:embed scripts/timer.lua
	timerSrc string
	//go:embed scripts/timers.lua
	timersSrc string
	//go:embed scripts/figures.lua
	figuresSrc string
	//go:embed scripts/quota.lua
	quotaSrc string

	createScript    = promise[createPlace](createSrc)
	logScript       = shared[logPlace](logSrc)
	claimScript     = begins[claimPlace](claimSrc)
	renewScript     = shared[renewPlace](renewSrc)
	recordScript    = promise[recordPlace](recordSrc)
	commitScript    = promise[commitPlace](commitSrc)
	releaseScript   = shared[verdictPlace](releaseSrc)
	signalScript    = promise[wakePlace](signalSrc)
	abortScript     = promise[wakePlace](abortSrc)
	sweepScript     = shared[duePlace](sweepSrc)
	evictScript     = shared[duePlace](evictSrc)
	finalizedScript = shared[verdictPlace](finalizedSrc)
	admitScript     = promise[admitPlace](admitSrc)
	deleteScript    = promise[verdictPlace](deleteSrc)
	sealScript      = promise[sealPlace](sealSrc)
	unsealScript    = promise[verdictPlace](unsealSrc)
	preventScript   = promise[verdictPlace](preventSrc)
	freeKeyScript   = promise[verdictPlace](freeKeySrc)
	batchScript     = promise[verdictPlace](batchSrc)
	agentScript     = promise[agentPlace](agentSrc)
	agentDelete     = promise[verdictPlace](agentDeleteSrc)
	markScript      = shared[markPlace](markSrc)
	firstsScript    = shared[firstsPlace](firstsSrc)
	listScript      = shared[listPlace](listSrc)
	smallScript     = shared[storedPlace](smallSrc)
	replaceScript   = promise[verdictPlace](replaceSrc)
	timerScript     = promise[verdictPlace](timerSrc)
	timersScript    = promise[timersPlace](timersSrc)
	figuresScript   = promise[figuresPlace](figuresSrc)
	quotaScript     = script[pausePlace]{Script: redis.NewScript("local fields = {'" + strings.Join(bucketFields, "', '") + "'}\n" + quotaSrc)}
)

// script is a script as this build runs it; P is the type of the places of its reply.
type script[P ~int] struct {
	*redis.Script
	kind
}

// promise returns a script whose write must be confirmed, see Config.Confirm.
func promise[P ~int](src string) script[P] {
	s := shared[P](src)
	s.promise = true
	return s
}

// begins returns a script that begins work: a batcher sends it after the others.
func begins[P ~int](src string) script[P] {
	s := shared[P](src)
	s.begins = true
	return s
}

func shared[P ~int](src string) script[P] {
	return script[P]{Script: redis.NewScript(fmt.Sprintf("local FORMAT, NOISY, LOOK = %d, %d, %d\n", state.Format, state.NoisyAbove, state.BacklogLook) + lib + src)}
}

// reply is the result of a script. If a script has several replies, the first place identifies the
// one returned; convert reply to read another.
type reply[P ~int] []any

// batched calls a script that may be repeated, in a pipeline with others.
func (script script[P]) batched(ctx context.Context, s *Store, keys []string, args ...any) (reply[P], error) {
	return script.send(ctx, s, keys, append(script.command(keys, len(args)), args...))
}

// command returns the beginning of a command that calls the script, with capacity for n arguments.
func (script script[P]) command(keys []string, n int) []any {
	all := append(make([]any, 0, 3+len(keys)+n), "evalsha", script.Hash(), len(keys))
	for i := range keys {
		all = append(all, &keys[i]) // a pointer needs no allocation in an interface
	}
	return all
}

// send is batched for a command with its arguments, which begins as command returns it.
func (script script[P]) send(ctx context.Context, s *Store, keys []string, all []any) (reply[P], error) {
	args := all[3+len(keys):]
	if s.batcher == nil {
		return script.call(ctx, s, keys, args...)
	}
	v, err := s.batcher.do(ctx, script.kind, all...)
	// If the server lacks the script, one of all callers loads it: each by itself would need its
	// own connection.
	if redis.HasErrorPrefix(err, "NOSCRIPT") && s.load(ctx, script.Script) == nil {
		v, err = s.batcher.do(ctx, script.kind, all...)
	}
	if refused(err) {
		return script.call(ctx, s, keys, args...)
	}
	return listOf[P](v, err)
}

// onEach calls a script that may be repeated for each of some keys, in one round trip for all of a server.
func (script script[P]) onEach(ctx context.Context, s *Store, keys []string, args func(i int) []any) ([]reply[P], error) {
	cmds := make([]*redis.Cmd, len(keys))
	for try := 0; ; try++ {
		pipe := s.rdb.Pipeline()
		for i, key := range keys {
			cmds[i] = script.EvalSha(ctx, pipe, []string{key}, args(i)...)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		if try > 0 || !slices.ContainsFunc(cmds, func(c *redis.Cmd) bool { return redis.HasErrorPrefix(c.Err(), "NOSCRIPT") }) {
			break
		}
		if err := s.load(ctx, script.Script); err != nil {
			return nil, err
		}
	}
	replies := make([]reply[P], len(keys))
	for i, c := range cmds {
		var err error
		if replies[i], err = listOf[P](c.Result()); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// load loads a script into the server, once for concurrent callers.
func (s *Store) load(ctx context.Context, script *redis.Script) error {
	_, err, _ := s.loads.Do(script.Hash(), func() (any, error) { return nil, script.Load(ctx, s.rdb).Err() })
	return err
}

// fields reads fields of a hash, in a pipeline with others.
func fields[P ~int](ctx context.Context, s *Store, key string, names []string) (reply[P], error) {
	if s.batcher != nil {
		args := []any{"hmget", key}
		for _, n := range names {
			args = append(args, n)
		}
		if v, err := s.batcher.do(ctx, kind{}, args...); !refused(err) {
			return listOf[P](v, err)
		}
	}
	return s.rdb.HMGet(ctx, key, names...).Result()
}

// refused reports whether err is an error reply of the server: for example it lacks the script, or accepts no
// commands while it loads its data. The caller then sends the command alone, with the client's own retries.
func refused(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

func listOf[P ~int](v any, err error) (reply[P], error) {
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, errNothing
	}
	return list, nil
}

// errNothing reports an answer that no script gives.
var errNothing = errors.New("the answer of Redis is empty: check that TURNPIKE_REDIS_URL names a Redis server, not a proxy that changes answers")

func (script script[P]) call(ctx context.Context, s *Store, keys []string, args ...any) (reply[P], error) {
	if script.promise && s.confirm.on() {
		v, err := s.confirmed(ctx, keys[0], func(p redis.Pipeliner) *redis.Cmd { return script.EvalSha(ctx, p, keys, args...) })
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			v, err = s.confirmed(ctx, keys[0], func(p redis.Pipeliner) *redis.Cmd { return script.Eval(ctx, p, keys, args...) })
		}
		return listOf[P](v, err)
	}
	v, err := script.Run(ctx, s.rdb, keys, args...).Slice()
	if err != nil {
		return nil, err
	}
	if len(v) == 0 {
		return nil, errNothing
	}
	return v, nil
}

func (r reply[P]) str(p P) string {
	if int(p) >= len(r) {
		return ""
	}
	switch v := r[p].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return ""
	}
}

func (r reply[P]) num(p P) int64 {
	if int(p) < len(r) {
		if n, ok := r[p].(int64); ok {
			return n
		}
	}
	n, err := strconv.ParseInt(r.str(p), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (r reply[P]) flag(p P) bool { return r.num(p) == 1 }

func (r reply[P]) list(p P) ([]string, error) {
	if int(p) >= len(r) {
		return nil, fmt.Errorf("a Lua script of Turnpike returned %d elements, want at least %d: report this bug in Turnpike", len(r), p+1)
	}
	elements, ok := r[p].([]any)
	if !ok {
		return nil, fmt.Errorf("a Lua script of Turnpike returned no list as element %d: report this bug in Turnpike", p)
	}
	out := make([]string, len(elements))
	for j, e := range elements {
		if out[j], ok = e.(string); !ok {
			return nil, fmt.Errorf("a Lua script of Turnpike returned a list as element %d that has not only strings: report this bug in Turnpike", p)
		}
	}
	return out, nil
}
