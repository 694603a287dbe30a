package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Sweep implements state.Schedule. One round trip asks all shards, and one more
// looks at what they have due. A run that cannot be looked at does not keep the
// others from it; its error is reported when nothing else is due.
func (s *Store) Sweep(ctx context.Context, limit int, delay time.Duration) ([]state.Due, error) {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	ids, err := s.indexed(ctx, func(pipe redis.Pipeliner, key string) *redis.StringSliceCmd {
		return pipe.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: int64(limit)})
	})
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	// No shard comes first every time: when more is due than fits, all get on.
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:min(len(ids), limit)]
	var due []state.Due
	var failed error
	for i, cmd := range s.look(ctx, ids, delay) {
		r, err := cmd.Slice()
		if err != nil {
			failed = fmt.Errorf("sweep run %s: %w", ids[i], err)
			continue
		}
		if r := reply[duePlace](r); r.str(dueWhat) != "none" {
			due = append(due, dueOf(ids[i], r))
		}
	}
	if len(due) > 0 {
		return due, nil
	}
	return nil, failed
}

// look runs the sweep script for each run, in one round trip unless the server has
// forgotten the script.
func (s *Store) look(ctx context.Context, ids []state.RunID, delay time.Duration) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(ids))
	if len(ids) == 0 {
		return cmds
	}
	call := func(run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd, on redis.Scripter, id state.RunID) *redis.Cmd {
		k := s.keys.run(id)
		return run(ctx, on, []string{k.header, k.log, k.due, k.count, k.tenants}, string(id), delay.Milliseconds())
	}
	pipe := s.rdb.Pipeline()
	for i, id := range ids {
		cmds[i] = call(sweepScript.EvalSha, pipe, id)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, id := range ids {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = call(sweepScript.Run, s.rdb, id)
		}
	}
	return cmds
}

func dueOf(id state.RunID, r reply[duePlace]) state.Due {
	d := state.Due{Run: id, Version: r.num(dueVersion), Priority: state.Priority(r.str(dueLane)), Sweeps: int(r.num(dueSweeps)), Tenant: r.str(dueTenant)}
	switch r.str(dueWhat) {
	case "turn":
		d.Turn, d.Noisy = true, r.flag(dueNoisy)
	case "finalize":
		d.Finalize, d.Finalized = true, r.num(dueFinalized)
	}
	return d
}

// indexed collects run ids from the due index of every shard.
func (s *Store) indexed(ctx context.Context, ask func(redis.Pipeliner, string) *redis.StringSliceCmd) ([]state.RunID, error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.StringSliceCmd, state.Shards)
	for n := range cmds {
		cmds[n] = ask(pipe, s.keys.due(n))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var ids []state.RunID
	for _, c := range cmds {
		for _, id := range c.Val() {
			ids = append(ids, state.RunID(id))
		}
	}
	return ids, nil
}

// leases returns the runs that workers hold, by worker. It looks at every run in
// the due index, which has all runs in flight; workers do not vanish often.
func (s *Store) leases(ctx context.Context) (map[string][]state.RunID, error) {
	ids, err := s.indexed(ctx, func(pipe redis.Pipeliner, key string) *redis.StringSliceCmd { return pipe.ZRange(ctx, key, 0, -1) })
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	leased := map[string][]state.RunID{}
	for batch := range slices.Chunk(ids, 500) {
		pipe := s.rdb.Pipeline()
		owners := make([]*redis.StringCmd, len(batch))
		for i, id := range batch {
			owners[i] = pipe.HGet(ctx, s.keys.run(id).header, fieldOwner)
		}
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read leases: %w", err)
		}
		for i, id := range batch {
			if own := owners[i].Val(); own != "" {
				leased[own] = append(leased[own], id)
			}
		}
	}
	return leased, nil
}

// Evict implements state.Schedule.
func (s *Store) Evict(ctx context.Context, worker string, delay time.Duration) ([]state.Due, error) {
	leased, err := s.leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("evict %s: %w", worker, err)
	}
	var due []state.Due
	for _, id := range leased[worker] {
		k := s.keys.run(id)
		r, err := evictScript.call(ctx, s, []string{k.header, k.due, k.count, k.tenants}, string(id), worker, delay.Milliseconds())
		if err != nil {
			return due, fmt.Errorf("evict %s from run %s: %w", worker, id, err)
		}
		if r.str(dueWhat) != "none" {
			due = append(due, dueOf(id, r))
		}
	}
	return due, nil
}

// Owners implements state.Schedule.
func (s *Store) Owners(ctx context.Context) ([]string, error) {
	leased, err := s.leases(ctx)
	return slices.Sorted(maps.Keys(leased)), err
}

// Finalized implements state.Schedule.
func (s *Store) Finalized(ctx context.Context, id state.RunID, seq int64) error {
	k := s.keys.run(id)
	r, err := finalizedScript.batched(ctx, s, []string{k.header, k.log, k.due}, string(id), seq)
	if err != nil {
		return fmt.Errorf("note that run %s was finalized: %w", id, err)
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

// PutAgent implements state.Agents.
func (s *Store) PutAgent(ctx context.Context, name string, definition json.RawMessage) (state.AgentVersion, error) {
	// A name in the list without a version is passed over.
	if err := s.rdb.SAdd(ctx, s.keys.agents(), name).Err(); err != nil {
		return state.AgentVersion{}, fmt.Errorf("put agent: %w", err)
	}
	r, err := agentScript.call(ctx, s, []string{s.keys.agent(name)}, name, []byte(definition))
	if err != nil {
		return state.AgentVersion{}, fmt.Errorf("put agent: %w", err)
	}
	return state.AgentVersion{Name: name, Version: int(r.num(agentVersion)), Definition: definition, CreatedAt: millis(r.num(agentCreated))}, nil
}

// Agent implements state.Agents.
func (s *Store) Agent(ctx context.Context, name string, version int) (state.AgentVersion, error) {
	key := s.keys.agent(name)
	missing := fmt.Errorf("agent %s: %w", name, state.ErrNotFound)
	if version == 0 {
		r, err := fields[latestPlace](ctx, s, key, latestFields)
		if err != nil {
			return state.AgentVersion{}, fmt.Errorf("read agent: %w", err)
		}
		version = int(r.num(latestVersion))
		if version == 0 || r.flag(latestDeleted) {
			return state.AgentVersion{}, missing
		}
	}
	r, err := fields[definitionPlace](ctx, s, key, definitionFields(strconv.Itoa(version)))
	if err != nil {
		return state.AgentVersion{}, fmt.Errorf("read agent: %w", err)
	}
	if r.str(definitionText) == "" {
		return state.AgentVersion{}, missing
	}
	return state.AgentVersion{Name: name, Version: version, Definition: json.RawMessage(r.str(definitionText)), CreatedAt: millis(r.num(definitionCreated))}, nil
}

// ListAgents implements state.Agents.
func (s *Store) ListAgents(ctx context.Context) ([]state.AgentVersion, error) {
	names, err := s.rdb.SMembers(ctx, s.keys.agents()).Result()
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	slices.Sort(names)
	var list []state.AgentVersion
	for _, name := range names {
		v, err := s.Agent(ctx, name, 0)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// Pin implements state.Agents.
func (s *Store) Pin(ctx context.Context, key string, value []byte) ([]byte, error) {
	name := s.keys.pin(key)
	if len(value) > 0 {
		if err := s.rdb.SetNX(ctx, name, value, 0).Err(); err != nil {
			return nil, fmt.Errorf("pin %s: %w", key, err)
		}
	}
	kept, err := s.rdb.Get(ctx, name).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read pin %s: %w", key, err)
	}
	return kept, nil
}

// DeleteAgent implements state.Agents.
func (s *Store) DeleteAgent(ctx context.Context, name string) error {
	if _, err := s.Agent(ctx, name, 0); err != nil {
		return err
	}
	if err := s.rdb.HSet(ctx, s.keys.agent(name), agentFieldDeleted, 1).Err(); err != nil {
		return fmt.Errorf("delete agent: %w", err)
	}
	return nil
}
