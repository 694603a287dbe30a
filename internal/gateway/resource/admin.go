package resource

import (
	"context"
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Keys creates, lists and revokes API keys.
type Keys struct{ keys *service.Keys }

// NewKeys returns the handlers of API keys.
func NewKeys(k *service.Keys) *Keys { return &Keys{k} }

// List responds with a page of API keys, without their texts: those of the tenant, or of all tenants to an admin of the
// deployment who names no tenant.
func (k *Keys) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (api.Page[api.APIKey], error) {
		return k.keys.List(ctx, c, exchange.NamesTenant(r), p)
	})
}

// Create creates an API key. Only this response has the text of the key.
func (k *Keys) Create(w http.ResponseWriter, r *http.Request) error {
	var req api.KeyRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	key, err := k.keys.Create(r.Context(), access.FromContext(r.Context()), req)
	if err == nil {
		w.Header().Set("Location", "/v1/keys/"+key.ID)
	}
	return reply(w, http.StatusCreated, key, err)
}

// Revoke revokes an API key. Its scope is that of List.
func (k *Keys) Revoke(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, k.keys.Revoke(r.Context(), access.FromContext(r.Context()), exchange.NamesTenant(r), r.PathValue("id")))
}

// Tokens issues tokens to end users.
type Tokens struct{ tokens *service.Tokens }

// NewTokens returns the handlers of tokens.
func NewTokens(t *service.Tokens) *Tokens { return &Tokens{t} }

// Create issues a token. Only this response has the text of the token.
func (t *Tokens) Create(w http.ResponseWriter, r *http.Request) error {
	var req api.TokenRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	token, err := t.tokens.Create(r.Context(), access.FromContext(r.Context()), req)
	w.Header().Set("Cache-Control", "no-store")
	return reply(w, http.StatusCreated, token, err)
}

// Rotate adds a key that signs new tokens of the tenant.
func (t *Tokens) Rotate(w http.ResponseWriter, r *http.Request) error {
	var none struct{}
	if body, err := exchange.ReadBody(r); err != nil {
		return err
	} else if len(body) > 0 {
		if err := exchange.DecodeBytes(body, &none); err != nil {
			return err
		}
	}
	keys, err := t.tokens.Rotate(r.Context(), access.FromContext(r.Context()))
	return reply(w, http.StatusOK, keys, err)
}

// Tenants reads and changes the settings of tenants.
type Tenants struct{ tenants *service.Tenants }

// NewTenants returns the handlers of tenants.
func NewTenants(t *service.Tenants) *Tenants { return &Tenants{t} }

// List responds with a page of tenants.
func (t *Tenants) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, t.tenants.List)
}

// Get responds with a tenant.
func (t *Tenants) Get(w http.ResponseWriter, r *http.Request) error {
	tenant, err := t.tenants.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"))
	return reply(w, http.StatusOK, tenant, err)
}

// Put creates a tenant, or replaces its settings.
func (t *Tenants) Put(w http.ResponseWriter, r *http.Request) error {
	var sent api.Tenant
	if err := decodeNamed(r, &sent, &sent.Name); err != nil {
		return err
	}
	tenant, err := t.tenants.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), sent.TenantSettings)
	return reply(w, http.StatusOK, tenant, err)
}

// Delete deletes a tenant: see service.Tenants.Delete.
func (t *Tenants) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, t.tenants.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

// Audit reads the audit.
type Audit struct{ audit *service.Audit }

// NewAudit returns the handler of the audit.
func NewAudit(a *service.Audit) *Audit { return &Audit{a} }

// List responds with a page of audit entries, the newest first.
func (a *Audit) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, a.audit.List)
}
