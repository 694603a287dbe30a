package api

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// StatsQuery selects figures of a tenant. The zero value selects those of the last 24 hours, hour by hour, of all runs
// together. An interval, after it was extended to whole hours, is at most 90 days long, and at most 7 days with
// StepHour.
type StatsQuery struct {
	From, To time.Time // the interval, which the gateway extends to whole hours; To defaults to now, From to a day before To
	By       string    // agent or model: a row for each; empty: one row for all
	Step     string    // hour (the default), day, or all: the time that a row covers
	Agent    string    // only of this agent
	Model    string    // only of this model
	Limit    int       // number of agents or models with a row, 1 to 50; one row sums up the others; 0 means 20
}

// Stats are figures over time. A run counts in the hour of its end.
type Stats struct {
	Page[StatsRow]

	From     state.Time `json:"from"`
	To       state.Time `json:"to"`
	By       string     `json:"by"`
	Step     string     `json:"step"`
	BoundsMS []int64    `json:"bounds_ms"` // the upper bounds of the buckets of a Latency
}

// StatsOther is the name of the row that sums up the agents or models that have no row. StatsNone is the name of the
// row of runs that have called no model.
const (
	StatsOther = "(other)"
	StatsNone  = "(none)"
)

// StatsRow has the figures of one step, and of one agent or model if the query has By.
type StatsRow struct {
	Start state.Time `json:"start"`
	Name  string     `json:"name"` // an agent or a model; empty if the query has no By

	Runs    int64                  `json:"runs"`    // number of ends of runs; a run that continues may end again
	Failed  int64                  `json:"failed"`  // number of these with the status failed
	Reasons map[state.Reason]int64 `json:"reasons"` // number of these by their reason

	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CacheReadTokens  int64 `json:"cache_read_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`

	// CacheExpiredTokens are input tokens that runs sent again because the provider's cache had dropped them.
	CacheExpiredTokens int64 `json:"cache_expired_tokens"`

	// CacheExpiredCostUSD is the part of CostUSD that reading CacheExpiredTokens from the cache would have saved.
	CacheExpiredCostUSD state.MicroUSD `json:"cache_expired_cost_usd"`

	CostUSD    state.MicroUSD `json:"cost_usd"`
	ModelCalls int64          `json:"model_calls"`
	ToolCalls  int64          `json:"tool_calls"`
	ToolErrors int64          `json:"tool_errors"`

	Queue Latency `json:"queue"` // from the time a turn was queued to its claim
	Model Latency `json:"model"` // of model calls with a response
	Tool  Latency `json:"tool"`  // of tool calls that workers made and that took a millisecond or more
}

// Latency is a distribution of durations. P50MS and P95MS are the upper bounds of the buckets
// that have these percentiles, nil without durations. The last of Buckets has the durations
// above the last of Stats.BoundsMS; that bound then also stands for a percentile in this bucket.
type Latency struct {
	Count   int64   `json:"count"`
	SumMS   int64   `json:"sum_ms"`
	P50MS   *int64  `json:"p50_ms"`
	P95MS   *int64  `json:"p95_ms"`
	Buckets []int64 `json:"buckets"`
}

// The steps of a StatsQuery.
const (
	StepHour = "hour"
	StepDay  = "day"
	StepAll  = "all"
)

// Stats returns figures over time: runs, failures by reason, latency, tokens and cost. The deletion of a run subtracts
// nothing from them. The store keeps them for 90 days.
func (c *Client) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	query := url.Values{}
	for name, at := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339))
		}
	}
	for name, value := range map[string]string{"by": q.By, "step": q.Step, "agent": q.Agent, "model": q.Model} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	return get[Stats](ctx, c, "/v1/stats?"+query.Encode())
}
