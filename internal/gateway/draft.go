package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metadataDraft names the agent of which a run is a draft.
const metadataDraft = "draft"

// draftPrefix begins the name of a draft. Its definition has another name, so an agent that
// somebody has called so is none.
const draftPrefix = "draft-"

// postDraft submits a run of a definition that is not saved. It gets a name of its own that
// no list has, so the agent of the name that the definition has is left as it is.
func (g *Gateway) postDraft(w http.ResponseWriter, r *http.Request) error {
	caller := access.FromContext(r.Context())
	if !caller.May(access.Submitter) {
		return forbidden(caller, access.Submitter)
	}
	var req api.DraftRequest
	body, err := decode(r, &req)
	if err != nil {
		return err
	}
	settings, err := g.tenants.Settings(r.Context(), caller.Tenant)
	if err != nil {
		return err
	}
	if settings.Review {
		return problem(http.StatusForbidden, api.CodeForbidden, "tenant %s wants definitions reviewed before they run: save it, and have somebody else publish it", caller.Tenant)
	}
	if req.Agent != "" {
		return invalid("agent and definition exclude each other: POST /v1/runs runs an agent that is saved")
	}
	def, stored, err := g.draftOf(r, req.Definition)
	if err != nil {
		return err
	}
	v, err := g.keepDraft(r.Context(), caller.Tenant, stored)
	if err != nil {
		return err
	}
	req.SubmitRequest.Agent, req.Metadata = v.Name, draftMetadata(req.Metadata, def.Name)
	sub := submission{caller: caller, req: req.SubmitRequest, version: v.Version, body: body, key: r.Header.Get("Idempotency-Key"), trace: r.Header.Get(span.Header)}
	st, err := g.submit(r.Context(), sub)
	if err != nil {
		return err
	}
	g.metrics.submitted.WithLabelValues("draft").Inc()
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	return reply(w, http.StatusAccepted, api.RunOf(st, time.Now()))
}

// keepDraft keeps a definition under a name of its own that no list has, once.
func (g *Gateway) keepDraft(ctx context.Context, tenant string, stored []byte) (state.AgentVersion, error) {
	sum := sha256.Sum256(stored)
	name := draftPrefix + hex.EncodeToString(sum[:10])
	v, err := g.store.Agent(ctx, tenant, name, 1)
	if errors.Is(err, state.ErrNotFound) {
		if v, err = g.store.PutAgent(ctx, tenant, name, stored); err == nil {
			err = g.store.DeleteAgent(ctx, tenant, name)
		}
		if errors.Is(err, state.ErrNotFound) {
			err = nil // somebody else who had the same has deleted it
		}
	}
	return v, err
}

// checkDraft refuses a draft where the tenant wants review: nobody has read it.
func (g *Gateway) checkDraft(ctx context.Context, tenant, name string) error {
	settings, err := g.tenants.Settings(ctx, tenant)
	if err != nil || !settings.Review {
		return err
	}
	return problem(http.StatusForbidden, api.CodeNotPermitted, "%s is a draft that nobody has reviewed, and tenant %s wants definitions reviewed before they run: save it as an agent, have somebody else publish it, and run that", name, tenant)
}

// checkGoesOn refuses to continue a run whose history is lost, or a run of a draft where the
// tenant requires review by now.
func (g *Gateway) checkGoesOn(ctx context.Context, st state.State) error {
	if st.Transition.Reason == state.EndLost {
		return problem(http.StatusConflict, api.CodeNotSupported, "the store has lost the history of run %s: submit it again", st.ID)
	}
	if !strings.HasPrefix(st.Agent, draftPrefix) {
		return nil
	}
	settings, err := g.tenants.Settings(ctx, st.Tenant)
	if err != nil || !settings.Review {
		return err
	}
	_, err = g.compiled(ctx, st.Tenant, st.Agent, st.AgentVersion)
	return err
}

// draftOf reads a definition, and returns it as it is stored.
func (g *Gateway) draftOf(r *http.Request, given json.RawMessage) (agent.Definition, []byte, error) {
	if len(given) == 0 || string(given) == "null" {
		return agent.Definition{}, nil, invalid("definition is missing")
	}
	var yaml string
	if json.Unmarshal(given, &yaml) == nil {
		given = []byte(yaml)
	}
	def, err := g.saving.Parse(given)
	if err != nil {
		return def, nil, invalidAgent(given, err)
	}
	if def.Name == "" {
		def.Name = metadataDraft
	}
	compiled, err := g.saving.Compile(def, 0)
	if err != nil {
		return def, nil, invalidAgent(given, err)
	}
	if err := g.permitted(r, compiled); err != nil {
		return def, nil, err
	}
	stored, err := json.Marshal(def)
	return def, stored, err
}
