package natsstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// readsAtOnce is the number of list entries read concurrently.
const readsAtOnce = 16

// latest names the current version of an agent.
type latest struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Deleted bool   `json:"deleted,omitempty"`
}

// ofTenant returns the subject prefix of what a tenant owns. That of the default tenant has no tenant in it.
func (s *Store) ofTenant(kind, tenant string) string {
	if tenant == state.DefaultTenant {
		return s.cfg.Prefix + ".state." + kind + "."
	}
	return s.cfg.Prefix + ".state." + kind + "." + tenant + "."
}

func (s *Store) latestSubject(tenant, name string) string {
	return s.ofTenant("latest", tenant) + hex.EncodeToString([]byte(name))
}

func (s *Store) agentSubject(tenant, name string, version int) string {
	return fmt.Sprintf("%s%s.%d", s.ofTenant("agent", tenant), hex.EncodeToString([]byte(name)), version)
}

func (s *Store) latest(ctx context.Context, subject string) (latest, uint64, error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return latest{}, 0, nil
	}
	if err != nil {
		return latest{}, 0, fmt.Errorf("read agent: %w", err)
	}
	var l latest
	if err := json.Unmarshal(m.Data, &l); err != nil {
		return latest{}, 0, fmt.Errorf("decode agent: %w", err)
	}
	return l, m.Sequence, nil
}

// PutAgent implements state.Agents. It creates a version first and then makes it the latest. After a crash in between,
// the next PutAgent that needs a new version makes that one the latest, before it stores its own.
func (s *Store) PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	for range maxConflicts {
		l, seq, err := s.latest(ctx, s.latestSubject(tenant, name))
		if err != nil {
			return state.AgentVersion{}, err
		}
		if !always && l.Version > 0 && !l.Deleted {
			before, err := s.Agent(ctx, tenant, name, l.Version)
			if err != nil {
				return state.AgentVersion{}, err
			}
			if bytes.Equal(before.Definition, definition) {
				return before, nil
			}
		}
		v := state.AgentVersion{Name: name, Version: l.Version + 1, Definition: definition, CreatedAt: state.At(s.clock.now())}
		_, err = s.publish(ctx, s.agentSubject(tenant, name, v.Version), v, 0)
		taken := conflict(err)
		if err != nil && !taken {
			return state.AgentVersion{}, fmt.Errorf("put agent: %w", err)
		}
		_, err = s.publish(ctx, s.latestSubject(tenant, name), latest{Name: name, Version: v.Version}, seq)
		if err != nil && !conflict(err) {
			return state.AgentVersion{}, fmt.Errorf("put agent: %w", err)
		}
		if !taken {
			return v, nil
		}
	}
	return state.AgentVersion{}, fmt.Errorf("put agent %s: other processes changed it %d times in a row: retry", name, maxConflicts)
}

// Agent implements state.Agents.
func (s *Store) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	missing := fmt.Errorf("agent %s: %w", name, state.ErrNotFound)
	if version == 0 {
		l, _, err := s.latest(ctx, s.latestSubject(tenant, name))
		if err != nil {
			return state.AgentVersion{}, err
		}
		if l.Version == 0 || l.Deleted {
			return state.AgentVersion{}, missing
		}
		version = l.Version
	}
	m, err := s.stream.GetLastMsgForSubject(ctx, s.agentSubject(tenant, name, version))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return state.AgentVersion{}, missing
	}
	if err != nil {
		return state.AgentVersion{}, fmt.Errorf("read agent: %w", err)
	}
	var v state.AgentVersion
	if err := json.Unmarshal(m.Data, &v); err != nil {
		return state.AgentVersion{}, fmt.Errorf("decode agent: %w", err)
	}
	return v, nil
}

// AgentNames implements state.Agents.
func (s *Store) AgentNames(ctx context.Context, tenant string) ([]string, error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.ofTenant("latest", tenant)+"*"))
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	var mu sync.Mutex
	var names []string
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(readsAtOnce)
	for subject := range info.State.Subjects {
		all.Go(func() error {
			l, _, err := s.latest(ctx, subject)
			if err != nil || l.Deleted {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			names = append(names, l.Name)
			return nil
		})
	}
	err = all.Wait()
	slices.Sort(names)
	return names, err
}

// DeleteAgent implements state.Agents.
func (s *Store) DeleteAgent(ctx context.Context, tenant, name string) error {
	for range maxConflicts {
		l, seq, err := s.latest(ctx, s.latestSubject(tenant, name))
		if err != nil {
			return err
		}
		if l.Version == 0 || l.Deleted {
			return fmt.Errorf("agent %s: %w", name, state.ErrNotFound)
		}
		l.Deleted = true
		_, err = s.publish(ctx, s.latestSubject(tenant, name), l, seq)
		if err == nil {
			return nil
		}
		if !conflict(err) {
			return fmt.Errorf("delete agent: %w", err)
		}
	}
	return fmt.Errorf("delete agent %s: other processes changed it %d times in a row: retry", name, maxConflicts)
}
