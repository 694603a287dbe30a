package api

import (
	"context"
	"net/http"
)

// Restore returns whether the deployment waits for a decision about an older copy of its store, and
// the runs and calls that the decision affects. Only viewers of the whole deployment may call it:
// CodeForbidden.
func (c *Client) Restore(ctx context.Context) (Restore, error) {
	return get[Restore](ctx, c, "/v1/restore")
}

// AcceptRestore makes the older copy the truth: each run continues from it, and calls that it lacks
// may happen twice. A deployment that does not wait answers CodeNoRestore.
func (c *Client) AcceptRestore(ctx context.Context) (RestoreDecided, error) {
	return send[RestoreDecided](ctx, c, http.MethodPost, "/v1/restore:accept", struct{}{})
}

// AbandonRestore cancels the runs that Restore lists, and continues the others. A deployment that
// does not wait answers CodeNoRestore. It may be repeated after an error.
func (c *Client) AbandonRestore(ctx context.Context) (RestoreDecided, error) {
	return send[RestoreDecided](ctx, c, http.MethodPost, "/v1/restore:abandon", struct{}{})
}
