package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// adoptAgents gives the gateway's own tenant the agents that it shared with all others, in
// builds in which agents were of no tenant. A tenant is of such a build if it has runs, and
// neither agents nor settings. Runs that were stored by it keep the versions that they
// pinned: workers find them where they were.
func (g *Gateway) adoptAgents(ctx context.Context) error {
	tenant := g.cfg.Tenant
	if tenant == state.DefaultTenant {
		return nil
	}
	_, err := g.store.Document(ctx, state.TenantDocument, tenant)
	if !errors.Is(err, state.ErrNotFound) {
		return err
	}
	runs, err := g.store.List(ctx, state.Filter{Tenant: tenant, Limit: 1})
	if err != nil || len(runs.Runs) == 0 {
		return err
	}
	own, err := g.store.AgentNames(ctx, tenant)
	if err != nil {
		return err
	}
	if len(own) == 0 {
		copied := 0
		err := state.EachAgent(ctx, g.store, state.DefaultTenant, func(a state.AgentVersion) error {
			if _, err := g.store.PutAgent(ctx, tenant, a.Name, a.Definition); err != nil {
				return fmt.Errorf("agent %s: %w", a.Name, err)
			}
			copied++
			return nil
		})
		if err != nil {
			return err
		}
		g.log.Info().Str("tenant", tenant).Int("agents", copied).Msg("agents copied: they are of one tenant each")
	}
	if err := g.store.ReplaceDocument(ctx, state.TenantDocument, tenant, nil, json.RawMessage("{}")); !errors.Is(err, state.ErrChanged) {
		return err
	}
	return nil
}
