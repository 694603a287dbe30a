package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Agents are the agents of a tenant and their versions.
type Agents struct {
	*core

	defs   *definitions
	drafts *Drafts
}

// Saving is the result of Agents.Put.
type Saving struct {
	Agent    api.SavedAgent
	Draft    *api.AgentDraft // set instead of Agent if the tenant requires review
	Warnings []api.Warning   // about the agent or the draft
	First    bool            // the agent is new; false for a draft
}

// Put stores a definition, in YAML or JSON, as the next version of an agent, or as a draft if the tenant requires
// review. It stores nothing if the definition equals the latest version, unless a worker has listed the tools of that
// version's sources (such as an MCP server): a version pins what its sources list, so Put then stores the definition
// again, and its tools are listed again. If the definition has a name, that must be name.
func (s *Agents) Put(ctx context.Context, c access.Caller, name string, sent []byte) (Saving, error) {
	if err := s.permit(ctx, c, PutAgent); err != nil {
		return Saving{}, err
	}
	saved, err := s.put(ctx, c, name, sent)
	s.note(ctx, c, PutAgent, name, err)
	return saved, err
}

func (s *Agents) put(ctx context.Context, c access.Caller, name string, b []byte) (Saving, error) {
	// Only new definitions: one that was stored before the limit runs with less.
	known := s.cfg.Known
	def, err := known.Parse(b)
	if err != nil {
		return Saving{}, invalidAgent(b, err)
	}
	if def.Name == "" {
		def.Name = name
	}
	if def.Name != name {
		return Saving{}, problem(badRequest, api.CodeInvalidAgent, "the definition has the name %q, the path has %q: make them equal", def.Name, name)
	}
	compiled, err := known.Compile(def, 0)
	if err != nil {
		return Saving{}, invalidAgent(b, err)
	}
	if err := s.defs.permitted(ctx, c.Tenant, compiled); err != nil {
		return Saving{}, err
	}
	def.Tools = compiled.Definition.Tools // each with its name
	stored, err := json.Marshal(def)
	if err != nil {
		return Saving{}, err
	}
	v, err := s.store.Agent(ctx, c.Tenant, name, 0)
	unchanged, listed := err == nil && bytes.Equal(v.Definition, stored), false
	if unchanged {
		if listed, err = definition.Listed(ctx, s.store, c.Tenant, v, compiled); err != nil {
			return Saving{}, err
		}
		unchanged = !listed
	}
	if !unchanged {
		settings, err2 := s.tenants.Settings(ctx, c.Tenant)
		if err2 != nil {
			return Saving{}, err2
		}
		if settings.Review {
			return s.putDraft(ctx, c, name, b, stored, compiled)
		}
		v, err = s.store.PutAgent(ctx, c.Tenant, name, stored, listed)
	}
	if err != nil {
		return Saving{}, err
	}
	v.Status = api.StatusPublished
	warnings := s.defs.warnings(ctx, c.Tenant, b, compiled)
	return Saving{Agent: api.SavedAgent{Agent: v, Warnings: warnings}, Warnings: warnings, First: v.Version == 1 && !unchanged}, nil
}

func (s *Agents) putDraft(ctx context.Context, c access.Caller, name string, sent, stored []byte, compiled *agent.Agent) (Saving, error) {
	warnings := s.defs.warnings(ctx, c.Tenant, sent, compiled)
	d, err := s.drafts.save(ctx, c, name, stored)
	if err != nil {
		return Saving{}, err
	}
	return Saving{Draft: &d, Warnings: warnings}, nil
}

// Get returns a version of an agent, published or deleted; version 0 is the latest of an agent that is not deleted. The
// problem is agent_not_found if it does not exist.
func (s *Agents) Get(ctx context.Context, c access.Caller, name string, version int) (state.AgentVersion, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return state.AgentVersion{}, err
	}
	v, err := s.store.Agent(ctx, c.Tenant, name, version)
	if err != nil {
		return state.AgentVersion{}, agentError(err)
	}
	v.Status = api.StatusPublished
	return v, nil
}

func agentError(err error) error {
	if errors.Is(err, state.ErrNotFound) {
		return problem(missing, api.CodeAgentNotFound, "the agent or this version of it does not exist (%v): correct the name or the version, or choose an agent from GET /v1/agents", err)
	}
	return err
}

// List returns the latest version of each agent of the tenant, by name, without deleted agents and drafts.
func (s *Agents) List(ctx context.Context, c access.Caller, p Page) (api.Page[state.AgentVersion], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[state.AgentVersion]{}, err
	}
	names, err := s.store.AgentNames(ctx, c.Tenant)
	if err != nil {
		return api.Page[state.AgentVersion]{}, err
	}
	return readPage(ctx, s.core, p, names, func(ctx context.Context, name string) (state.AgentVersion, int, error) {
		v, err := s.store.Agent(ctx, c.Tenant, name, 0)
		v.Status = api.StatusPublished
		return v, len(v.Definition), err
	})
}

// Delete removes an agent from the list, so that its name without a version cannot be used. Its versions stay, and its
// runs continue.
func (s *Agents) Delete(ctx context.Context, c access.Caller, name string) error {
	if err := s.permit(ctx, c, DeleteAgent); err != nil {
		return err
	}
	err := agentError(s.store.DeleteAgent(ctx, c.Tenant, name))
	s.note(ctx, c, DeleteAgent, name, err)
	return err
}
