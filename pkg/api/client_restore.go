package api

import (
	"context"
	"net/http"
)

// Restore returns whether the deployment waits for a decision about an older copy of its store. If it does, the result
// has the number of runs and calls that the decision affects, and the first 1,000 of these runs. Only viewers of the
// whole deployment may call it: CodeForbidden.
func (c *Client) Restore(ctx context.Context) (Restore, error) {
	return get[Restore](ctx, c, "/v1/restore")
}

// AcceptRestore accepts the older copy: each run continues from it, and calls that the copy lacks may happen twice.
// Only operators and admins of the whole deployment may call it: CodeForbidden. If the deployment does not wait for a
// decision, the error has CodeNoRestore.
func (c *Client) AcceptRestore(ctx context.Context) (RestoreDecided, error) {
	return send[RestoreDecided](ctx, c, http.MethodPost, "/v1/restore:accept", struct{}{})
}

// AbandonRestore cancels the runs that Restore finds, including those beyond its list, and continues the others. A run
// that the copy lacks ends as lost. The call may be repeated after an error. Its errors are those of AcceptRestore.
func (c *Client) AbandonRestore(ctx context.Context) (RestoreDecided, error) {
	return send[RestoreDecided](ctx, c, http.MethodPost, "/v1/restore:abandon", struct{}{})
}
