package gateway

import (
	"errors"
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// scope is the tenant whose keys a caller may see and change: those of all, if it is an
// admin of the deployment that names no tenant.
func scope(r *http.Request) string {
	c := access.FromContext(r.Context())
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
	if _, err := decode(r, &req); err != nil {
		return err
	}
	c := access.FromContext(r.Context())
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
