package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// tenantIn is the tenant that a path names, if the caller may see its settings.
func tenantIn(r *http.Request) (string, error) {
	name, c := r.PathValue("name"), access.FromContext(r.Context())
	if name != c.Tenant && !c.OfDeployment(access.Admin) {
		return "", tenantNotFound(name)
	}
	return name, nil
}

func tenantNotFound(name string) error {
	return notFound(api.CodeTenantNotFound, "there is no tenant %.60q: GET /v1/tenants lists them", name)
}

func (g *Gateway) listTenants(w http.ResponseWriter, r *http.Request) error {
	all, err := g.tenants.List(r.Context())
	if err != nil {
		return err
	}
	c := access.FromContext(r.Context())
	tenants := []api.Tenant{}
	for name, settings := range all {
		if name == c.Tenant || c.OfDeployment(access.Admin) {
			tenants = append(tenants, api.Tenant{Name: name, TenantSettings: settings})
		}
	}
	slices.SortFunc(tenants, func(a, b api.Tenant) int { return strings.Compare(a.Name, b.Name) })
	return pageOf(w, r, tenants)
}

func (g *Gateway) getTenant(w http.ResponseWriter, r *http.Request) error {
	name, err := tenantIn(r)
	if err != nil {
		return err
	}
	settings, err := g.tenants.Read(r.Context(), name)
	if errors.Is(err, state.ErrNotFound) {
		return tenantNotFound(name)
	}
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.Tenant{Name: name, TenantSettings: settings})
}

// putTenant is for admins of the deployment: what a tenant may do is not its own to say.
func (g *Gateway) putTenant(w http.ResponseWriter, r *http.Request) error {
	name, err := g.tenantToChange(r)
	if err != nil {
		return err
	}
	var settings api.TenantSettings
	if _, err := decode(r, &settings); err != nil {
		return err
	}
	if err := policy.CheckSettings(settings); err != nil {
		return invalid("%v", err)
	}
	if err := g.tenants.Put(r.Context(), name, settings); err != nil {
		return err
	}
	g.openTenant(r.Context(), name)
	return reply(w, http.StatusOK, api.Tenant{Name: name, TenantSettings: settings})
}

func (g *Gateway) deleteTenant(w http.ResponseWriter, r *http.Request) error {
	name, err := g.tenantToChange(r)
	if err != nil {
		return err
	}
	err = g.tenants.Delete(r.Context(), name)
	if errors.Is(err, state.ErrNotFound) {
		return tenantNotFound(name)
	}
	if err != nil {
		return err
	}
	if err := g.bus.CloseTenant(r.Context(), name); err != nil {
		g.log.Warn("tenant not closed for submissions over NATS", "error", err, "tenant", name, "hint", "put the tenant, then delete it again once NATS is reachable")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

const (
	// keepTenantsInterval is the time after which a gateway looks whether each tenant has its
	// streams.
	keepTenantsInterval = 10 * time.Second

	// openTenantTimeout bounds how long a request waits for the streams of its tenant.
	openTenantTimeout = time.Second
)

// openTenant lets clients of a tenant publish. If NATS does not answer, keepTenants does it.
func (g *Gateway) openTenant(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, openTenantTimeout)
	defer cancel()
	if err := g.bus.OpenTenant(ctx, name); err != nil {
		g.log.Warn("tenant not open for submissions over NATS", "error", err, "tenant", name, "hint", "check that NATS is reachable; the gateway retries")
		g.lookAtTenants("")
	}
}

// lookAtTenants has keepTenants look now.
func (g *Gateway) lookAtTenants(string) {
	select {
	case g.tenantAdded <- struct{}{}:
	default:
	}
}

// keepTenants lets clients of all tenants publish to the bus, until ctx ends.
func (g *Gateway) keepTenants(ctx context.Context) {
	tick := time.NewTicker(keepTenantsInterval)
	defer tick.Stop()
	failed := false
	for {
		all, err := g.tenants.Names(ctx)
		if err == nil {
			err = g.bus.KeepTenants(ctx, append(all, g.cfg.Tenant))
		}
		if err != nil && !failed && ctx.Err() == nil {
			g.log.Warn("streams of tenants not looked after", "error", err, "hint", "check that NATS and the store are reachable; the gateway retries")
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-g.tenantAdded:
		case <-ctx.Done():
			return
		}
	}
}

func (g *Gateway) tenantToChange(r *http.Request) (string, error) {
	name, err := tenantIn(r)
	if err != nil {
		return "", err
	}
	if c := access.FromContext(r.Context()); !c.OfDeployment(access.Admin) {
		return "", problem(http.StatusForbidden, api.CodeForbidden, "%s may not change settings of tenants: an admin of the deployment may", c.Principal.Name)
	}
	if err := access.CheckTenant(name); err != nil {
		return "", invalid("%v", err)
	}
	return name, nil
}
