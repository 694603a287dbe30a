package gateway_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// Ended runs are counted in the figures, by agent and by model, and stay there after their deletion.
func TestStats(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("broken", `{model: {provider: scripted, responses: [{error: invalid_request}]}}`)
	s.put("gone", `{model: {provider: scripted, responses: [{text: "bye"}]}}`)
	s.put("adder", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1}], usage: {output_tokens: 3}}, {text: "it is 42"}]}, tools: [{name: add}]}`)
	for _, agent := range []string{"adder", "adder", "broken", "gone"} {
		code, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"`+agent+`","input":"x"}`)
		if code != http.StatusOK {
			t.Fatalf("run of %s = %d %v", agent, code, run)
		}
		if agent == "gone" {
			eventually(t, "the run is deleted", func() bool { return s.client.Delete(t.Context(), run["id"].(string)) == nil })
		}
	}
	s.call("POST", "/v1/runs", `{"agent":"slow","input":"x"}`) // has not ended

	stats, err := s.client.Stats(t.Context(), api.StatsQuery{By: "agent", Step: api.StepAll})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]api.StatsRow{}
	for _, r := range stats.Items {
		rows[r.Name] = r
	}
	adder, broken := rows["adder"], rows["broken"]
	if len(rows) != 3 || adder.Runs != 2 || adder.Failed != 0 || adder.Reasons[state.EndCompleted] != 2 || adder.ModelCalls != 4 || adder.ToolCalls != 2 || adder.OutputTokens != 6 {
		t.Errorf("figures of adder: %+v of %d rows", adder, len(rows))
	}
	if adder.Model.Count != 4 || adder.Queue.Count != 4 || adder.Model.P50MS == nil || len(adder.Model.Buckets) != len(stats.BoundsMS)+1 {
		t.Errorf("latency of adder: model %+v, queue %+v; want four of each", adder.Model, adder.Queue)
	}
	if broken.Runs != 1 || broken.Failed != 1 || broken.Reasons[state.EndModelError] != 1 || broken.Model.Count != 0 || broken.Model.P50MS != nil {
		t.Errorf("figures of broken: %+v", broken)
	}
	if gone := rows["gone"]; gone.Runs != 1 {
		t.Errorf("figures of a deleted run: %+v", gone)
	}

	one, err := s.client.Stats(t.Context(), api.StatsQuery{Agent: "adder", Step: api.StepDay, From: time.Now().Add(-50 * 24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if n := runsIn(one); n != 2 || one.Items[0].Name != "" {
		t.Errorf("figures of one agent without by: %+v, want 2 runs", one.Items)
	}
	models, err := s.client.Stats(t.Context(), api.StatsQuery{By: "model"})
	if err != nil {
		t.Fatal(err)
	}
	none := int64(0)
	for _, r := range models.Items {
		if r.Name == api.StatsNone {
			none += r.Runs
		}
	}
	if n := runsIn(models); n != 4 || none != 1 {
		t.Errorf("%d runs by model, %d without one; want 4 and 1: %+v", n, none, models.Items)
	}
	top, err := s.client.Stats(t.Context(), api.StatsQuery{By: "agent", Step: api.StepAll, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Items) != 2 || top.Items[0].Name != api.StatsOther || top.Items[0].Runs != 2 || top.Items[1].Name != "adder" {
		t.Errorf("the largest agent and the rest: %+v", top.Items)
	}
	old, err := s.client.Stats(t.Context(), api.StatsQuery{To: time.Now().Add(-48 * time.Hour)})
	if err != nil || len(old.Items) != 0 {
		t.Errorf("figures of another day: %+v, %v", old.Items, err)
	}
	if old.Step != api.StepHour {
		t.Errorf("the default step is %q", old.Step)
	}
}

// hourly is a store with a run in each hour.
type hourly struct{ state.Store }

func (hourly) Figures(_ context.Context, _ string, from, to time.Time) (all []state.HourFigures, _ error) {
	for at := state.FirstHour(from); at.Before(to); at = at.Add(time.Hour) {
		all = append(all, state.HourFigures{Hour: at, Series: []state.FigureSeries{{SeriesKey: state.SeriesKey{Agent: "a"}, Figures: state.Figures{state.CounterRuns: 1}}}})
	}
	return all, nil
}

// The figures of an interval have each of its hours once, however long it is. Days begin at midnight, except the first.
func TestStatsOfManyHours(t *testing.T) {
	t.Parallel()
	s := (&deployment{t: t}).over(hourly{memstore.New(memstore.Config{})}, membus.New())
	from := time.Date(2026, 1, 1, 22, 0, 0, 0, time.UTC)
	for step, want := range map[string][]int64{api.StepHour: slices.Repeat([]int64{1}, 51), api.StepDay: {2, 24, 24, 1}, api.StepAll: {51}} {
		stats, err := s.client.Stats(t.Context(), api.StatsQuery{From: from.Add(time.Minute), To: from.Add(50*time.Hour + time.Minute), By: "agent", Step: step})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for i, r := range stats.Items {
			got = append(got, r.Runs)
			if start := r.Start.Time; i == 0 && !start.Equal(from) || i > 0 && step == api.StepDay && start.Hour() != 0 {
				t.Errorf("step %s: row %d begins at %v", step, i, start)
			}
		}
		if !slices.Equal(got, want) || !stats.From.Equal(from) || !stats.To.Equal(from.Add(51*time.Hour)) {
			t.Errorf("step %s: runs %v from %v to %v, want %v", step, got, stats.From, stats.To, want)
		}
		if stats.Step != step || stats.By != "agent" {
			t.Errorf("step %s by agent: the answer is with step %q by %q", step, stats.Step, stats.By)
		}
	}
}

func runsIn(s api.Stats) (n int64) {
	for _, r := range s.Items {
		n += r.Runs
	}
	return n
}

// Invalid parameters are refused, with the valid values.
func TestStatsRefuses(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for query, want := range map[string]string{
		"by=tenant":         "use agent or model",
		"step=minute":       "use hour, day or all",
		"from=yesterday":    "RFC 3339",
		"limit=51":          "1 to 50",
		"limit=x":           "1 to 50",
		"agent=":            "omit it",
		"group=agent":       "use from, to",
		"by=agent&by=model": "give it once",
		"from=2026-01-01T00:00:00Z&to=2026-01-09T00:00:00Z":          "set step=day",
		"from=2026-01-01T00:00:00Z&to=2026-05-01T00:00:00Z&step=all": "at most 2160",
		"from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z":          "choose an earlier from or a later to",
	} {
		code, _, p := s.call("GET", "/v1/stats?"+query, "")
		if detail, _ := p["detail"].(string); code != http.StatusBadRequest || !strings.Contains(detail, want) {
			t.Errorf("%s = %d %v, want 400 with %q", query, code, p, want)
		}
	}
}
