package definition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// maxAgents bounds the cache of compiled agents: one more clears it. Versions never change, so a dropped one is
// only compiled again.
const maxAgents = 1024

// storePause is the time between attempts at a store that does not answer.
const storePause = 100 * time.Millisecond

// Config of Agents. All fields but Policy and Keys are required.
type Config struct {
	Kinds     tool.Kinds
	Hooks     hook.Kinds
	Providers map[string]model.Provider
	Loops     loop.Registry

	// Policy returns the current policy for the agents of a tenant. Nil allows everything.
	Policy func(ctx context.Context, tenant string) (policy.Policy, error)

	// Secrets are those of the process. Keys maps each provider to its API key, or to a reference
	// to it, for models that name neither a key nor an address.
	Secrets Secrets
	Keys    map[string]string

	Patience time.Duration    // how long reads retry a store that does not answer
	Calls    *timelimit.Calls // counts calls of kinds that ignore their time limit
	Log      *slog.Logger
}

// Agents compiles and caches the agents of runs, and decides which resources each may use. It is
// safe for concurrent use.
type Agents struct {
	cfg   Config
	store state.Agents
	known agent.Known

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

// bound is a version of an agent with its loops. Only asked changes.
type bound struct {
	agent *agent.Agent
	loops map[string]loop.Loop

	def         agent.Definition
	undescribed []undescribed
	said        map[string]tool.Description // nil: no kind has been asked
	asked       atomic.Int64                // when said was last requested, in nanoseconds since 1970
}

// InvalidError reports that the agent of a run cannot be used by this worker, and that no retry here changes
// that.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

// New returns an empty cache of the agents in store.
func New(store state.Agents, cfg Config) *Agents {
	return &Agents{
		cfg: cfg, store: store,
		known: agent.Known{Tools: cfg.Kinds.Specs(), Hooks: cfg.Hooks.Specs(), Providers: model.SpecsOf(cfg.Providers), Loops: cfg.Loops.Names()},
		cache: map[agentKey]*bound{}, secrets: map[string]func(name, host string) (string, error){},
	}
}

// Latest returns the latest version of an agent. Errors are as for Get; an agent that does not exist is an
// *InvalidError.
func (a *Agents) Latest(ctx context.Context, tenant, name string) (*agent.Agent, error) {
	record, err := a.store.Agent(ctx, tenant, name, 0)
	if errors.Is(err, state.ErrNotFound) {
		return nil, &InvalidError{fmt.Errorf("there is no agent %q: continue without it; an author of agents must save it first, or correct the name", name)}
	}
	if err != nil {
		return nil, fmt.Errorf("read agent %s: %w", name, err)
	}
	return a.Get(ctx, tenant, name, record.Version)
}

// Of returns the agent that is responsible for a run. Errors are as for Get.
func (a *Agents) Of(ctx context.Context, s *state.State) (*agent.Agent, error) {
	d := s.Definition()
	return a.Get(ctx, s.Tenant, d.Name, d.Version)
}

// Get returns a version of an agent. An *InvalidError means that the run must fail: the version does
// not exist or cannot be used here, or a source of tools cannot be listed. Any other error may pass: it
// is that of the store, the policy or ctx. Get retries the read of the definition for Config.Patience.
func (a *Agents) Get(ctx context.Context, tenant, name string, version int) (*agent.Agent, error) {
	b, err := a.load(ctx, agentKey{tenant, name, version})
	if err != nil {
		return nil, err
	}
	return b.agent, nil
}

// Loop returns the loop of a run, bound to its agent. Errors are as for Get; a loop that this worker lacks is
// an *InvalidError.
func (a *Agents) Loop(ctx context.Context, s *state.State) (loop.Loop, error) {
	d := s.Definition()
	b, err := a.load(ctx, agentKey{s.Tenant, d.Name, d.Version})
	if err != nil {
		return nil, err
	}
	kind := s.Loop
	if s.Active.Name != "" {
		kind = b.agent.Loop.Type
	}
	l := b.loops[kind]
	if l == nil {
		return nil, &InvalidError{fmt.Errorf("this worker has no loop %q, only %s: register the loop with every worker, or upgrade this one", kind, strings.Join(a.cfg.Loops.Names(), ", "))}
	}
	return l, nil
}

func (a *Agents) load(ctx context.Context, key agentKey) (*bound, error) {
	a.mu.Lock()
	b, ok := a.cache[key]
	a.mu.Unlock()
	if ok && !b.mustAsk() {
		return b, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if ok {
		return a.described(ctx, key, b)
	}
	record, err := a.read(ctx, key)
	if errors.Is(err, state.ErrNotFound) {
		return nil, &InvalidError{fmt.Errorf("agent %s version %d: %w", key.name, key.version, err)}
	}
	if err != nil {
		return nil, fmt.Errorf("read agent %s version %d: %w", key.name, key.version, err)
	}
	def, err := agent.Parse(record.Definition)
	if err != nil {
		return nil, &InvalidError{err}
	}
	if b, err = a.expand(ctx, key, def); err != nil {
		return nil, err
	}
	b.undescribed = a.undescribed(key.tenant, b.agent)
	a.put(key, b)
	if !b.mustAsk() {
		return b, nil
	}
	return a.described(ctx, key, b)
}

// loadTimeout bounds the loading of an agent, which makes servers list and describe their tools.
const loadTimeout = time.Minute

// read retries a store that does not answer, for Config.Patience: the turn has been claimed, and would wait for
// the end of its lease.
func (a *Agents) read(ctx context.Context, key agentKey) (state.AgentVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	for {
		record, err := a.store.Agent(ctx, key.tenant, key.name, key.version)
		if err == nil || errors.Is(err, state.ErrNotFound) || !clock.Pause(ctx, storePause) {
			return record, err
		}
	}
}

func (a *Agents) compile(key agentKey, def agent.Definition) (*bound, error) {
	compiled, err := a.known.Compile(def, key.version)
	if err != nil {
		return nil, err
	}
	b := &bound{agent: compiled, def: def, loops: make(map[string]loop.Loop, len(a.cfg.Loops))}
	for name, factory := range a.cfg.Loops {
		b.loops[name] = factory(compiled)
	}
	return b, nil
}

// SecretOf returns the function through which the tools of a tenant's agents read their secrets. The function is safe
// for concurrent use.
func (a *Agents) SecretOf(tenant string) func(name, host string) (string, error) {
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

func (a *Agents) put(key agentKey, b *bound) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= maxAgents {
		clear(a.cache)
	}
	a.cache[key] = b
}
