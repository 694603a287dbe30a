package api

import "context"

// PendingEvents reads a page of the events that webhooks of the tenant have not accepted yet, those of the
// oldest run first. An empty cursor begins with the first; limit 0 is the gateway's own. A page may have
// fewer events than limit although more follow: NextCursor says whether they do.
func (c *Client) PendingEvents(ctx context.Context, cursor string, limit int) (Page[PendingEvent], error) {
	return get[Page[PendingEvent]](ctx, c, "/v1/webhooks/pending?"+pageQuery(cursor, limit).Encode())
}
