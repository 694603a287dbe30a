package api

import (
	"context"
	"net/http"
	"net/url"
)

// PutTrigger stores the settings of a trigger, all of them. Gateways use them within two seconds.
func (c *Client) PutTrigger(ctx context.Context, name string, s TriggerSettings) (Trigger, error) {
	return send[Trigger](ctx, c, http.MethodPut, "/v1/triggers/"+url.PathEscape(name), s)
}

// Trigger reads the settings and the status of a trigger.
func (c *Client) Trigger(ctx context.Context, name string) (Trigger, error) {
	return get[Trigger](ctx, c, "/v1/triggers/"+url.PathEscape(name))
}

// Triggers reads a page of the triggers of the tenant, by name. An empty cursor begins with the first;
// limit 0 is the gateway's own.
func (c *Client) Triggers(ctx context.Context, cursor string, limit int) (Page[Trigger], error) {
	return get[Page[Trigger]](ctx, c, "/v1/triggers?"+pageQuery(cursor, limit).Encode())
}

// DeleteTrigger removes a trigger and its consumer. Its runs stay.
func (c *Client) DeleteTrigger(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/triggers/"+url.PathEscape(name), nil, nil, nil)
}
