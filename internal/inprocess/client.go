package inprocess

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// source is the label of submissions of Go programs in metrics.
const source = "http"

// request encodes a request as api.Client does, so that its fingerprint is the same, and decodes it as
// the gateway does.
func request[T any](r T) (body []byte, decoded T, err error) {
	if body, err = api.Encode(r); err != nil {
		return nil, decoded, err
	}
	return body, decoded, exchange.DecodeBytes(body, &decoded)
}

func runOf(st state.State, err error) (any, error) { return api.RunOf(st, time.Now()), err }

// PutAgent stores a version of an agent.
func (c *Client) PutAgent(ctx context.Context, name string, definition []byte) (api.SavedAgent, error) {
	return do[api.SavedAgent](ctx, c, call{operation: service.PutAgent, body: definition}, func(ctx context.Context, caller access.Caller) (any, error) {
		saved, err := c.p.cfg.Service.Agents.Put(ctx, caller, name, definition)
		if saved.Draft != nil {
			return struct {
				api.AgentDraft

				Warnings []api.Warning `json:"warnings,omitempty"`
			}{*saved.Draft, saved.Warnings}, err
		}
		return saved.Agent, err
	})
}

// Submit creates a run.
func (c *Client) Submit(ctx context.Context, r api.SubmitRequest, key string) (api.Run, error) {
	body, req, err := request(r)
	if err != nil {
		return api.Run{}, err
	}
	return do[api.Run](ctx, c, call{operation: service.Submit, body: body}, func(ctx context.Context, caller access.Caller) (any, error) {
		return runOf(c.p.cfg.Service.Submissions.Submit(ctx, caller, service.Submission{Request: req, Body: body, Key: key, Source: source}))
	})
}

// SubmitBatch creates the runs of a batch. After a failure of the store, some of them may exist.
func (c *Client) SubmitBatch(ctx context.Context, r api.BatchRequest, key string) (api.BatchAccepted, error) {
	body, err := api.Encode(r)
	if err != nil {
		return api.BatchAccepted{}, err
	}
	return do[api.BatchAccepted](ctx, c, call{service.SubmitBatch, body, service.BatchBodies}, func(ctx context.Context, caller access.Caller) (any, error) {
		return c.p.cfg.Service.Submissions.SubmitBatch(ctx, caller, service.Submission{Body: body, Key: key, Source: source})
	})
}

// ForkWithKey creates a run that shares a part of another one's history.
func (c *Client) ForkWithKey(ctx context.Context, id string, r api.ForkRequest, key string) (api.Run, error) {
	body, req, err := request(r)
	if err != nil {
		return api.Run{}, err
	}
	return do[api.Run](ctx, c, call{operation: service.Fork, body: body}, func(ctx context.Context, caller access.Caller) (any, error) {
		return runOf(c.p.cfg.Service.Submissions.Fork(ctx, caller, service.Forking{Run: id, Request: req, Body: body, Key: key}))
	})
}

// Get returns a run.
func (c *Client) Get(ctx context.Context, id string) (api.Run, error) {
	return do[api.Run](ctx, c, call{operation: service.Read}, func(ctx context.Context, caller access.Caller) (any, error) {
		return runOf(c.p.cfg.Service.Runs.Get(ctx, caller, id))
	})
}

// List returns a page of runs. Query has the parameters of GET /v1/runs.
func (c *Client) List(ctx context.Context, query url.Values) (api.Page[api.Run], error) {
	return do[api.Page[api.Run]](ctx, c, call{operation: service.Read}, func(ctx context.Context, caller access.Caller) (any, error) {
		l, err := service.ParseListing(maps.Clone(query))
		if err != nil {
			return nil, err
		}
		page, err := c.p.cfg.Service.Runs.List(ctx, caller, l)
		now := time.Now()
		runs := make([]api.Run, len(page.Items))
		for i, st := range page.Items {
			runs[i] = api.RunOf(st, now)
		}
		return api.Page[api.Run]{Items: runs, NextCursor: page.NextCursor, Examined: page.Examined, Complete: page.Complete}, err
	})
}

// Messages returns the history of a run as the model sees it.
func (c *Client) Messages(ctx context.Context, id string) ([]api.Message, error) {
	return do[[]api.Message](ctx, c, call{operation: service.Read}, func(ctx context.Context, caller access.Caller) (any, error) {
		log, err := c.p.cfg.Service.Runs.Log(ctx, caller, id)
		if err != nil {
			return nil, err
		}
		refs, err := log.Refs(ctx, false)
		if err != nil {
			return nil, err
		}
		messages := slices.Collect(log.Messages(ctx, refs))
		return api.MessagesOf(messages), log.Err()
	})
}

// Signal sends a signal to a run.
func (c *Client) Signal(ctx context.Context, id string, s api.SignalRequest) (api.Run, error) {
	body, req, err := request(s)
	if err != nil {
		return api.Run{}, err
	}
	return do[api.Run](ctx, c, call{operation: service.Send, body: body}, func(ctx context.Context, caller access.Caller) (any, error) {
		return runOf(c.p.cfg.Service.Signals.Send(ctx, caller, service.Sending{Run: id, Request: req, Body: body}))
	})
}

// Cancel cancels a run.
func (c *Client) Cancel(ctx context.Context, id, reason string) (api.Run, error) {
	body, req, err := request(api.CancelRequest{Reason: reason})
	if err != nil {
		return api.Run{}, err
	}
	return do[api.Run](ctx, c, call{operation: service.Cancel, body: body}, func(ctx context.Context, caller access.Caller) (any, error) {
		return runOf(c.p.cfg.Service.Runs.Cancel(ctx, caller, service.Canceling{Run: id, Reason: req.Reason}))
	})
}

// Delete deletes a run and its descendants.
func (c *Client) Delete(ctx context.Context, id string) error {
	_, err := do[json.RawMessage](ctx, c, call{operation: service.DeleteRun}, func(ctx context.Context, caller access.Caller) (any, error) {
		return nil, c.p.cfg.Service.Runs.Delete(ctx, caller, id)
	})
	return err
}

// Batch returns a batch with all of its runs.
func (c *Client) Batch(ctx context.Context, id string) (api.Batch, error) {
	return do[api.Batch](ctx, c, call{operation: service.Read}, func(ctx context.Context, caller access.Caller) (any, error) {
		p, err := service.ParsePage(nil)
		if err != nil {
			return nil, err
		}
		return c.p.cfg.Service.Batches.Get(ctx, caller, id, p)
	})
}

// batchInterval is the time between two reads of a batch that a caller waits for.
const batchInterval = time.Second

// WaitBatch returns a batch once all of its runs have ended or were deleted. While the servers are unavailable it waits
// for them. If ctx ends, or a read fails for a reason that does not pass, it returns the error with the batch that it
// read last. It ignores its last argument.
func (c *Client) WaitBatch(ctx context.Context, id string, _ func(api.Batch, api.Run)) (last api.Batch, err error) {
	for {
		b, err := c.Batch(ctx, id)
		switch {
		case err == nil && b.Done:
			return b, nil
		case err == nil:
			last = b
		case ctx.Err() != nil:
			return last, ctx.Err()
		case permanent(err):
			return last, err
		}
		if !pause(ctx, batchInterval) {
			return last, ctx.Err()
		}
	}
}

// pause waits, and reports whether ctx continues.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
