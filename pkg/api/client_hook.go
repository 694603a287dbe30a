package api

import (
	"context"
	"net/http"
	"net/url"
)

// PutHook creates a hook, or replaces all settings of one. Gateways use them within two seconds.
func (c *Client) PutHook(ctx context.Context, name string, s HookSettings) (Hook, error) {
	return send[Hook](ctx, c, http.MethodPut, "/v1/hooks/"+url.PathEscape(name), s)
}

// Hook returns a hook with its settings and its path.
func (c *Client) Hook(ctx context.Context, name string) (Hook, error) {
	return get[Hook](ctx, c, "/v1/hooks/"+url.PathEscape(name))
}

// Hooks returns a page of the hooks of the tenant, by name. An empty cursor begins with the first; the default of limit
// 0 is the gateway's.
func (c *Client) Hooks(ctx context.Context, cursor string, limit int) (Page[Hook], error) {
	return get[Page[Hook]](ctx, c, "/v1/hooks?"+pageQuery(cursor, limit).Encode())
}

// DeleteHook deletes a hook. Its runs continue. Gateways refuse its deliveries within two seconds.
func (c *Client) DeleteHook(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/hooks/"+url.PathEscape(name), nil, nil, nil)
}
