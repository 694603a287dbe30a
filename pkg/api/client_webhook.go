package api

import (
	"context"
	"net/http"
	"net/url"
)

// PendingEvents reads a page of the events that webhooks of the tenant have not accepted yet, those of the
// oldest run first. An empty cursor begins with the first; limit 0 is the gateway's own. A page may have
// fewer events than limit although more follow: NextCursor says whether they do.
func (c *Client) PendingEvents(ctx context.Context, cursor string, limit int) (Page[PendingEvent], error) {
	return get[Page[PendingEvent]](ctx, c, "/v1/webhooks/pending?"+pageQuery(cursor, limit).Encode())
}

// TestWebhook has a worker send a test event, once. WebhookTest returns how it ended.
func (c *Client) TestWebhook(ctx context.Context, r WebhookTestRequest) (WebhookTest, error) {
	return send[WebhookTest](ctx, c, http.MethodPost, "/v1/webhooks/tests", r)
}

// WebhookTest reads a test of a webhook. Tests are kept for an hour at least.
func (c *Client) WebhookTest(ctx context.Context, id string) (WebhookTest, error) {
	return get[WebhookTest](ctx, c, "/v1/webhooks/tests/"+url.PathEscape(id))
}
