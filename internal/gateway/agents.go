package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lookupFor is how long a definition that was saved waits for what is said of the services that
// it refers to.
const lookupFor = 2 * time.Second

func (g *Gateway) putAgent(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	b, err := readBody(r)
	if err != nil {
		return err
	}
	def, err := g.saving.Parse(b)
	if err != nil {
		return invalidAgent(b, err)
	}
	if def.Name == "" {
		def.Name = name
	}
	if def.Name != name {
		return problem(http.StatusBadRequest, api.CodeInvalidAgent, "the definition is named %q, the path says %q", def.Name, name)
	}
	compiled, err := g.saving.Compile(def, 0)
	if err != nil {
		return invalidAgent(b, err)
	}
	if err := g.permitted(r, compiled); err != nil {
		return err
	}
	stored, err := json.Marshal(def)
	if err != nil {
		return err
	}
	// A version pins what its sources of tools list, so saving one with sources again asks
	// them anew.
	v, err := g.store.Agent(r.Context(), tenantOf(r), name, 0)
	unchanged := err == nil && bytes.Equal(v.Definition, stored) && !compiled.Pins()
	if !unchanged {
		settings, err2 := g.tenants.Settings(r.Context(), tenantOf(r))
		if err2 != nil {
			return err2
		}
		if settings.Review {
			return g.saveForReview(w, r, name, stored, g.warnings(r, b, compiled))
		}
		v, err = g.store.PutAgent(r.Context(), tenantOf(r), name, stored)
	}
	if err != nil {
		return err
	}
	v.Status = api.StatusPublished
	status := http.StatusOK
	if v.Version == 1 && !unchanged {
		status = http.StatusCreated
	}
	return reply(w, status, api.SavedAgent{Agent: v, Warnings: g.warnings(r, b, compiled)})
}

// warnings tells what of what a definition refers to nobody has, each with its place in the
// document that was sent.
func (g *Gateway) warnings(r *http.Request, sent []byte, a *agent.Agent) []api.Warning {
	ctx, cancel := context.WithTimeout(r.Context(), lookupFor)
	defer cancel()
	missing := g.lookup.Missing(ctx, tenantOf(r), a)
	faults := make([]*agent.Fault, len(missing))
	for i, m := range missing {
		faults[i] = m.Fault()
	}
	var all []api.Warning
	for i, f := range placed(sent, faults) {
		all = append(all, api.Warning{Fault: f, Kind: string(missing[i].Kind), Name: missing[i].Name})
	}
	return all
}

// placed returns faults with their places in the document that was sent.
func placed(sent []byte, faults []*agent.Fault) []api.Fault {
	var all []api.Fault
	for _, f := range agent.Locate(sent, faults) {
		all = append(all, api.Fault{At: f.At, Detail: f.Text, Line: f.Line, Column: f.Column})
	}
	return all
}

// invalidAgent reports the mistakes of a definition, each with its place in the document that
// was sent.
func invalidAgent(sent []byte, err error) error {
	p := problem(http.StatusBadRequest, api.CodeInvalidAgent, "%v", err)
	p.Errors = placed(sent, agent.Faults(err))
	return p
}

// permitted refuses a definition that uses what the tenant may not.
func (g *Gateway) permitted(r *http.Request, a *agent.Agent) error {
	if err := a.CheckTenant(g.cfg.Prefix, tenantOf(r)); err != nil {
		return problem(http.StatusBadRequest, api.CodeInvalidAgent, "%v", err)
	}
	settings, err := g.tenants.Settings(r.Context(), tenantOf(r))
	if err != nil {
		return err
	}
	if err := policy.Of(tenantOf(r), settings).Check(a, g.known.Providers); err != nil {
		return problem(http.StatusForbidden, api.CodeNotPermitted, "%v", err)
	}
	return nil
}

func (g *Gateway) getAgent(w http.ResponseWriter, r *http.Request) error {
	version := 0
	if text := r.URL.Query().Get("version"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return invalid("version %q must be a number from 1", text)
		}
		version = n
	}
	v, err := g.store.Agent(r.Context(), tenantOf(r), r.PathValue("name"), version)
	if err != nil {
		return agentError(err)
	}
	v.Status = api.StatusPublished
	return reply(w, http.StatusOK, v)
}

func agentError(err error) error {
	if errors.Is(err, state.ErrNotFound) {
		return problem(http.StatusNotFound, api.CodeAgentNotFound, "%v", err)
	}
	return err
}

func (g *Gateway) listAgents(w http.ResponseWriter, r *http.Request) error {
	switch status := r.URL.Query().Get("status"); status {
	case "", api.StatusPublished:
	case api.StatusDraft:
		return g.listDrafts(w, r)
	default:
		return invalid("status %.40q is not one of draft, published", status)
	}
	names, err := g.store.AgentNames(r.Context(), tenantOf(r))
	if err != nil {
		return err
	}
	return readPage(g, w, r, names, func(ctx context.Context, name string) (state.AgentVersion, int, error) {
		v, err := g.store.Agent(ctx, tenantOf(r), name, 0)
		v.Status = api.StatusPublished
		return v, len(v.Definition), err
	})
}

func (g *Gateway) deleteAgent(w http.ResponseWriter, r *http.Request) error {
	if err := g.store.DeleteAgent(r.Context(), tenantOf(r), r.PathValue("name")); err != nil {
		return agentError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
