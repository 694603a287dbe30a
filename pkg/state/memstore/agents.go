package memstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

type agentKey struct{ tenant, name string }

// PutAgent implements state.Agents.
func (s *Store) PutAgent(_ context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := agentKey{tenant, name}
	versions := s.agents[key]
	if n := len(versions); !always && n > 0 && !s.removed[key] && bytes.Equal(versions[n-1].Definition, definition) {
		return versions[n-1], nil
	}
	v := state.AgentVersion{Name: name, Version: len(versions) + 1, Definition: slices.Clone(definition), CreatedAt: state.At(s.now()), Guard: rand.Text()}
	s.agents[key] = append(versions, v)
	delete(s.removed, key)
	return v, nil
}

// Agent implements state.Agents.
func (s *Store) Agent(_ context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agent(tenant, name, version)
}

// agent is Agent for callers that hold s.mu.
func (s *Store) agent(tenant, name string, version int) (state.AgentVersion, error) {
	versions := s.agents[agentKey{tenant, name}]
	if version == 0 && !s.removed[agentKey{tenant, name}] {
		version = len(versions)
	}
	if version < 1 || version > len(versions) {
		return state.AgentVersion{}, fmt.Errorf("agent %s: %w", name, state.ErrNotFound)
	}
	return versions[version-1], nil
}

// AgentNames implements state.Agents.
func (s *Store) AgentNames(_ context.Context, tenant string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for key := range s.agents {
		if key.tenant == tenant && !s.removed[key] {
			names = append(names, key.name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// DeleteAgent implements state.Agents.
func (s *Store) DeleteAgent(_ context.Context, tenant, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.agents[agentKey{tenant, name}]) == 0 || s.removed[agentKey{tenant, name}] {
		return fmt.Errorf("agent %s: %w", name, state.ErrNotFound)
	}
	s.removed[agentKey{tenant, name}] = true
	return nil
}
