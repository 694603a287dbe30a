package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"

	"github.com/turnpike-dev/turnpike/internal/sse"
)

// Changes follows how the runs of the tenant change, until ctx ends, the gateway refuses, or it
// cannot be reached in 120 tries; the last pair has the error. query has the parameters of
// GET /v1/events: agent, loop, parent, batch and metadata.KEY say of which runs.
//
// The first change is ChangesOpen: the caller hears of all that comes after it, so whoever
// keeps a list reads it then. When the connection breaks Changes comes back by itself and tells
// how the runs stand that have changed meanwhile, perhaps again; ChangesOpen says that it is
// back. After ChangesLost there were too many to tell: read the list anew. Of two states of a
// run the one with the higher Version is the later; after RunDeleted there is none.
func (c *Client) Changes(ctx context.Context, query url.Values) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var link connection
		path, last := "/v1/events?"+query.Encode(), ""
		for failures := 0; ; failures++ {
			enough := false
			err := c.frames(ctx, path, last, &link, func(frame sse.Event) (bool, error) {
				var change Change
				if err := json.Unmarshal(frame.Data, &change); err != nil {
					return false, fmt.Errorf("a change that is not JSON: %w", err)
				}
				failures = 0
				if frame.ID != "" {
					last = frame.ID
				}
				enough = !yield(change, nil)
				return !enough, nil
			})
			if enough {
				return
			}
			if ctx.Err() != nil || failures == reconnectLimit || link.permanent(err) {
				yield(Change{}, errors.Join(err, ctx.Err()))
				return
			}
			beforeNext(ctx)
		}
	}
}
