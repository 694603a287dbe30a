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

// List responds with a page of API keys, without their text.
func (k *Keys) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (api.Page[api.APIKey], error) {
		return k.keys.List(ctx, c, exchange.NamesTenant(r), p)
	})
}

// Create creates an API key. Only this response has its text.
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

// Revoke revokes an API key.
func (k *Keys) Revoke(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, k.keys.Revoke(r.Context(), access.FromContext(r.Context()), exchange.NamesTenant(r), r.PathValue("id")))
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

// Put stores the settings of a tenant.
func (t *Tenants) Put(w http.ResponseWriter, r *http.Request) error {
	var settings api.TenantSettings
	if _, err := exchange.Decode(r, &settings); err != nil {
		return err
	}
	tenant, err := t.tenants.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), settings)
	return reply(w, http.StatusOK, tenant, err)
}

// Delete deletes the settings of a tenant.
func (t *Tenants) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, t.tenants.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

// Audit reads the audit.
type Audit struct{ audit *service.Audit }

// NewAudit returns the handler of the audit.
func NewAudit(a *service.Audit) *Audit { return &Audit{a} }

// List responds with a page of audit entries.
func (a *Audit) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, a.audit.List)
}
