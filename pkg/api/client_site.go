package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// CancelRuns aborts the runs in flight of the tenant that match a filter, newest first, at most 1,000 per call, each
// with all its descendants, which the result does not list. They may take a moment to end. If the result has a
// NextCursor, more runs may match: call again with it as the Cursor. A request may be repeated. A request that fails
// may have cancelled some runs. Only operators may call it: CodeForbidden.
//
// With DryRun it lists the runs and cancels none. The gateway refuses an empty filter, or a status of ended runs, with
// CodeInvalidRequest.
func (c *Client) CancelRuns(ctx context.Context, r CancelRunsRequest) (CanceledRuns, error) {
	return send[CanceledRuns](ctx, c, http.MethodPost, "/v1/runs:cancel", r)
}

// SubmitDraft submits a run of a definition that is not saved: no list of agents has it, and the agent of the same
// name does not change. Text turns a definition in YAML into r.Definition. If an earlier submission had the same key
// and content, SubmitDraft returns its run. The caller needs the roles author and submitter.
//
// The gateway refuses a definition with mistakes with CodeInvalidAgent and all of them in Errors, and each draft in a
// tenant that requires review with CodeForbidden.
func (c *Client) SubmitDraft(ctx context.Context, r DraftRequest, key string) (Run, error) {
	var out Run
	b, err := Encode(r)
	if err != nil {
		return out, err
	}
	return out, c.do(ctx, http.MethodPost, "/v1/drafts", keyHeader(key), b, &out)
}

// AgentVersion returns one version of an agent, by its number from 1. Versions of a deleted agent stay. The error has
// CodeAgentNotFound if the version does not exist.
func (c *Client) AgentVersion(ctx context.Context, name string, version int) (Agent, error) {
	return get[Agent](ctx, c, "/v1/agents/"+url.PathEscape(name)+"?version="+strconv.Itoa(version))
}

// AgentVersions returns a page of the versions of an agent, newest first, each with statistics of its runs: their
// number by status, their cost, and their duration in milliseconds. The statistics cover the newest 1,000 runs of the
// agent; Complete reports whether these are all. A deleted agent has no page: CodeAgentNotFound.
//
// An empty cursor begins with the newest version; the default of limit 0 is the gateway's.
func (c *Client) AgentVersions(ctx context.Context, name, cursor string, limit int) (AgentVersions, error) {
	return get[AgentVersions](ctx, c, "/v1/agents/"+url.PathEscape(name)+"/versions?"+pageQuery(cursor, limit).Encode())
}

// Workers returns the workers of the deployment, by id. A gateway lists those that hold leases of runs, and those whose
// heartbeats it has received within ten minutes and that have not announced their end; right after its start it may
// lack workers without leases. Only viewers of the whole deployment may call it: CodeForbidden.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	page, err := get[Page[Worker]](ctx, c, "/v1/workers")
	return page.Items, err
}

// Queues returns the number of turns that wait or are in flight in each lane, and the number of runs
// of the deployment by status. Only viewers of the whole deployment may call it: CodeForbidden. The
// error has CodeBusUnavailable while the bus does not accept writes or does not report its queues.
func (c *Client) Queues(ctx context.Context) (Queues, error) {
	return get[Queues](ctx, c, "/v1/queues")
}

// pageQuery returns the query for a page. It omits an empty cursor and limit 0: the gateway has defaults for both.
func pageQuery(cursor string, limit int) url.Values {
	q := url.Values{}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}
