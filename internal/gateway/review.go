package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Where a tenant wants review, what an author saves is kept beside the versions of the agent,
// under its name, until somebody else publishes it. So nothing that asks for a version finds
// it, of whatever build.

// saveTries is how often a save begins again because others saved the same agent meanwhile.
const saveTries = 16

// saveForReview keeps a definition, in place of the one that waited.
func (g *Gateway) saveForReview(w http.ResponseWriter, r *http.Request, name string, definition []byte, warnings []api.Warning) error {
	var d api.AgentDraft
	err := state.ErrChanged
	for tries := 0; errors.Is(err, state.ErrChanged); tries++ {
		if tries == saveTries {
			return problem(http.StatusConflict, api.CodeStaleDraft, "others are saving agent %s again and again: save it once more", name)
		}
		d, err = g.trySave(r, name, definition)
	}
	if err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, struct {
		api.AgentDraft

		Warnings []api.Warning `json:"warnings,omitempty"`
	}{d, warnings})
}

// trySave keeps a definition for review, or returns state.ErrChanged if somebody else has saved
// one since what waited was read.
func (g *Gateway) trySave(r *http.Request, name string, definition []byte) (d api.AgentDraft, err error) {
	version := 1
	latest, err := g.store.Agent(r.Context(), tenantOf(r), name, 0)
	if err == nil {
		version = latest.Version + 1
	} else if !errors.Is(err, state.ErrNotFound) {
		return d, err
	}
	sum := sha256.Sum256(definition)
	c := access.FromContext(r.Context())
	d = api.AgentDraft{
		Name: name, Version: version, Status: api.StatusDraft, Definition: definition, Hash: hex.EncodeToString(sum[:16]),
		By: state.By{Principal: c.Principal.Name, Tenant: c.Tenant, Via: c.Principal.Via}, CreatedAt: state.At(time.Now()),
	}
	d.Authors = []string{d.By.Principal}
	before, stored, err := g.readForReview(r)
	switch {
	case err == nil && before.Hash == d.Hash:
		d.By, d.CreatedAt, d.Authors = before.By, before.CreatedAt, before.Authors
		if who := c.Principal.Name; !slices.Contains(d.Authors, who) {
			d.Authors = append(d.Authors, who)
		}
	case err != nil && problemOf(err).Code != api.CodeDraftNotFound:
		return d, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return d, err
	}
	return d, g.store.ReplaceDocument(r.Context(), state.DraftsOf(tenantOf(r)), name, stored, data)
}

func staleDraft(name string) error {
	return problem(http.StatusConflict, api.CodeStaleDraft, "the draft of agent %s was written anew since it was looked at: read it, and decide again", name)
}

// readForReview returns what waits for review under the name in a path, and the document that
// it is in.
func (g *Gateway) readForReview(r *http.Request) (d api.AgentDraft, stored json.RawMessage, err error) {
	name := r.PathValue("name")
	stored, err = g.store.Document(r.Context(), state.DraftsOf(tenantOf(r)), name)
	if errors.Is(err, state.ErrNotFound) {
		return d, nil, notFound(api.CodeDraftNotFound, "no draft of an agent %.60q waits for review: GET /v1/agents?status=draft lists them", name)
	}
	if err != nil {
		return d, nil, err
	}
	if err := json.Unmarshal(stored, &d); err != nil {
		return d, nil, fmt.Errorf("decode draft: %w", err)
	}
	return d, stored, nil
}

func (g *Gateway) getAgentDraft(w http.ResponseWriter, r *http.Request) error {
	d, _, err := g.readForReview(r)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, d)
}

// listDrafts lists what waits for review in a tenant, by name.
func (g *Gateway) listDrafts(w http.ResponseWriter, r *http.Request) error {
	names, err := g.store.DocumentNames(r.Context(), state.DraftsOf(tenantOf(r)))
	if err != nil {
		return err
	}
	return readPage(g, w, r, names, func(ctx context.Context, name string) (d api.AgentDraft, size int, err error) {
		data, err := g.store.Document(ctx, state.DraftsOf(tenantOf(r)), name)
		if err != nil {
			return d, 0, err
		}
		if err := json.Unmarshal(data, &d); err != nil {
			return d, 0, fmt.Errorf("decode draft: %w", err)
		}
		return d, len(data), nil
	})
}

func (g *Gateway) deleteAgentDraft(w http.ResponseWriter, r *http.Request) error {
	d, stored, err := g.readForReview(r)
	if err != nil {
		return err
	}
	err = g.store.ReplaceDocument(r.Context(), state.DraftsOf(tenantOf(r)), d.Name, stored, nil)
	if errors.Is(err, state.ErrChanged) {
		return staleDraft(d.Name)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// postPublish makes a draft a version that runs may use. Whoever wrote it may not, and the
// hash says what the reviewer has looked at.
func (g *Gateway) postPublish(w http.ResponseWriter, r *http.Request) error {
	d, stored, err := g.readForReview(r)
	if err != nil {
		return err
	}
	var req api.PublishRequest
	if _, err := decode(r, &req); err != nil {
		return err
	}
	c := access.FromContext(r.Context())
	switch {
	case req.Hash == "":
		return invalid("hash is missing: it is that of the draft that was looked at, GET /v1/agents/%s/draft has it", d.Name)
	case req.Hash != d.Hash:
		return staleDraft(d.Name)
	case slices.Contains(d.Authors, c.Principal.Name):
		return problem(http.StatusForbidden, api.CodeForbidden, "%s wrote this draft of agent %s: somebody else must publish it", c.Principal.Name, d.Name)
	}
	// What the tenant may use can have changed since.
	def, err := g.saving.Parse(d.Definition)
	if err != nil {
		return invalidAgent(d.Definition, err)
	}
	compiled, err := g.saving.Compile(def, 0)
	if err != nil {
		return invalidAgent(d.Definition, err)
	}
	if err := g.permitted(r, compiled); err != nil {
		return err
	}
	// Once more after a crash, or at the same time as somebody else, it makes no other version.
	v, err := g.store.Agent(r.Context(), tenantOf(r), d.Name, 0)
	if errors.Is(err, state.ErrNotFound) || err == nil && !bytes.Equal(v.Definition, d.Definition) {
		v, err = g.store.PutAgent(r.Context(), tenantOf(r), d.Name, d.Definition)
	}
	if err != nil {
		return err
	}
	// One that was saved meanwhile waits on.
	err = g.store.ReplaceDocument(r.Context(), state.DraftsOf(tenantOf(r)), d.Name, stored, nil)
	if err != nil && !errors.Is(err, state.ErrChanged) {
		return err
	}
	v.Status = api.StatusPublished
	return reply(w, http.StatusOK, v)
}
