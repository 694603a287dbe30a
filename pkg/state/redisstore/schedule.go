package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// sweepPart is the number of runs that a sweep first requests from each shard.
	sweepPart = 8

	// asidePart is the number of shards that a sweep asks for runs that an older build set aside.
	asidePart = 16

	// sweepLooks is the number of times a sweep looks for more if the due runs need nothing because
	// the backlog covers them. Of 100,000 such runs, 1,250 a second become due; they must not delay
	// the runs behind them whose timers are due.
	sweepLooks = 8
)

// Sweep implements state.Schedule. A run that cannot be examined does not block the others; Sweep returns its error
// only if it returns no run. A run in a newer format is examined once and then set aside, until a build sweeps that can
// read it. Sweep takes the runs of each shard that have been due longest; if these are more than limit, a random part
// of them.
func (s *Store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) (due []state.Due, failed error) {
	for range sweepLooks {
		room := limit - len(due)
		found, looked, err := s.look(ctx, room, delay, backlog)
		if err != nil {
			failed = err
		}
		if due = append(due, found...); looked < room || len(due) == limit {
			break
		}
	}
	if len(due) > 0 {
		return due, nil
	}
	return nil, failed
}

// look examines up to limit runs, and returns those that need something, and the number examined. After
// it has read the server's clock, one round trip asks all shards for a few runs each; if these are
// fewer than limit, a second one asks the shards that may have more. The last one examines the runs.
func (s *Store) look(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) (due []state.Due, looked int, failed error) {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("look for due runs: %w", err)
	}
	shards := allShards()
	ids, full, aside, err := s.due(ctx, shards, now, sweepPart, shards[:asidePart])
	if err == nil && len(ids) < limit && len(full) > 0 {
		var rest []state.RunID
		rest, _, _, err = s.due(ctx, full, now, limit, nil)
		ids = append(ids, rest...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look for due runs: %w", err)
	}
	oldest := make([]any, 0, 3)
	for _, lane := range state.Priorities() { // in the order of sweep.lua
		at := int64(0)
		if since, ok := backlog[lane]; ok {
			at = max(1, since.Add(-state.MaxSkew).UnixMilli())
		}
		oldest = append(oldest, at)
	}
	// Shuffled across shards: if more runs are due than fit, every shard makes progress.
	for id := range aside {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:min(len(ids), limit)]
	due, failed = s.each(ctx, ids, sweepScript, func(id state.RunID, k run) ([]string, []any) {
		args := append([]any{string(id), delay.Milliseconds()}, oldest...)
		return []string{k.header, k.log, k.due, k.count, k.tenants, k.leases, k.lists, s.keys.aside[id.Shard()], k.mark}, append(args, aside[id], s.floor.Load())
	})
	return due, len(ids), failed
}

// allShards returns the numbers of all shards, starting at a random one.
func allShards() []int {
	shards, first := make([]int, state.Shards), rand.IntN(state.Shards) //nolint:gosec // not a secret
	for i := range shards {
		shards[i] = (first + i) % state.Shards
	}
	return shards
}

// due returns up to part due runs of each shard, and the shards that may have more; and, from some
// shards, runs that an older build set aside and this one can read, with their names in the index.
func (s *Store) due(ctx context.Context, shards []int, now time.Time, part int, asideOf []int) (ids []state.RunID, full []int, aside map[state.RunID]string, err error) {
	pipe := s.rdb.Pipeline()
	set := make([]*redis.StringSliceCmd, len(asideOf))
	for i, n := range asideOf {
		set[i] = pipe.ZRangeByLex(ctx, s.keys.aside[n], &redis.ZRangeBy{Min: "-", Max: fmt.Sprintf("(%04d", state.Format+1), Count: sweepPart})
	}
	cmds := make([]*redis.StringSliceCmd, len(shards))
	for i, n := range shards {
		cmds[i] = pipe.ZRangeByScore(ctx, s.keys.due(n), &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: int64(part)})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, nil, nil, err
	}
	aside = map[state.RunID]string{}
	for _, c := range set {
		for _, member := range c.Val() {
			if _, id, ok := strings.Cut(member, "\x00"); ok {
				aside[state.RunID(id)] = member
			}
		}
	}
	for i, c := range cmds {
		for _, id := range c.Val() {
			ids = append(ids, state.RunID(id))
		}
		if len(c.Val()) == part {
			full = append(full, shards[i])
		}
	}
	return ids, full, aside, nil
}

// each runs a script of the schedule for each run, in one round trip unless the server lacks the
// script, and returns the due ones. The error is that of one run.
func (s *Store) each(ctx context.Context, ids []state.RunID, script script[duePlace], call func(state.RunID, run) (keys []string, args []any)) (due []state.Due, failed error) {
	if len(ids) == 0 {
		return nil, nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(ids))
	for i, id := range ids {
		keys, args := call(id, s.keys.run(id))
		cmds[i] = script.EvalSha(ctx, pipe, keys, args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, id := range ids {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			keys, args := call(id, s.keys.run(id))
			cmds[i] = script.Run(ctx, s.rdb, keys, args...)
		}
		r, err := cmds[i].Slice()
		if err != nil {
			failed = fmt.Errorf("check run %s: %w", id, err)
			continue
		}
		if r := reply[duePlace](r); r.str(dueWhat) != "none" {
			due = append(due, dueOf(id, r))
		}
	}
	return due, failed
}

func dueOf(id state.RunID, r reply[duePlace]) state.Due {
	d := state.Due{Run: id, Version: r.num(dueVersion), Priority: state.Priority(r.str(dueLane)), Sweeps: int(r.num(dueSweeps)), Tenant: r.str(dueTenant)}
	switch what := r.str(dueWhat); what {
	case "turn", "covered":
		d.NeedsTurn, d.Covered, d.Noisy = true, what == "covered", r.flag(dueNoisy)
	case "finalize":
		d.Finalize, d.FinalizedSeq = true, r.num(dueFinalized)
	}
	return d
}

// leasePart is the number of shards asked at once for the leases of a worker.
const leasePart = 32

// Evict implements state.Workers. Each call starts at another shard, so that concurrent callers
// that evict one worker seldom overlap.
func (s *Store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	var due []state.Due
	rest := allShards()
	for len(rest) > 0 && len(due) < limit {
		shards := rest[:min(leasePart, len(rest))]
		ids, err := s.leases(ctx, shards, worker, limit-len(due))
		if err != nil {
			return due, fmt.Errorf("end the leases of worker %s: %w", worker, err)
		}
		more, err := s.each(ctx, ids, evictScript, func(id state.RunID, k run) ([]string, []any) {
			return []string{k.header, k.due, k.count, k.tenants, k.leases, k.mark}, []any{string(id), worker, delay.Milliseconds(), s.floor.Load()}
		})
		if due = append(due, more...); err != nil {
			return due, fmt.Errorf("end the leases of worker %s: %w", worker, err)
		}
		if len(more) == 0 || len(ids) < limit-len(due)+len(more) {
			rest = rest[len(shards):] // the index has no more of these
		}
	}
	return due, nil
}

// leases returns up to limit runs of some shards that a worker holds, according to the index.
func (s *Store) leases(ctx context.Context, shards []int, worker string, limit int) ([]state.RunID, error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.StringSliceCmd, len(shards))
	for i, n := range shards {
		cmds[i] = pipe.ZRangeByLex(ctx, s.keys.leases[n], &redis.ZRangeBy{Min: "[" + worker + "\x00", Max: "(" + worker + "\x01", Count: int64(limit)})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var ids []state.RunID
	for _, c := range cmds {
		for _, member := range c.Val() {
			ids = append(ids, state.RunID(member[len(worker)+1:]))
		}
	}
	return ids[:min(len(ids), limit)], nil
}

// Owners implements state.Workers. It takes a round trip for every 500 workers of the shard with the most, whatever
// the number of leases.
func (s *Store) Owners(ctx context.Context) ([]string, error) {
	owners, err := s.firsts(ctx, s.keys.leases)
	if err != nil {
		return nil, fmt.Errorf("read the workers that hold leases: %w", err)
	}
	return owners, nil
}

// Leases implements state.Workers.
func (s *Store) Leases(ctx context.Context, worker string, limit int) ([]state.RunID, error) {
	held, err := s.leases(ctx, allShards(), worker, limit)
	if err != nil {
		return nil, fmt.Errorf("read leases of worker %s: %w", worker, err)
	}
	return held, nil
}

// Heartbeat implements state.Workers.
func (s *Store) Heartbeat(ctx context.Context, worker string, lasts time.Duration) error {
	write := func() error { return s.rdb.Set(ctx, s.keys.heartbeat(worker), 1, lasts).Err() }
	if lasts <= 0 { // Redis would keep the key for ever
		write = func() error { return s.rdb.Del(ctx, s.keys.heartbeat(worker)).Err() }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	return nil
}

// Alive implements state.Workers.
func (s *Store) Alive(ctx context.Context, worker string) (bool, error) {
	n, err := s.rdb.Exists(ctx, s.keys.heartbeat(worker)).Result()
	if err != nil {
		return false, fmt.Errorf("read heartbeat: %w", err)
	}
	return n > 0, nil
}

// MarkFinalized implements state.Schedule.
func (s *Store) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	k := s.keys.run(id)
	r, err := finalizedScript.batched(ctx, s, []string{k.header, k.log, k.due}, string(id), seq)
	if err != nil {
		return fmt.Errorf("record that run %s was finalized: %w", id, err)
	}
	return verdict(r, id, 0)
}

// Counts implements state.Schedule.
func (s *Store) Counts(ctx context.Context) (map[state.Status]int64, error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, state.Shards)
	for n := range cmds {
		cmds[n] = pipe.HGetAll(ctx, s.keys.count(n))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("count runs: %w", err)
	}
	counts := map[state.Status]int64{}
	for _, c := range cmds {
		for st, text := range c.Val() {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("count runs: %w", err)
			}
			counts[state.Status(st)] += n
		}
	}
	return counts, nil
}
