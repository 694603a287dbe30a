package gateway

import (
	"context"
	"net/http"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

func (g *Gateway) postBatch(w http.ResponseWriter, r *http.Request) (err error) {
	in := service.Submission{Key: r.Header.Get("Idempotency-Key"), Trace: r.Header.Get(span.Header), Source: "http"}
	if in.Body, err = exchange.ReadBody(r); err != nil {
		return err
	}
	answer, err := g.service.Submissions.SubmitBatch(r.Context(), access.FromContext(r.Context()), in)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/batches/"+answer.BatchID)
	return exchange.Reply(w, http.StatusAccepted, answer)
}

func (g *Gateway) getBatch(w http.ResponseWriter, r *http.Request) error {
	p, err := service.ParsePage(r.URL.Query())
	if err != nil {
		return err
	}
	b, err := g.service.Batches.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("id"), p)
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, b)
}

func (g *Gateway) listBatches(w http.ResponseWriter, r *http.Request) error {
	for name := range r.URL.Query() {
		if name != "limit" && name != "cursor" && name != exchange.ParameterTenant {
			return exchange.Invalid("parameter %q is unknown: GET /v1/batches takes limit and cursor", name)
		}
	}
	return exchange.ReplyList(w, r, g.service.Batches.List)
}

func (g *Gateway) putAgent(w http.ResponseWriter, r *http.Request) error {
	b, err := exchange.ReadBody(r)
	if err != nil {
		return err
	}
	saved, err := g.service.Agents.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), b)
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

func (g *Gateway) getAgent(w http.ResponseWriter, r *http.Request) error {
	version := 0
	if text := r.URL.Query().Get("version"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return exchange.Invalid("version %q must be a number from 1", text)
		}
		version = n
	}
	v, err := g.service.Agents.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), version)
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, v)
}

func (g *Gateway) listAgents(w http.ResponseWriter, r *http.Request) error {
	switch status := r.URL.Query().Get("status"); status {
	case "", api.StatusPublished:
		return exchange.ReplyList(w, r, g.service.Agents.List)
	case api.StatusDraft:
		return exchange.ReplyList(w, r, g.service.Drafts.List)
	default:
		return exchange.Invalid("status %.40q is not one of draft, published", status)
	}
}

func (g *Gateway) listVersions(w http.ResponseWriter, r *http.Request) error {
	p, err := service.ParsePage(r.URL.Query())
	if err != nil {
		return err
	}
	answer, err := g.service.Agents.Versions(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), p)
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, answer)
}

func (g *Gateway) deleteAgent(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, g.service.Agents.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

func (g *Gateway) getAgentDraft(w http.ResponseWriter, r *http.Request) error {
	d, err := g.service.Drafts.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, d)
}

func (g *Gateway) deleteAgentDraft(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, g.service.Drafts.Discard(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

func (g *Gateway) postPublish(w http.ResponseWriter, r *http.Request) error {
	var req api.PublishRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	v, err := g.service.Drafts.Publish(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, v)
}

func (g *Gateway) listDead(w http.ResponseWriter, r *http.Request) error {
	after, err := stream.After(r)
	if err != nil {
		return err
	}
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (api.Page[api.DeadLetter], error) {
		return g.service.Letters.List(ctx, c, after, p)
	})
}

func (g *Gateway) getDead(w http.ResponseWriter, r *http.Request) error {
	l, err := g.service.Letters.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("seq"))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, l)
}

func (g *Gateway) postReplay(w http.ResponseWriter, r *http.Request) error {
	l, err := g.service.Letters.Replay(r.Context(), access.FromContext(r.Context()), r.PathValue("seq"))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusAccepted, l)
}

func (g *Gateway) listKeys(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (api.Page[api.APIKey], error) {
		return g.service.Keys.List(ctx, c, exchange.NamesTenant(r), p)
	})
}

// postKey makes a key. Its text is in this answer, and nowhere else.
func (g *Gateway) postKey(w http.ResponseWriter, r *http.Request) error {
	var req api.KeyRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	key, err := g.service.Keys.Create(r.Context(), access.FromContext(r.Context()), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/keys/"+key.ID)
	return exchange.Reply(w, http.StatusCreated, key)
}

func (g *Gateway) deleteKey(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, g.service.Keys.Revoke(r.Context(), access.FromContext(r.Context()), exchange.NamesTenant(r), r.PathValue("id")))
}

func (g *Gateway) listTenants(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, g.service.Tenants.List)
}

func (g *Gateway) getTenant(w http.ResponseWriter, r *http.Request) error {
	t, err := g.service.Tenants.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, t)
}

func (g *Gateway) putTenant(w http.ResponseWriter, r *http.Request) error {
	var settings api.TenantSettings
	if _, err := exchange.Decode(r, &settings); err != nil {
		return err
	}
	t, err := g.service.Tenants.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), settings)
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, t)
}

func (g *Gateway) deleteTenant(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, g.service.Tenants.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

func (g *Gateway) getAudit(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, g.service.Audit.List)
}

func (g *Gateway) getRestore(w http.ResponseWriter, r *http.Request) error {
	report, err := g.service.Restores.Report(r.Context(), access.FromContext(r.Context()))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, report)
}

func (g *Gateway) postAccept(w http.ResponseWriter, r *http.Request) error {
	decided, err := g.service.Restores.Accept(r.Context(), access.FromContext(r.Context()))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, decided)
}

func (g *Gateway) postAbandon(w http.ResponseWriter, r *http.Request) error {
	decided, err := g.service.Restores.Abandon(r.Context(), access.FromContext(r.Context()))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, decided)
}

func (g *Gateway) listWorkers(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, g.service.Fleet.Workers)
}

func (g *Gateway) listQueues(w http.ResponseWriter, r *http.Request) error {
	q, err := g.service.Fleet.Queues(r.Context(), access.FromContext(r.Context()))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, q)
}
