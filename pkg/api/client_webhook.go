package api

import (
	"context"
	"net/http"
	"net/url"
)

// PendingEvents returns a page of the events that webhooks of the tenant have not accepted yet, those of the oldest run
// first. An empty cursor begins with the first; the default of limit 0 is the gateway's. A page may have fewer events
// than limit although more follow: then it has a NextCursor.
func (c *Client) PendingEvents(ctx context.Context, cursor string, limit int) (Page[PendingEvent], error) {
	return get[Page[PendingEvent]](ctx, c, "/v1/webhooks/pending?"+pageQuery(cursor, limit).Encode())
}

// TestWebhook makes a worker send a test event, once. WebhookTest returns the outcome. A tenant may make 100 tests an
// hour: CodeTooManyWebhookTests.
func (c *Client) TestWebhook(ctx context.Context, r WebhookTestRequest) (WebhookTest, error) {
	return send[WebhookTest](ctx, c, http.MethodPost, "/v1/webhooks/tests", r)
}

// WebhookTest returns a test of a webhook. The gateway keeps tests for at least an hour.
func (c *Client) WebhookTest(ctx context.Context, id string) (WebhookTest, error) {
	return get[WebhookTest](ctx, c, "/v1/webhooks/tests/"+url.PathEscape(id))
}
