package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/singleflight"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// maxAgents bounds the compiled agents that are kept. Versions never change, so
// what is dropped is only compiled again.
const maxAgents = 1024

// agents compiles and keeps the agents of the runs that pass by.
type agents struct {
	store    state.Agents
	log      zerolog.Logger
	known    agent.Known
	calls    *timelimit.Calls
	kinds    tool.Kinds
	loops    loop.Registry
	secret   func(tenant, name, host string) (string, error)
	policy   func(ctx context.Context, tenant string) (policy.Policy, error)
	patience time.Duration // with a store that does not answer

	mu      sync.Mutex
	cache   map[agentKey]*bound
	secrets map[string]func(name, host string) (string, error) // by tenant

	pins singleflight.Group
}

type agentKey struct {
	tenant  string
	name    string
	version int
}

// bound is a version of an agent with its loops. It does not change.
type bound struct {
	agent *agent.Agent
	loops map[string]loop.Loop

	def         agent.Definition
	undescribed []undescribed
	said        map[string]tool.Description
}

// invalidAgentError reports that a run's agent cannot be had any more, however
// often it is tried.
type invalidAgentError struct{ err error }

func (e *invalidAgentError) Error() string { return e.err.Error() }
func (e *invalidAgentError) Unwrap() error { return e.err }

// newAgents returns an empty cache. calls counts what a kind does not return from, and secret
// returns the value of a tenant's secret for a host.
func newAgents(store state.Agents, cfg Config, calls *timelimit.Calls, secret func(tenant, name, host string) (string, error)) *agents {
	known := agent.Known{Tools: cfg.Kinds.Specs(), Hooks: cfg.Hooks.Specs(), Providers: model.SpecsOf(cfg.Providers), Loops: cfg.Loops.Names()}
	return &agents{store: store, log: cfg.Logger, known: known, calls: calls, kinds: cfg.Kinds, loops: cfg.Loops, secret: secret, policy: cfg.Policy, patience: cfg.LeaseDuration / 2, cache: map[agentKey]*bound{}, secrets: map[string]func(name, host string) (string, error){}}
}

// get returns one version of an agent, or an *invalidAgentError.
func (a *agents) get(ctx context.Context, tenant, name string, version int) (*agent.Agent, error) {
	b, err := a.load(ctx, agentKey{tenant, name, version})
	if err != nil {
		return nil, err
	}
	return b.agent, nil
}

// loop returns the loop of a run, bound to its agent.
func (a *agents) loop(ctx context.Context, s state.State) (loop.Loop, error) {
	b, err := a.load(ctx, agentKey{s.Tenant, s.Agent, s.AgentVersion})
	if err != nil {
		return nil, err
	}
	l := b.loops[s.Loop]
	if l == nil {
		return nil, &invalidAgentError{fmt.Errorf("this worker has no loop %q; it has %s", s.Loop, strings.Join(a.loops.Names(), ", "))}
	}
	return l, nil
}

func (a *agents) load(ctx context.Context, key agentKey) (*bound, error) {
	a.mu.Lock()
	b, ok := a.cache[key]
	a.mu.Unlock()
	if ok {
		return a.described(ctx, key, b)
	}
	record, err := a.read(ctx, key)
	if errors.Is(err, state.ErrNotFound) {
		return nil, &invalidAgentError{fmt.Errorf("agent %s version %d: %w", key.name, key.version, err)}
	}
	if err != nil {
		return nil, fmt.Errorf("read agent %s version %d: %w", key.name, key.version, err)
	}
	def, err := agent.Parse(record.Definition)
	if err != nil {
		return nil, &invalidAgentError{err}
	}
	if b, err = a.expand(ctx, key, def); err != nil {
		return nil, err
	}
	b.undescribed = a.undescribed(key.tenant, b.agent)
	a.put(key, b)
	return a.described(ctx, key, b)
}

// read asks a store that does not answer again: the turn has been claimed, and would
// wait for the end of its lease.
func (a *agents) read(ctx context.Context, key agentKey) (state.AgentVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	for {
		record, err := a.store.Agent(ctx, key.tenant, key.name, key.version)
		if errors.Is(err, state.ErrNotFound) && key.tenant != state.DefaultTenant {
			// The run is of a build in which agents were of no tenant. A later one is
			// stored with a version that its own tenant has.
			record, err = a.store.Agent(ctx, state.DefaultTenant, key.name, key.version)
		}
		if err == nil || errors.Is(err, state.ErrNotFound) || !pause(ctx, storePause) {
			return record, err
		}
	}
}

func (a *agents) compile(key agentKey, def agent.Definition) (*bound, error) {
	compiled, err := a.known.Compile(def, key.version)
	if err != nil {
		return nil, err
	}
	b := &bound{agent: compiled, def: def, loops: make(map[string]loop.Loop, len(a.loops))}
	for name, factory := range a.loops {
		b.loops[name] = factory(compiled)
	}
	return b, nil
}

// secretOf returns how a tenant's agents get their secrets, the same each time.
func (a *agents) secretOf(tenant string) func(name, host string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	secret, ok := a.secrets[tenant]
	if !ok {
		if len(a.secrets) >= maxTenants {
			clear(a.secrets)
		}
		secret = func(name, host string) (string, error) { return a.secret(tenant, name, host) }
		a.secrets[tenant] = secret
	}
	return secret
}

func (a *agents) put(key agentKey, b *bound) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= maxAgents {
		clear(a.cache)
	}
	a.cache[key] = b
}
