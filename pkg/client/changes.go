package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/api/sse"
)

// Changes follows how the runs of the tenant change, until ctx ends, the gateway refuses, or it
// cannot be reached in 120 tries; the last pair has the error. query has the parameters of
// GET /v1/events: agent, loop, parent, batch and metadata.KEY say of which runs.
//
// The first change is api.ChangesOpen: the caller hears of all that comes after it, so whoever
// keeps a list reads it then. When the connection breaks Changes comes back by itself and tells
// how the runs stand that have changed meanwhile, perhaps again; api.ChangesOpen says that it is
// back. After api.ChangesLost there were too many to tell: read the list anew. Of two states of a
// run the one with the higher Version is the later; after api.RunDeleted there is none.
func (c *Client) Changes(ctx context.Context, query url.Values) iter.Seq2[api.Change, error] {
	return func(yield func(api.Change, error) bool) {
		var link connection
		path, last := "/v1/events?"+query.Encode(), ""
		for failures := 0; ; failures++ {
			enough := false
			err := c.frames(ctx, path, last, &link, func(frame sse.Event) (bool, error) {
				var change api.Change
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
				yield(api.Change{}, errors.Join(err, ctx.Err()))
				return
			}
			beforeNext(ctx)
		}
	}
}
