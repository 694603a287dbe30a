package service

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	maxStatsHours   = 24 * 90 // maximum interval of a request: what stores keep
	maxHourlySteps  = 24 * 7  // more hours need larger steps
	defaultStatRows = 20
	maxStatRows     = 50
)

// ParseStats reads the parameters of a request for figures. It refuses unknown parameters.
func ParseStats(query url.Values) (q api.StatsQuery, err error) {
	for name, values := range query {
		value := values[0]
		if len(values) > 1 {
			return q, invalid("parameter %q is given %d times: give it once", name, len(values))
		}
		switch name {
		case "from", "to":
			at, err := time.Parse(time.RFC3339, strings.ReplaceAll(value, " ", "+")) // a plus that was not escaped
			if err != nil {
				return q, invalid("%s %q is not a time in RFC 3339: write one such as 2026-11-20T15:04:05Z", name, value)
			}
			if name == "from" {
				q.From = at
			} else {
				q.To = at
			}
		case "by":
			if q.By = value; value != "agent" && value != "model" {
				return q, invalid("by is %q: use agent or model", value)
			}
		case "step":
			if q.Step = value; !slices.Contains([]string{api.StepHour, api.StepDay, api.StepAll}, value) {
				return q, invalid("step is %q: use hour, day or all", value)
			}
		case "agent", "model":
			if value == "" {
				return q, invalid("parameter %q is empty: give a value, or omit it", name)
			}
			if name == "agent" {
				q.Agent = value
			} else {
				q.Model = value
			}
		case "limit":
			if q.Limit, err = strconv.Atoi(value); err != nil || q.Limit < 1 || q.Limit > maxStatRows {
				return q, invalid("limit %q is not valid: give a number from 1 to %d", value, maxStatRows)
			}
		case "tenant":
		default:
			return q, invalid("unknown parameter %q: use from, to, by, step, agent, model, limit, tenant", name)
		}
	}
	return q, nil
}

// Stats reads figures over time.
type Stats struct{ *core }

// cell identifies a row: the beginning of its step, and its name.
type cell struct {
	start int64
	name  string
}

// Read returns the figures of the caller's tenant.
func (s *Stats) Read(ctx context.Context, c access.Caller, q api.StatsQuery) (api.Stats, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Stats{}, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return api.Stats{}, err
	}
	if q, err = completed(q, now.Time); err != nil {
		return api.Stats{}, err
	}
	rows, err := s.sum(ctx, c.Tenant, q)
	if err != nil {
		return api.Stats{}, err
	}
	rows = largest(rows, q.Limit)
	items := make([]api.StatsRow, 0, len(rows))
	for _, at := range slices.SortedFunc(maps.Keys(rows), func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.name, b.name))
	}) {
		items = append(items, rowOf(at, rows[at]))
	}
	return api.Stats{
		Page: api.NewPage(items, ""), From: state.At(q.From), To: state.At(q.To), By: q.By, Step: q.Step, BoundsMS: state.FigureBounds(),
	}, nil
}

// completed returns q with defaults for missing fields and the interval extended to whole hours, or a problem if q is
// invalid.
func completed(q api.StatsQuery, now time.Time) (api.StatsQuery, error) {
	if q.To.IsZero() {
		q.To = now
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-24 * time.Hour)
	}
	q.From, q.To = q.From.UTC().Truncate(time.Hour), state.FirstHour(q.To)
	q.Step, q.Limit = cmp.Or(q.Step, api.StepHour), cmp.Or(q.Limit, defaultStatRows)
	hours := int(q.To.Sub(q.From) / time.Hour)
	switch {
	case hours <= 0:
		return q, invalid("from %s is not before to %s: choose an earlier from or a later to", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339))
	case hours > maxStatsHours:
		return q, invalid("from and to are %d hours apart, at most %d (90 days): choose a later from", hours, maxStatsHours)
	case q.Step == api.StepHour && hours > maxHourlySteps:
		return q, invalid("from and to are %d hours apart, at most %d are allowed with step=hour: set step=day", hours, maxHourlySteps)
	}
	return q, nil
}

// sum reads the hours of a query, some at a time, and adds up the figures of each row.
func (s *Stats) sum(ctx context.Context, tenant string, q api.StatsQuery) (map[cell]state.Figures, error) {
	rows := map[cell]state.Figures{}
	for from := q.From; from.Before(q.To); from = from.Add(state.MaxFiguresHours * time.Hour) {
		to := from.Add(state.MaxFiguresHours * time.Hour)
		if to.After(q.To) {
			to = q.To
		}
		hours, err := s.store.Figures(ctx, tenant, from, to)
		if err != nil {
			return nil, err
		}
		for _, h := range hours {
			for _, series := range h.Series {
				name, ok := nameIn(q, series.SeriesKey)
				if !ok {
					continue
				}
				at := cell{startOf(q, h.Hour).Unix(), name}
				if rows[at] == nil {
					rows[at] = state.Figures{}
				}
				rows[at].Add(series.Figures)
			}
		}
	}
	return rows, nil
}

// nameIn returns the name of the row for a series, and whether the query selects the series.
func nameIn(q api.StatsQuery, key state.SeriesKey) (name string, ok bool) {
	agent, model := key.Agent, cmp.Or(key.Model, api.StatsNone)
	if key == state.OtherSeries {
		agent, model = api.StatsOther, api.StatsOther
	}
	if q.Agent != "" && q.Agent != agent || q.Model != "" && q.Model != model {
		return "", false
	}
	switch q.By {
	case "agent":
		return agent, true
	case "model":
		return model, true
	default:
		return "", true
	}
}

func startOf(q api.StatsQuery, hour time.Time) time.Time {
	switch q.Step {
	case api.StepDay:
		if day := hour.UTC().Truncate(24 * time.Hour); day.After(q.From) {
			return day
		}
		return q.From
	case api.StepAll:
		return q.From
	default:
		return hour
	}
}

// largest keeps the rows of the limit names with the most runs, or the most model calls if runs are equal, and adds up
// the others in one row.
func largest(rows map[cell]state.Figures, limit int) map[cell]state.Figures {
	runs, calls := map[string]int64{}, map[string]int64{}
	for at, f := range rows {
		runs[at.name] += f[state.CounterRuns]
		calls[at.name] += f[state.CounterModelCalls]
	}
	names := slices.SortedFunc(maps.Keys(runs), func(a, b string) int {
		return cmp.Or(cmp.Compare(runs[b], runs[a]), cmp.Compare(calls[b], calls[a]), cmp.Compare(a, b))
	})
	if len(names) <= limit {
		return rows
	}
	named := map[string]bool{}
	for _, name := range names[:limit] {
		named[name] = true
	}
	out := map[cell]state.Figures{}
	for at, f := range rows {
		if !named[at.name] {
			at.name = api.StatsOther
		}
		if out[at] == nil {
			out[at] = state.Figures{}
		}
		out[at].Add(f)
	}
	return out
}

func rowOf(at cell, f state.Figures) api.StatsRow {
	r := api.StatsRow{
		Start: state.At(time.Unix(at.start, 0).UTC()), Name: at.name, Runs: f[state.CounterRuns], Reasons: f.Ends(),
		InputTokens: f[state.CounterInputTokens], OutputTokens: f[state.CounterOutputTokens],
		CacheReadTokens: f[state.CounterCacheReadTokens], CacheWriteTokens: f[state.CounterCacheWriteTokens],
		CacheExpiredTokens: f[state.CounterCacheExpired], CacheExpiredCostUSD: state.MicroUSD(f[state.CounterCacheExpiredCost]),
		CostUSD: state.MicroUSD(f[state.CounterCost]), ModelCalls: f[state.CounterModelCalls],
		ToolCalls: f[state.CounterToolCalls], ToolErrors: f[state.CounterToolErrors],
		Queue: latencyOf(f, state.QueueTime), Model: latencyOf(f, state.ModelTime), Tool: latencyOf(f, state.ToolTime),
	}
	for reason, n := range r.Reasons {
		if status, ok := reason.Status(); ok && status == state.Failed {
			r.Failed += n
		}
	}
	return r
}

func latencyOf(f state.Figures, kind state.DurationKind) api.Latency {
	h := f.Histogram(kind)
	l := api.Latency{Count: h.Count, SumMS: h.SumMS, Buckets: h.Buckets}
	if ms, ok := h.Quantile(0.5); ok {
		l.P50MS = &ms
	}
	if ms, ok := h.Quantile(0.95); ok {
		l.P95MS = &ms
	}
	return l
}
