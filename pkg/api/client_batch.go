package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// batchEvery is the interval at which WaitBatch polls.
const batchEvery = 250 * time.Millisecond

// SubmitBatch submits 1 to 1,000 runs. The gateway checks all of them before it stores the first. While a key is known
// (see Submit), another call with it and the same content returns the same batch. If a failure has left runs unstored,
// that call stores them, or returns an error if it can store them no longer. It leaves those that have been recorded as
// lost (see [Batch.Counts]) as they are.
func (c *Client) SubmitBatch(ctx context.Context, r BatchRequest, key string) (BatchAccepted, error) {
	var out BatchAccepted
	b, err := Encode(r)
	if err != nil {
		return out, err
	}
	return out, c.do(ctx, http.MethodPost, "/v1/runs:batch", keyHeader(key), b, &out)
}

// Batch returns the progress of a batch, with all runs that were not deleted.
func (c *Client) Batch(ctx context.Context, id string) (Batch, error) {
	return get[Batch](ctx, c, "/v1/batches/"+url.PathEscape(id))
}

// Batches returns a page of batches, newest first, without their runs. cursor is empty or the NextCursor of the
// previous page. A page has at most 20 batches, and may have fewer than limit, even none, although more follow.
func (c *Client) Batches(ctx context.Context, cursor string, limit int) (Page[BatchSummary], error) {
	return get[Page[BatchSummary]](ctx, c, "/v1/batches?"+pageQuery(cursor, limit).Encode())
}

// WaitBatch returns a batch once all of its runs have ended. When ctx ends, it returns the error of ctx. It reads the
// batch about every 250 ms, and calls each, if not nil, with that batch for every run that has ended or waits for a
// person, or for the result of a client tool or an asynchronous tool. It calls each again for a run that waits only
// after it has found the run in flight, or with another reason. So it may miss a second wait for the same reason that
// follows at once: a callback that answers a wait must read the run until the run no longer waits. WaitBatch omits runs
// that were deleted before it read them.
//
// While the gateway cannot be reached or fails, WaitBatch continues to wait. If the gateway refuses, for example
// because the batch does not exist, WaitBatch returns that error. With an error it returns the last batch that it has
// read.
func (c *Client) WaitBatch(ctx context.Context, id string, each func(Batch, Run)) (Batch, error) {
	reported := map[string]string{} // the status and reason that were reported, by run
	var last Batch
	var link connection
	for {
		b, err := c.Batch(ctx, id)
		if err == nil {
			last = b
			link.stands()
			err = c.report(ctx, b, reported, each)
		}
		switch {
		case err == nil && b.Done:
			return b, nil
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil && link.permanent(err):
			return last, err
		}
		timer := time.NewTimer(batchEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// report calls each for the unreported runs of a batch.
func (c *Client) report(ctx context.Context, b Batch, reported map[string]string, each func(Batch, Run)) error {
	if each == nil {
		return nil
	}
	for _, r := range b.Items {
		if !r.Terminal() && !r.Asks() {
			delete(reported, r.ID)
			continue
		}
		now := r.Status
		if r.Reason != nil {
			now += " " + *r.Reason
		}
		if reported[r.ID] == now {
			continue
		}
		run, err := c.Get(ctx, r.ID)
		if errors.Is(err, ErrNotFound) {
			continue // it was deleted after the batch was read
		}
		if err != nil {
			return err
		}
		if run.Terminal() != r.Terminal() {
			continue // it has moved on; the next look will tell
		}
		reported[r.ID] = now
		each(b, run)
	}
	return nil
}
