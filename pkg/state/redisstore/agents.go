package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// agentsAtOnce is the number of agents requested in one pipeline.
const agentsAtOnce = 1000

// maxLatest is the maximum number of agents whose latest version is cached.
const maxLatest = 10_000

// latest caches the numbers of the latest versions of agents as last read. A read of the latest version requests the
// definition with the cached number together with the current number, and needs another round trip only if the two
// numbers differ.
type latest struct {
	mu       sync.Mutex
	versions map[string]int // by key
}

// of returns the cached latest version, or 0.
func (l *latest) of(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.versions[key]
}

func (l *latest) note(key string, version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.versions == nil || len(l.versions) >= maxLatest {
		l.versions = map[string]int{}
	}
	l.versions[key] = version
}

// PutAgent implements state.Agents.
func (s *Store) PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	// Readers skip a name in the list that has no version.
	if _, err := s.write(ctx, "sadd", s.keys.agents(tenant), name); err != nil {
		return state.AgentVersion{}, fmt.Errorf("put agent: %w", err)
	}
	r, err := agentScript.call(ctx, s, []string{s.keys.agent(tenant, name)}, rand.Text(), []byte(definition), always)
	if err != nil {
		return state.AgentVersion{}, fmt.Errorf("put agent: %w", err)
	}
	return state.AgentVersion{Name: name, Version: int(r.num(agentVersion)), Definition: definition, CreatedAt: millis(r.num(agentCreated))}, nil
}

// Agent implements state.Agents.
func (s *Store) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	key := s.keys.agent(tenant, name)
	missing := fmt.Errorf("agent %s: %w", name, state.ErrNotFound)
	var r reply[definitionPlace]
	if version == 0 {
		known := s.latest.of(key)
		both, err := fields[latestPlace](ctx, s, key, slices.Concat(latestFields, definitionFields(strconv.Itoa(known))))
		if err != nil {
			return state.AgentVersion{}, fmt.Errorf("read agent: %w", err)
		}
		version = int(both.num(latestVersion))
		if version == 0 || both.flag(latestDeleted) {
			return state.AgentVersion{}, missing
		}
		if version == known {
			r = reply[definitionPlace](both[len(latestFields):])
		}
		s.latest.note(key, version)
	}
	if r == nil {
		var err error
		if r, err = fields[definitionPlace](ctx, s, key, definitionFields(strconv.Itoa(version))); err != nil {
			return state.AgentVersion{}, fmt.Errorf("read agent: %w", err)
		}
	}
	if r.str(definitionText) == "" {
		return state.AgentVersion{}, missing
	}
	v := state.AgentVersion{Name: name, Version: version, Definition: json.RawMessage(r.str(definitionText)), CreatedAt: millis(r.num(definitionCreated))}
	if s.oneNode { // in a cluster no script has both the agent and a run
		v.Guard = r.str(definitionToken)
	}
	return v, nil
}

// AgentNames implements state.Agents.
func (s *Store) AgentNames(ctx context.Context, tenant string) ([]string, error) {
	names, err := s.rdb.SMembers(ctx, s.keys.agents(tenant)).Result()
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	slices.Sort(names)
	list := make([]string, 0, len(names))
	for some := range slices.Chunk(names, agentsAtOnce) {
		heads, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, name := range some {
				p.HMGet(ctx, s.keys.agent(tenant, name), latestFields...)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list agents: %w", err)
		}
		for i, head := range heads {
			r := reply[latestPlace](head.(*redis.SliceCmd).Val())
			if r.num(latestVersion) > 0 && !r.flag(latestDeleted) {
				list = append(list, some[i])
			}
		}
	}
	return list, nil
}

// Pin implements state.Agents.
func (s *Store) Pin(ctx context.Context, key string, value []byte) ([]byte, error) {
	name := s.keys.pin(key)
	if len(value) > 0 {
		if _, err := s.write(ctx, "setnx", name, value); err != nil {
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
func (s *Store) DeleteAgent(ctx context.Context, tenant, name string) error {
	r, err := agentDelete.call(ctx, s, []string{s.keys.agent(tenant, name)}, rand.Text())
	if err != nil {
		return fmt.Errorf("delete agent: %w", err)
	}
	if r.str(verdictWord) == "missing" {
		return fmt.Errorf("agent %s: %w", name, state.ErrNotFound)
	}
	return nil
}
