package api

import (
	"context"
	"net/http"
	"net/url"
)

// WhoAmI returns the principal that the gateway has identified by this client's credentials.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) {
	return get[Identity](ctx, c, "/v1/whoami")
}

// CreateKey creates an API key. Only the result has its text.
func (c *Client) CreateKey(ctx context.Context, r KeyRequest) (NewKey, error) {
	return send[NewKey](ctx, c, http.MethodPost, "/v1/keys", r)
}

// Keys returns the API keys that this client's principal may see: those of the tenant, or those of all tenants for an
// admin of the deployment whose request names no tenant.
func (c *Client) Keys(ctx context.Context) ([]APIKey, error) {
	page, err := get[Page[APIKey]](ctx, c, "/v1/keys")
	return page.Items, err
}

// RevokeKey revokes an API key, and with it the tokens that it has issued. Every gateway refuses them within five
// seconds.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, nil, nil)
}

// CreateToken issues a token for an end user. Only the result has its text. This client must use an API key with the
// role issuer: CodeForbidden. The token becomes invalid with that key, or when it expires.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (NewToken, error) {
	return send[NewToken](ctx, c, http.MethodPost, "/v1/tokens", r)
}

// RotateTokens adds a key that signs the tokens of this client's tenant. Tokens of the previous key stay valid; every
// gateway refuses tokens of older keys within five seconds.
func (c *Client) RotateTokens(ctx context.Context) (TokenKeys, error) {
	return send[TokenKeys](ctx, c, http.MethodPost, "/v1/tokens:rotate", struct{}{})
}

// Tenants returns the tenants that this client's principal may see, by name: all for an admin of the deployment,
// otherwise its own. A tenant is stored when an admin puts it or when it is first used.
func (c *Client) Tenants(ctx context.Context) ([]Tenant, error) {
	page, err := get[Page[Tenant]](ctx, c, "/v1/tenants")
	return page.Items, err
}

// Tenant returns a tenant with its settings. The error has CodeTenantNotFound if it is not stored, or if this client's
// principal may not see it.
func (c *Client) Tenant(ctx context.Context, name string) (Tenant, error) {
	return get[Tenant](ctx, c, "/v1/tenants/"+url.PathEscape(name))
}

// PutTenant replaces all settings of a tenant. Only admins of the deployment may call it: CodeForbidden.
func (c *Client) PutTenant(ctx context.Context, name string, s TenantSettings) (Tenant, error) {
	return send[Tenant](ctx, c, http.MethodPut, "/v1/tenants/"+url.PathEscape(name), s)
}

// DeleteTenant deletes a tenant with its settings, schedules, hooks, triggers, memories, evaluations and files. Its
// runs, agents and keys stay, but model calls that need a deleted file fail. Until PutTenant stores the tenant again, it
// is suspended, unless it is the tenant default or the gateway's default tenant. The error has CodeTenantNotFound if the
// tenant is not stored; nothing is deleted then. After another error a part may be deleted, and a repetition deletes the
// rest.
func (c *Client) DeleteTenant(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/tenants/"+url.PathEscape(name), nil, nil, nil)
}

// Audit returns a page of the changes in the tenant and their principals, newest first. An empty cursor begins with the
// newest; the default of limit 0 is the gateway's.
func (c *Client) Audit(ctx context.Context, cursor string, limit int) (Page[AuditEntry], error) {
	return get[Page[AuditEntry]](ctx, c, "/v1/audit?"+pageQuery(cursor, limit).Encode())
}
