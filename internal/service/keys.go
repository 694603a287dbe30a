package service

import (
	"context"
	"errors"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Keys are the API keys of a tenant. An admin of the deployment whose request names no tenant sees and revokes the keys
// of all tenants.
type Keys struct {
	*core

	keys *access.Keys
}

// scope returns the tenant whose keys a caller sees and revokes. named reports whether the request names a tenant.
func scope(c access.Caller, named bool) string {
	if c.OfDeployment(access.Admin) && !named {
		return access.AnyTenant
	}
	return c.Tenant
}

// List returns the keys of the tenant, or of all tenants to an admin of the deployment if named is false, without their
// texts.
func (s *Keys) List(ctx context.Context, c access.Caller, named bool, p Page) (api.Page[api.APIKey], error) {
	if err := s.permit(ctx, c, ReadKeys); err != nil {
		return api.Page[api.APIKey]{}, err
	}
	keys, err := s.keys.List(ctx, scope(c, named))
	if err != nil {
		return api.Page[api.APIKey]{}, err
	}
	return Cut(p, keys)
}

// Create makes a key, for req.Tenant or the caller's tenant; only admins of the deployment may name another tenant.
// Only the result contains the text of the key: it cannot be read later.
func (s *Keys) Create(ctx context.Context, c access.Caller, req api.KeyRequest) (api.NewKey, error) {
	if err := s.permit(ctx, c, CreateKey); err != nil {
		return api.NewKey{}, err
	}
	made, err := s.create(ctx, c, req)
	s.note(ctx, c, CreateKey, made.ID, err)
	return made, err
}

func (s *Keys) create(ctx context.Context, c access.Caller, req api.KeyRequest) (api.NewKey, error) {
	roles, err := access.ParseRoles(req.Roles)
	if err != nil {
		return api.NewKey{}, invalid("roles: %v", err)
	}
	tenant := c.Tenant
	if req.Tenant != "" && req.Tenant != tenant {
		if !c.OfDeployment(access.Admin) {
			return api.NewKey{}, problem(denied, api.CodeForbidden, "a request of %s for tenant %s creates keys of that tenant only: for a key of another tenant, send the request for that tenant as an admin of it, or ask an admin of the deployment", c.Principal.Name, tenant)
		}
		tenant = req.Tenant
	}
	spec := access.KeySpec{Name: req.Name, Tenant: tenant, Roles: roles, CreatedBy: c.Principal.Name, ExpiresAt: req.ExpiresAt}
	text, key, err := s.keys.Create(ctx, spec)
	if bad, ok := errors.AsType[*access.InvalidKeyError](err); ok {
		return api.NewKey{}, invalid("%v", bad)
	}
	if err != nil {
		return api.NewKey{}, err
	}
	return api.NewKey{Key: text, APIKey: key}, nil
}

// Revoke makes a key invalid, and the tokens that it has issued. The scope is that of List. The problem is
// key_not_found if it does not exist.
func (s *Keys) Revoke(ctx context.Context, c access.Caller, named bool, id string) error {
	if err := s.permit(ctx, c, RevokeKey); err != nil {
		return err
	}
	_, err := s.keys.Revoke(ctx, scope(c, named), id)
	if errors.Is(err, state.ErrNotFound) {
		err = notFound(api.CodeKeyNotFound, "there is no key %.40q: list them with GET /v1/keys", id)
	}
	s.note(ctx, c, RevokeKey, id, err)
	return err
}
