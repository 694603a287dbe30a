package api

import (
	"context"
	"net/http"
	"net/url"
)

// PutEvaluation stores the report of an evaluation, in place of any earlier report with that id. The tenant keeps its
// newest 500; the gateway deletes older ones.
func (c *Client) PutEvaluation(ctx context.Context, id string, r EvaluationReport) (EvaluationSummary, error) {
	return send[EvaluationSummary](ctx, c, http.MethodPut, "/v1/evaluations/"+url.PathEscape(id), r)
}

// Evaluation returns an evaluation with its results.
func (c *Client) Evaluation(ctx context.Context, id string) (Evaluation, error) {
	return get[Evaluation](ctx, c, "/v1/evaluations/"+url.PathEscape(id))
}

// Evaluations returns a page of the evaluations of an agent, newest first; an empty name selects all agents. An empty
// cursor begins with the newest; the default of limit 0 is the gateway's.
func (c *Client) Evaluations(ctx context.Context, agent, cursor string, limit int) (Page[EvaluationSummary], error) {
	query := pageQuery(cursor, limit)
	if agent != "" {
		query.Set("agent", agent)
	}
	return get[Page[EvaluationSummary]](ctx, c, "/v1/evaluations?"+query.Encode())
}

// DeleteEvaluation deletes an evaluation. Its runs stay.
func (c *Client) DeleteEvaluation(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/evaluations/"+url.PathEscape(id), nil, nil, nil)
}
