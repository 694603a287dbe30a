package service

import (
	"context"
	"errors"
	"maps"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// MetadataUser is the key of a run's metadata that names its user. Callers with a token reach the runs
// of their user, and the runs that they start get it.
const MetadataUser = "user"

// sourceMetadata are the keys of metadata that Turnpike sets for the runs that hooks, triggers and
// schedules start. A run that a caller with a user's token starts must not pretend to be one of those.
var sourceMetadata = []string{string(sourceHook), string(sourceTrigger), metadataDelivery, metadataSchedule, metadataScheduledAt}

// reaches returns nil if the caller may see a run. A caller without a token of a user may
// see every run of its tenant. A token for one run shows that run and the runs below it. Any
// other token shows the runs of its user, or those of them whose agents the token names, and
// the runs below those. For other runs the error is that of a run that does not exist.
func (k *core) reaches(ctx context.Context, c access.Caller, st state.State) error {
	b := c.Principal.Bound
	if b == nil {
		return nil
	}
	id, root := st.ID, st
	for b.Run != root.ID && root.Parent != nil { // at most the depth of a tree
		parent, err := k.store.Load(ctx, root.Parent.RunID)
		if errors.Is(err, state.ErrNotFound) {
			return runNotFound(id)
		}
		if err != nil {
			return err
		}
		root = parent
	}
	own := b.Run == "" && root.Parent == nil && root.Metadata[MetadataUser] == b.User && b.Allows(root.Agent)
	if own || b.Run == root.ID {
		return nil
	}
	return runNotFound(id)
}

// Select restricts a filter to the caller's tenant, and to the runs to which the caller is bound. It returns a problem
// if the filter requests others.
func (s *Runs) Select(ctx context.Context, c access.Caller, f *state.Filter) error {
	f.Tenant = c.Tenant
	b := c.Principal.Bound
	if b == nil {
		return nil
	}
	if f.Parent != "" { // it is the only way to child runs, which have no metadata
		_, err := s.load(ctx, c, string(f.Parent))
		return err
	}
	if b.Run != "" {
		return problem(denied, api.CodeForbidden, "the token of %s is for run %s only: read that run, or list its child runs with ?parent=%s", b.User, b.Run, b.Run)
	}
	if user, given := f.Metadata[MetadataUser]; given && user != b.User {
		return problem(denied, api.CodeForbidden, "the token of %s lists only that user's runs: omit metadata.%s", b.User, MetadataUser)
	}
	if f.Agent == "" && len(b.Agents) == 1 {
		f.Agent = b.Agents[0]
	}
	if len(b.Agents) > 0 && f.Agent == "" {
		return invalid("agent is missing, and the token of %s is for several agents: set agent to one of %s", b.User, words(b.Agents))
	}
	if f.Agent != "" && !b.Allows(f.Agent) {
		return notOfAgents(b)
	}
	f.Metadata = userMetadata(f.Metadata, b)
	return nil
}

func notOfAgents(b *access.Bound) error {
	return problem(denied, api.CodeForbidden, "the token of %s is only for the agents %s: name one of them", b.User, words(b.Agents))
}

// userMetadata returns a copy of metadata with the user to which a caller is bound.
func userMetadata(given map[string]string, b *access.Bound) map[string]string {
	out := map[string]string{}
	maps.Copy(out, given)
	out[MetadataUser] = b.User
	return out
}

// bindRun refuses to start a run that the caller's token does not permit, and returns the metadata for the run. It does
// not check an empty agent. If the caller has a user's token, bindRun sets MetadataUser and removes sourceMetadata: a
// fork of a run that a hook started must not count as a run of that hook.
func bindRun(c access.Caller, agent string, metadata map[string]string) (map[string]string, error) {
	b := c.Principal.Bound
	if b == nil {
		return metadata, nil
	}
	if b.Run != "" {
		return nil, problem(denied, api.CodeForbidden, "the token of %s is for run %s only and cannot start a run: request a token without a run", b.User, b.Run)
	}
	if agent != "" && !b.Allows(agent) {
		return nil, notOfAgents(b)
	}
	metadata = userMetadata(metadata, b)
	for _, key := range sourceMetadata {
		delete(metadata, key)
	}
	return metadata, nil
}

// bindSubmission applies the rules of bindRun to a submission. Instead of removing sourceMetadata, it refuses a
// submission that has any, another user, or a webhook.
func bindSubmission(c access.Caller, req *api.SubmitRequest) error {
	b := c.Principal.Bound
	if b == nil {
		return nil
	}
	if user, given := req.Metadata[MetadataUser]; given && user != b.User {
		return problem(denied, api.CodeForbidden, "metadata.%s: the token of %s can start runs of that user only: omit this key", MetadataUser, b.User)
	}
	for _, key := range sourceMetadata {
		if _, given := req.Metadata[key]; given {
			return problem(denied, api.CodeForbidden, "metadata.%s is reserved for Turnpike: choose another key", key)
		}
	}
	if req.Webhook != nil {
		return problem(denied, api.CodeForbidden, "a user's token cannot set a webhook: omit webhook; an author can set one in the agent, an admin in the tenant")
	}
	metadata, err := bindRun(c, req.Agent, req.Metadata)
	req.Metadata = metadata
	return err
}
