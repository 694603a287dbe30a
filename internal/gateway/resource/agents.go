package resource

import (
	"net/http"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Agents stores and reads agents.
type Agents struct {
	agents *service.Agents
	drafts *service.Drafts
}

// NewAgents returns the handlers of agents. List also lists drafts.
func NewAgents(agents *service.Agents, drafts *service.Drafts) *Agents {
	return &Agents{agents, drafts}
}

// Put stores the next version of an agent, or a draft if the tenant requires a review. The body is the definition, in
// YAML or JSON.
func (a *Agents) Put(w http.ResponseWriter, r *http.Request) error {
	b, err := exchange.ReadBody(r)
	if err != nil {
		return err
	}
	saved, err := a.agents.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), b)
	switch {
	case err != nil:
		return err
	case saved.Draft != nil:
		return exchange.Reply(w, http.StatusAccepted, struct {
			api.AgentDraft

			Warnings []api.Warning `json:"warnings,omitempty"`
		}{*saved.Draft, saved.Warnings})
	case saved.First:
		return exchange.Reply(w, http.StatusCreated, saved.Agent)
	default:
		return exchange.Reply(w, http.StatusOK, saved.Agent)
	}
}

// Get responds with one version of an agent: ?version, by default the latest.
func (a *Agents) Get(w http.ResponseWriter, r *http.Request) error {
	version := 0
	if text := r.URL.Query().Get("version"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return exchange.Invalid("version is %q: give a whole number of 1 or more, or omit it for the latest version", text)
		}
		version = n
	}
	v, err := a.agents.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), version)
	return reply(w, http.StatusOK, v, err)
}

// List responds with a page of agents, or of drafts if ?status is draft.
func (a *Agents) List(w http.ResponseWriter, r *http.Request) error {
	switch status := r.URL.Query().Get("status"); status {
	case "", api.StatusPublished:
		return exchange.ReplyList(w, r, a.agents.List, "status")
	case api.StatusDraft:
		return exchange.ReplyList(w, r, a.drafts.List, "status")
	default:
		return exchange.Invalid("status is %.40q: use draft or published", status)
	}
}

// Versions responds with a page of the versions of an agent, the newest first.
func (a *Agents) Versions(w http.ResponseWriter, r *http.Request) error {
	p, err := exchange.PageOf(r)
	if err != nil {
		return err
	}
	answer, err := a.agents.Versions(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), p)
	return reply(w, http.StatusOK, answer, err)
}

// Delete deletes an agent: see service.Agents.Delete.
func (a *Agents) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, a.agents.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

// Drafts reads, publishes and discards the drafts of agents.
type Drafts struct{ drafts *service.Drafts }

// NewDrafts returns the handlers of drafts.
func NewDrafts(d *service.Drafts) *Drafts { return &Drafts{d} }

// Get responds with the draft of an agent.
func (d *Drafts) Get(w http.ResponseWriter, r *http.Request) error {
	draft, err := d.drafts.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"))
	return reply(w, http.StatusOK, draft, err)
}

// Discard deletes the draft of an agent.
func (d *Drafts) Discard(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, d.drafts.Discard(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

// Publish makes the draft of an agent its next version.
func (d *Drafts) Publish(w http.ResponseWriter, r *http.Request) error {
	var req api.PublishRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	v, err := d.drafts.Publish(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), req)
	return reply(w, http.StatusOK, v, err)
}
