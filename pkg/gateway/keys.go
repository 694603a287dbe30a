package gateway

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/policy"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// scope is the tenant whose keys a caller may see and change: those of all, if it is an
// admin of the deployment that names no tenant.
func scope(r *http.Request) string {
	c := access.From(r.Context())
	if named, err := namedTenant(r); c.OfDeployment(access.Admin) && named == "" && err == nil {
		return access.AnyTenant
	}
	return c.Tenant
}

func (g *Gateway) listKeys(w http.ResponseWriter, r *http.Request) error {
	keys, err := g.keys.List(r.Context(), scope(r))
	if err != nil {
		return err
	}
	return pageOf(w, r, keys)
}

// postKey makes a key. Its text is in this answer, and nowhere else.
func (g *Gateway) postKey(w http.ResponseWriter, r *http.Request) error {
	var req api.KeyRequest
	if _, err := g.decode(w, r, &req); err != nil {
		return err
	}
	c := access.From(r.Context())
	roles, err := access.ParseRoles(req.Roles)
	if err != nil {
		return invalid("roles: %v", err)
	}
	tenant := c.Tenant
	if req.Tenant != "" && req.Tenant != tenant {
		if !c.OfDeployment(access.Admin) {
			return problem(http.StatusForbidden, api.CodeForbidden, "%s may make keys for tenant %s only", c.Principal.Name, tenant)
		}
		tenant = req.Tenant
	}
	spec := access.KeySpec{Name: req.Name, Tenant: tenant, Roles: roles, CreatedBy: c.Principal.Name, ExpiresAt: req.ExpiresAt}
	text, key, err := g.keys.Create(r.Context(), spec)
	if bad, ok := errors.AsType[*access.InvalidKeyError](err); ok {
		return invalid("%v", bad)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/keys/"+key.ID)
	return reply(w, http.StatusCreated, api.NewKey{Key: text, APIKey: key})
}

func (g *Gateway) deleteKey(w http.ResponseWriter, r *http.Request) error {
	_, err := g.keys.Revoke(r.Context(), scope(r), r.PathValue("id"))
	if errors.Is(err, state.ErrNotFound) {
		return notFound(api.CodeKeyNotFound, "there is no key %.40q: GET /v1/keys lists them", r.PathValue("id"))
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// tenantIn is the tenant that a path names, if the caller may see its settings.
func tenantIn(r *http.Request) (string, error) {
	name, c := r.PathValue("name"), access.From(r.Context())
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
	c := access.From(r.Context())
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
	if _, err := g.decode(w, r, &settings); err != nil {
		return err
	}
	if err := policy.CheckSettings(settings); err != nil {
		return invalid("%v", err)
	}
	if err := g.tenants.Put(r.Context(), name, settings); err != nil {
		return err
	}
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
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (g *Gateway) tenantToChange(r *http.Request) (string, error) {
	name, err := tenantIn(r)
	if err != nil {
		return "", err
	}
	if c := access.From(r.Context()); !c.OfDeployment(access.Admin) {
		return "", problem(http.StatusForbidden, api.CodeForbidden, "%s may not change settings of tenants: an admin of the deployment may", c.Principal.Name)
	}
	if err := access.CheckTenant(name); err != nil {
		return "", invalid("%v", err)
	}
	return name, nil
}
