package api

import (
	"context"
	"net/http"
	"net/url"
)

// PutTrigger creates a trigger, or replaces all settings of one. Gateways use them within two seconds.
func (c *Client) PutTrigger(ctx context.Context, name string, s TriggerSettings) (Trigger, error) {
	return send[Trigger](ctx, c, http.MethodPut, "/v1/triggers/"+url.PathEscape(name), s)
}

// Trigger returns a trigger with its settings and its status.
func (c *Client) Trigger(ctx context.Context, name string) (Trigger, error) {
	return get[Trigger](ctx, c, "/v1/triggers/"+url.PathEscape(name))
}

// Triggers returns a page of the triggers of the tenant, by name, without the numbers of their messages. An empty
// cursor begins with the first; the default of limit 0 is the gateway's.
func (c *Client) Triggers(ctx context.Context, cursor string, limit int) (Page[Trigger], error) {
	return get[Page[Trigger]](ctx, c, "/v1/triggers?"+pageQuery(cursor, limit).Encode())
}

// DeleteTrigger deletes a trigger and its consumer. Its runs continue.
func (c *Client) DeleteTrigger(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/triggers/"+url.PathEscape(name), nil, nil, nil)
}
