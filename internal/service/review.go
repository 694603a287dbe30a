package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// If a tenant requires review, a saved definition is a draft until another person publishes it.
// Drafts are stored under the agent's name but apart from its versions, so no build mistakes a
// draft for a version.

// saveTries is the maximum number of attempts to save a draft while other requests save the same agent.
const saveTries = 16

// Drafts are definitions that wait for review.
type Drafts struct {
	*core

	defs *definitions
}

// save stores a draft, and replaces the pending one. A draft with an unchanged definition gets the caller as an
// additional author.
func (s *Drafts) save(ctx context.Context, c access.Caller, name string, definition []byte) (d api.AgentDraft, err error) {
	err = state.ErrChanged
	for tries := 0; errors.Is(err, state.ErrChanged); tries++ {
		if tries == saveTries {
			return d, problem(conflict, api.CodeStaleDraft, "other requests saved agent %s at the same time: retry", name)
		}
		d, err = s.trySave(ctx, c, name, definition)
	}
	return d, err
}

// trySave stores a draft, or returns state.ErrChanged if another save has replaced the pending one
// since trySave read it.
func (s *Drafts) trySave(ctx context.Context, c access.Caller, name string, definition []byte) (d api.AgentDraft, err error) {
	version := 1
	latest, err := s.store.Agent(ctx, c.Tenant, name, 0)
	if err == nil {
		version = latest.Version + 1
	} else if !errors.Is(err, state.ErrNotFound) {
		return d, err
	}
	sum := sha256.Sum256(definition)
	d = api.AgentDraft{
		Name: name, Version: version, Status: api.StatusDraft, Definition: definition, Hash: hex.EncodeToString(sum[:16]),
		By: state.By{Principal: c.Principal.Name, Tenant: c.Tenant, Via: c.Principal.Via}, CreatedAt: state.At(time.Now()),
	}
	d.Authors = []string{d.By.Principal}
	before, stored, err := s.read(ctx, c, name)
	switch {
	case err == nil && before.Hash == d.Hash:
		d.By, d.CreatedAt, d.Authors = before.By, before.CreatedAt, before.Authors
		if who := c.Principal.Name; !slices.Contains(d.Authors, who) {
			d.Authors = append(d.Authors, who)
		}
	case err != nil && ProblemOf(err).Code != api.CodeDraftNotFound:
		return d, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return d, err
	}
	return d, s.store.ReplaceDocument(ctx, state.DraftsOf(c.Tenant), name, stored, data)
}

func staleDraft(name string) error {
	return problem(conflict, api.CodeStaleDraft, "the draft of agent %s has changed since you read it: read it again, and decide again", name)
}

// read returns the pending draft of an agent, and its document.
func (s *Drafts) read(ctx context.Context, c access.Caller, name string) (d api.AgentDraft, stored json.RawMessage, err error) {
	stored, err = s.store.Document(ctx, state.DraftsOf(c.Tenant), name)
	if errors.Is(err, state.ErrNotFound) {
		return d, nil, notFound(api.CodeDraftNotFound, "no draft of an agent %.60q waits for review: name one from GET /v1/agents?status=draft", name)
	}
	if err != nil {
		return d, nil, err
	}
	if err := json.Unmarshal(stored, &d); err != nil {
		return d, nil, fmt.Errorf("decode draft: %w", err)
	}
	return d, stored, nil
}

// Get returns the pending draft of an agent. The problem is draft_not_found if it does not exist.
func (s *Drafts) Get(ctx context.Context, c access.Caller, name string) (api.AgentDraft, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.AgentDraft{}, err
	}
	d, _, err := s.read(ctx, c, name)
	return d, err
}

// List returns a page of the pending drafts of the caller's tenant, by name of the agent.
func (s *Drafts) List(ctx context.Context, c access.Caller, p Page) (api.Page[api.AgentDraft], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.AgentDraft]{}, err
	}
	names, err := s.store.DocumentNames(ctx, state.DraftsOf(c.Tenant))
	if err != nil {
		return api.Page[api.AgentDraft]{}, err
	}
	return readPage(ctx, s.core, p, names, func(ctx context.Context, name string) (d api.AgentDraft, size int, err error) {
		data, err := s.store.Document(ctx, state.DraftsOf(c.Tenant), name)
		if err != nil {
			return d, 0, err
		}
		if err := json.Unmarshal(data, &d); err != nil {
			return d, 0, fmt.Errorf("decode draft: %w", err)
		}
		return d, len(data), nil
	})
}

// Discard deletes the pending draft of an agent. The problem is stale_draft if another request replaces the draft at
// the same time.
func (s *Drafts) Discard(ctx context.Context, c access.Caller, name string) error {
	if err := s.permit(ctx, c, DiscardDraft); err != nil {
		return err
	}
	d, stored, err := s.read(ctx, c, name)
	if err == nil {
		err = s.store.ReplaceDocument(ctx, state.DraftsOf(c.Tenant), d.Name, stored, nil)
	}
	if errors.Is(err, state.ErrChanged) {
		err = staleDraft(d.Name)
	}
	s.note(ctx, c, DiscardDraft, name, err)
	return err
}

// Publish makes the pending draft a version that runs may use, unless the latest version has the same definition. The
// caller must not be one of its authors, the tenant must still permit what the draft uses, and req.Hash must be that of
// the draft: the problem is stale_draft if the draft has changed since the reviewer read it.
func (s *Drafts) Publish(ctx context.Context, c access.Caller, name string, req api.PublishRequest) (state.AgentVersion, error) {
	if err := s.permit(ctx, c, PublishDraft); err != nil {
		return state.AgentVersion{}, err
	}
	v, err := s.publishDraft(ctx, c, name, req)
	s.note(ctx, c, PublishDraft, name, err)
	return v, err
}

func (s *Drafts) publishDraft(ctx context.Context, c access.Caller, name string, req api.PublishRequest) (state.AgentVersion, error) {
	d, stored, err := s.read(ctx, c, name)
	if err != nil {
		return state.AgentVersion{}, err
	}
	switch {
	case req.Hash == "":
		return state.AgentVersion{}, invalid("hash is missing: give the hash of the draft that you reviewed, from GET /v1/agents/%s/draft", d.Name)
	case req.Hash != d.Hash:
		return state.AgentVersion{}, staleDraft(d.Name)
	case slices.Contains(d.Authors, c.Principal.Name):
		return state.AgentVersion{}, problem(denied, api.CodeForbidden, "%s has saved this draft of agent %s and may not publish it: ask an author or admin who has not saved it", c.Principal.Name, d.Name)
	}
	// The tenant's permissions may have changed since the draft was saved.
	def, err := s.cfg.Known.Parse(d.Definition)
	if err != nil {
		return state.AgentVersion{}, invalidAgent(d.Definition, err)
	}
	compiled, err := s.cfg.Known.Compile(def, 0)
	if err != nil {
		return state.AgentVersion{}, invalidAgent(d.Definition, err)
	}
	if err := s.defs.permitted(ctx, c.Tenant, compiled); err != nil {
		return state.AgentVersion{}, err
	}
	// A retry after a crash, or a concurrent publication, must not make a second version.
	v, err := s.store.PutAgent(ctx, c.Tenant, d.Name, d.Definition, false)
	if err != nil {
		return state.AgentVersion{}, err
	}
	// A draft saved since the read above stays pending.
	err = s.store.ReplaceDocument(ctx, state.DraftsOf(c.Tenant), d.Name, stored, nil)
	if err != nil && !errors.Is(err, state.ErrChanged) {
		return state.AgentVersion{}, err
	}
	v.Status = api.StatusPublished
	return v, nil
}
