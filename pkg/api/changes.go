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

// Changes yields the changes of the tenant's runs, until ctx ends, the gateway refuses, or 120 reconnections in a row
// fail; the last pair has the error. query has the parameters of GET /v1/events: agent, loop, parent, batch and
// metadata.KEY select runs.
//
// The first change is ChangesOpen: of each run that changes after it the caller receives the latest state, but not
// every state in between. So a caller that maintains a list must read the list at ChangesOpen. When the connection
// breaks, Changes reconnects and yields ChangesOpen again. It also yields the states of the runs that have changed
// while it was not connected, before or after that ChangesOpen, possibly a second time. ChangesLost means that changes
// may be missing: read the list again. Of two states of a run the one with the higher Version is the later. Ignore a
// state that follows RunDeleted.
func (c *Client) Changes(ctx context.Context, query url.Values) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var link connection
		path, last := "/v1/events?"+query.Encode(), ""
		for failures := 0; ; failures++ {
			enough := false
			err := c.frames(ctx, path, last, &link, func(frame sse.Event) (bool, error) {
				var change Change
				if err := json.Unmarshal(frame.Data, &change); err != nil {
					return false, fmt.Errorf("an event in the stream of changes cannot be decoded (%w): upgrade this client if the gateway is newer; otherwise check that the server is a gateway, and that no proxy alters its responses", err)
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
