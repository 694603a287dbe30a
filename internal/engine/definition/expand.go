package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// expand compiles a definition and replaces its sources with the tools they list. A worker that finds no pinned list
// lists the tools and pins the list; the first pin wins. All workers use the pin for all runs of that version of the
// agent, so that each run has the same tools. Sources of probes are pinned and replaced in the same way. The error is
// an *InvalidError, or that of the store, the policy or ctx.
func (a *Agents) expand(ctx context.Context, key agentKey, def agent.Definition) (*bound, error) {
	b, err := a.compile(key, def)
	if err != nil {
		return nil, &InvalidError{err}
	}
	if def, err = a.probes(ctx, key, def, b.agent.ProbeSources()); err != nil {
		return nil, err
	}
	if !b.agent.Pins() {
		return b, nil
	}
	listed := map[int][]agent.Tool{}
	for _, s := range b.agent.Sources() {
		if err := a.mayAsk(ctx, key.tenant, s); err != nil {
			return nil, err
		}
		kind, source := a.cfg.Kinds[s.Kind], s.Bound(key.tenant, a.SecretOf(key.tenant))
		pin, err := a.pinned(ctx, key.pin(s), kind, source)
		if err != nil {
			return nil, err
		}
		if listed[s.Index], err = a.listed(fmt.Sprintf("tools[%d]", s.Index), kind, source, pin); err != nil {
			return nil, err
		}
		for i := range listed[s.Index] {
			listed[s.Index][i].Probe = def.Tools[s.Index].Probe
		}
	}
	if b, err = a.compile(key, def.Expand(listed)); err != nil {
		return nil, &InvalidError{err}
	}
	return b, nil
}

// probes returns a definition in which each probe that is a source is replaced by the one tool that the source
// lists. Errors are as for expand.
func (a *Agents) probes(ctx context.Context, key agentKey, def agent.Definition, sources []agent.Source) (agent.Definition, error) {
	if len(sources) == 0 {
		return def, nil
	}
	def.Tools = slices.Clone(def.Tools)
	for _, s := range sources {
		if err := a.mayAsk(ctx, key.tenant, s); err != nil {
			return def, err
		}
		kind, source := a.cfg.Kinds[s.Kind], s.Bound(key.tenant, a.SecretOf(key.tenant))
		pin, err := a.pinned(ctx, key.pin(s)+probePin, kind, source)
		if err != nil {
			return def, err
		}
		tools, err := a.listed(fmt.Sprintf("tools[%d].probe", s.Index), kind, source, pin)
		if err != nil {
			return def, err
		}
		if len(tools) != 1 {
			return def, &InvalidError{fmt.Errorf("tools[%d].probe: its source lists %d tools, but a probe is exactly 1 tool: correct the source, or name that tool in its allow; then save the agent, and start a new run", s.Index, len(tools))}
		}
		probe := *def.Tools[s.Index].Probe
		probe.Listed = tools[0].Listed
		def.Tools[s.Index].Probe = &probe
	}
	return def, nil
}

// listed returns the tools of a source at a place in the definition. The error is an *InvalidError, because a retry by
// this worker does not help: the pinned list stays, and a kind must expand the same list always in the same way.
func (a *Agents) listed(place string, kind tool.Kind, source tool.Bound, pin json.RawMessage) (tools []tool.Definition, err error) {
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			err = &InvalidError{fmt.Errorf("%s: %w", place, a.panicked(p, source.Kind))}
		} else if err != nil {
			err = &InvalidError{fmt.Errorf("%s: the list of tools that this version of the agent has pinned cannot be used: %w", place, err)}
		}
	}()
	return kind.Expand(source, pin)
}

// panicked logs a panic of a kind, and returns it as an error.
func (a *Agents) panicked(p *timelimit.Panic, kind string) error {
	a.cfg.Log.Error("the implementation of a tool kind panicked while determining its tools; runs whose agents use it fail", "panic", p.Value, "kind", kind, "stack", string(p.Stack), "hint", "fix the implementation of this tool kind; until then runs whose agents use it end with invalid_agent, and handoffs to such agents are refused")
	return fmt.Errorf("the implementation of the tool kind %s panicked: %v: find the stack in the worker's log, and fix that implementation", kind, p.Value)
}

// mayAsk returns nil if a tenant's agents may use a source of tools, an *InvalidError if not, or the error of
// reading the policy.
func (a *Agents) mayAsk(ctx context.Context, tenant string, s agent.Source) error {
	err := a.Permitted(ctx, tenant, s.Needs)
	if _, refused := errors.AsType[*policy.RefusedError](err); refused {
		return &InvalidError{fmt.Errorf("tools[%d]: %w", s.Index, err)}
	}
	return err
}

// Listed reports whether a worker has pinned the tools of a source of a version. compiled is the version's definition.
func Listed(ctx context.Context, store state.Agents, tenant string, v state.AgentVersion, compiled *agent.Agent) (bool, error) {
	key := agentKey{tenant, v.Name, v.Version}
	var names []string
	for _, s := range compiled.Sources() {
		names = append(names, key.pin(s))
	}
	for _, s := range compiled.ProbeSources() {
		names = append(names, key.pin(s)+probePin)
	}
	for _, name := range names {
		if pinned, err := store.Pin(ctx, name, nil); err != nil || len(pinned) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// probePin ends the names of the pins of probes.
const probePin = "/probe"

// pin returns the name of the pin of a version of an agent for a source of tools.
func (k agentKey) pin(s agent.Source) string {
	return fmt.Sprintf("%s/%s/%s/%d/%d", k.tenant, s.Kind, k.name, k.version, s.Index)
}

// pinned returns the list of tools that a version of an agent has pinned under a key. If there is none, it lists the
// source and pins the result. The error is an *InvalidError if the source cannot be listed, otherwise that of the
// store or of ctx. Concurrent turns share one lookup.
func (a *Agents) pinned(ctx context.Context, key string, kind tool.Kind, source tool.Bound) (json.RawMessage, error) {
	found := a.pins.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agent.DefaultToolTimeout)
		defer cancel()
		kept, err := a.store.Pin(ctx, key, nil)
		if err != nil || len(kept) > 0 {
			return kept, err
		}
		pin, err := a.list(ctx, kind, source)
		if err != nil {
			return nil, &InvalidError{err}
		}
		return a.store.Pin(ctx, key, pin)
	})
	select {
	case r := <-found:
		if r.Err != nil {
			return nil, r.Err
		}
		pin, _ := r.Val.([]byte)
		return pin, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// list asks a kind for the list of a source.
func (a *Agents) list(ctx context.Context, kind tool.Kind, source tool.Bound) (pin json.RawMessage, err error) {
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			err = a.panicked(p, source.Kind)
		}
	}()
	return kind.Pin(ctx, source)
}
