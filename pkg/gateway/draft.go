package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/access"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metadataDraft names the agent of which a run is a draft.
const metadataDraft = "draft"

// postDraft submits a run of a definition that is not saved. It gets a name of its own that
// no list has, so the agent of the name that the definition has is left as it is.
func (g *Gateway) postDraft(w http.ResponseWriter, r *http.Request) error {
	caller := access.From(r.Context())
	if !caller.May(access.Submitter) {
		return forbidden(caller, access.Submitter)
	}
	var req api.DraftRequest
	body, err := g.decode(w, r, &req)
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
	sum := sha256.Sum256(stored)
	name := "draft-" + hex.EncodeToString(sum[:10])
	v, err := g.store.Agent(r.Context(), caller.Tenant, name, 1)
	if errors.Is(err, state.ErrNotFound) {
		if v, err = g.store.PutAgent(r.Context(), caller.Tenant, name, stored); err == nil {
			err = g.store.DeleteAgent(r.Context(), caller.Tenant, name)
		}
		if errors.Is(err, state.ErrNotFound) {
			err = nil // somebody else who had the same has deleted it
		}
	}
	if err != nil {
		return err
	}
	req.SubmitRequest.Agent = name
	if def.Name != "" {
		if req.Metadata == nil {
			req.Metadata = map[string]string{}
		}
		if _, given := req.Metadata[metadataDraft]; !given {
			req.Metadata[metadataDraft] = def.Name
		}
	}
	sub := submission{caller: caller, req: req.SubmitRequest, version: v.Version, body: body, key: r.Header.Get("Idempotency-Key"), trace: r.Header.Get(span.Header)}
	st, err := g.submit(r.Context(), sub)
	if err != nil {
		return err
	}
	g.metrics.submitted.WithLabelValues("draft").Inc()
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	return reply(w, http.StatusAccepted, api.RunOf(st, time.Now()))
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
	def, err := g.known.Parse(given)
	if err != nil {
		return def, nil, invalidAgent(given, err)
	}
	if def.Name == "" {
		def.Name = metadataDraft
	}
	compiled, err := g.known.Compile(def, 0)
	if err != nil {
		return def, nil, invalidAgent(given, err)
	}
	if err := g.permitted(r, compiled); err != nil {
		return def, nil, err
	}
	stored, err := json.Marshal(def)
	return def, stored, err
}
