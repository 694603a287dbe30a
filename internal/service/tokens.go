package service

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Tokens issues tokens to the users of a tenant.
type Tokens struct {
	*core

	tokens *access.Tokens
}

// Create issues a token. Only an API key with the role issuer may, and the token becomes invalid with that key at the
// latest. The text of the token is only in the result: it cannot be read later.
func (s *Tokens) Create(ctx context.Context, c access.Caller, req api.TokenRequest) (api.NewToken, error) {
	if err := s.permit(ctx, c, CreateToken); err != nil {
		return api.NewToken{}, err
	}
	made, err := s.create(ctx, c, req)
	s.note(ctx, c, CreateToken, "user:"+made.User+" "+made.ID, err)
	return made, err
}

func (s *Tokens) create(ctx context.Context, c access.Caller, req api.TokenRequest) (api.NewToken, error) {
	key, ok := access.IssuerKey(c.Principal)
	if !ok {
		return api.NewToken{}, problem(denied, api.CodeForbidden, "%s may not issue tokens, since a token ends with the API key that issued it: use an API key with the role %s", c.Principal.Name, access.Issuer)
	}
	roles, err := access.ParseTokenRoles(req.Roles)
	if err != nil {
		return api.NewToken{}, invalid("roles: %v", err)
	}
	spec := access.TokenSpec{Tenant: c.Tenant, Bound: access.Bound{User: req.User, Agents: req.Agents}, Roles: roles, Key: key}
	if in := req.ExpiresIn; in != nil {
		if spec.Lifetime = time.Duration(*in); spec.Lifetime <= 0 {
			return api.NewToken{}, invalid("expires_in is %s: set 1s to 24h, or omit it for 15m", spec.Lifetime)
		}
	}
	if req.Agents != nil && len(req.Agents) == 0 {
		return api.NewToken{}, invalid("agents is an empty list, which permits no agent: name the agents, or omit it to permit all")
	}
	if req.Run != "" {
		if len(req.Agents) > 0 {
			return api.NewToken{}, invalid("agents and run are both given: remove one; a token for one run cannot start others")
		}
		st, err := s.load(ctx, c, req.Run)
		if err != nil {
			return api.NewToken{}, err
		}
		spec.Bound.Run = st.ID
	}
	text, token, err := s.tokens.Create(ctx, spec)
	if bad, ok := errors.AsType[*access.InvalidTokenError](err); ok {
		return api.NewToken{}, invalid("%v", bad)
	}
	if err != nil {
		return api.NewToken{}, err
	}
	return api.NewToken{Token: token, Text: text}, nil
}

// Rotate adds a key that signs new tokens of the caller's tenant, and returns all keys.
func (s *Tokens) Rotate(ctx context.Context, c access.Caller) (api.TokenKeys, error) {
	if err := s.permit(ctx, c, RotateTokens); err != nil {
		return api.TokenKeys{}, err
	}
	keys, err := s.tokens.Rotate(ctx, c.Tenant)
	if errors.Is(err, state.ErrChanged) {
		err = contended("the signing keys of tenant", c.Tenant)
	}
	s.note(ctx, c, RotateTokens, c.Tenant, err)
	return api.TokenKeys{Keys: keys}, err
}

// tokensOf returns given, or a new set if that is nil.
func tokensOf(given *access.Tokens, store state.Documents, keys *access.Keys, tenants *access.Tenants) *access.Tokens {
	if given != nil {
		return given
	}
	return access.NewTokens(store, keys, tenants)
}
