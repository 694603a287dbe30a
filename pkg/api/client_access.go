package api

import (
	"context"
	"net/http"
	"net/url"
)

// WhoAmI says who the gateway takes this client for.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) {
	return get[Identity](ctx, c, "/v1/whoami")
}

// CreateKey makes an API key. Its text is in the answer, and nowhere else.
func (c *Client) CreateKey(ctx context.Context, r KeyRequest) (NewKey, error) {
	return send[NewKey](ctx, c, http.MethodPost, "/v1/keys", r)
}

// Keys lists the API keys that this client's principal may see.
func (c *Client) Keys(ctx context.Context) ([]APIKey, error) {
	page, err := get[Page[APIKey]](ctx, c, "/v1/keys")
	return page.Items, err
}

// RevokeKey has every gateway refuse a key within five seconds.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, nil, nil)
}

// CreateToken issues a token for an end user. Its text is in the answer, and nowhere else. This client
// must send an API key with the role issuer.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (NewToken, error) {
	return send[NewToken](ctx, c, http.MethodPost, "/v1/tokens", r)
}

// RotateTokens adds a key that signs the tokens of this client's tenant. Tokens of the key before stay
// valid; those of older ones are refused within five seconds.
func (c *Client) RotateTokens(ctx context.Context) (TokenKeys, error) {
	return send[TokenKeys](ctx, c, http.MethodPost, "/v1/tokens:rotate", struct{}{})
}

// Tenants lists the tenants that have settings.
func (c *Client) Tenants(ctx context.Context) ([]Tenant, error) {
	page, err := get[Page[Tenant]](ctx, c, "/v1/tenants")
	return page.Items, err
}

// Tenant reads the settings of a tenant.
func (c *Client) Tenant(ctx context.Context, name string) (Tenant, error) {
	return get[Tenant](ctx, c, "/v1/tenants/"+url.PathEscape(name))
}

// PutTenant stores the settings of a tenant, all of them.
func (c *Client) PutTenant(ctx context.Context, name string, s TenantSettings) (Tenant, error) {
	return send[Tenant](ctx, c, http.MethodPut, "/v1/tenants/"+url.PathEscape(name), s)
}

// DeleteTenant removes the settings of a tenant. Its runs and agents stay.
func (c *Client) DeleteTenant(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/tenants/"+url.PathEscape(name), nil, nil, nil)
}

// Audit reads a page of who did what in the tenant, the newest first. An empty cursor begins
// with the newest; limit 0 is the gateway's own.
func (c *Client) Audit(ctx context.Context, cursor string, limit int) (Page[AuditEntry], error) {
	return get[Page[AuditEntry]](ctx, c, "/v1/audit?"+pageQuery(cursor, limit).Encode())
}
