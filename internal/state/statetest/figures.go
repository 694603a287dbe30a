package statetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// recent returns a tenant's figures in the hours around now, and checks that no hour and no series appears
// twice.
func (s *suite) recent(t *testing.T, tenant string) map[state.SeriesKey]state.Figures {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hours, err := s.Figures(t.Context(), tenant, now.Add(-2*time.Hour), now.Add(time.Hour))
	if err != nil {
		t.Fatalf("Figures: %v", err)
	}
	all := map[state.SeriesKey]state.Figures{}
	last := time.Time{}
	for _, h := range hours {
		if !h.Hour.Equal(h.Hour.Truncate(time.Hour)) || !h.Hour.After(last) || len(h.Series) == 0 || len(h.Series) > state.MaxSeries {
			t.Errorf("hour %v after %v has %d series", h.Hour, last, len(h.Series))
		}
		last = h.Hour
		seen := map[state.SeriesKey]bool{}
		for _, series := range h.Series {
			if seen[series.SeriesKey] {
				t.Errorf("%v has series %+v twice", h.Hour, series.SeriesKey)
			}
			seen[series.SeriesKey] = true
			if all[series.SeriesKey] == nil {
				all[series.SeriesKey] = state.Figures{}
			}
			all[series.SeriesKey].Add(series.Figures)
		}
	}
	return all
}

func figuresOf(agent, model string, f state.Figures) []state.FigureSeries {
	return []state.FigureSeries{{SeriesKey: state.SeriesKey{Agent: agent, Model: model}, Figures: f}}
}

// end ends a run, with figures, and repeats the commit.
func (s *suite) end(t *testing.T, id state.RunID, version int64, repeat int, figures []state.FigureSeries) {
	t.Helper()
	c := s.mustClaim(t, id, version)
	commit := commitOf(c, move(t, *c.State, state.EndCompleted, state.Entry{}))
	commit.Figures = figures
	for range 1 + repeat {
		if _, err := s.Commit(t.Context(), c.Lease, commit); err != nil {
			t.Fatalf("Commit: %v", err)
		}
	}
}

// A commit that ends a run adds its figures once, and they outlive the run. Other commits add nothing.
func testFigures(t *testing.T, s *suite) {
	if have := s.recent(t, "default"); len(have) != 0 {
		t.Fatalf("figures before the first run = %v", have)
	}
	one := state.Figures{state.CounterRuns: 1, state.CounterEnd + "completed": 1, state.CounterOutputTokens: 7}
	one.Observe(state.ModelTime, 130)
	key := state.SeriesKey{Agent: "a", Model: "m/1 é"}
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	early := commitOf(c, move(t, *c.State, state.NextTurn, state.Entry{}))
	early.Figures = figuresOf("a", "m", one)
	if _, err := s.Commit(t.Context(), c.Lease, early); err != nil {
		t.Fatal(err)
	}
	late := commitOf(c, move(t, *c.State, state.EndCompleted, state.Entry{}))
	late.ID, late.Figures = "late", figuresOf("a", "m", one)
	if _, err := s.Commit(t.Context(), c.Lease, late); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("Commit without a lease = %v, want ErrFenced", err)
	}
	if have := s.recent(t, "default"); len(have) != 0 {
		t.Errorf("figures of a run in flight = %v", have)
	}
	s.end(t, run.ID, 2, 2, figuresOf(key.Agent, key.Model, one))
	if have := s.recent(t, "default"); len(have) != 1 || have[key].String() != one.String() {
		t.Errorf("the statistics after a repeated Commit = %v, want %v, counted once", have, one)
	}
	if have := s.recent(t, "another"); len(have) != 0 {
		t.Errorf("figures of another tenant = %v", have)
	}

	// A message continues the run, which ends again.
	if _, err := s.Signal(t.Context(), run.ID, message("s1", "more"), long); err != nil {
		t.Fatal(err)
	}
	c = s.mustClaim(t, run.ID, 3)
	s.commit(t, c, state.UserMessage, state.Entry{})
	again := s.mustClaim(t, run.ID, 4)
	commit := commitOf(again, move(t, *again.State, state.EndMaxTurns, state.Entry{}))
	commit.Figures = figuresOf(key.Agent, key.Model, state.Figures{state.CounterRuns: 1, state.CounterEnd + "max_turns": 1})
	if _, err := s.Commit(t.Context(), again.Lease, commit); err != nil {
		t.Fatal(err)
	}
	second := s.create(t)
	s.end(t, second.ID, 1, 0, figuresOf(key.Agent, key.Model, one))
	for range 2 {
		if err := s.FoldFigures(t.Context()); err != nil {
			t.Fatalf("FoldFigures: %v", err)
		}
	}
	for _, id := range []state.RunID{run.ID, second.ID} {
		if err := s.Delete(t.Context(), id); err != nil && !errors.Is(err, state.ErrNotFound) {
			t.Fatal(err)
		}
	}
	// The figures of this end are not folded before the run is deleted.
	third := s.create(t)
	s.end(t, third.ID, 1, 1, figuresOf(key.Agent, key.Model, one))
	if err := s.Delete(t.Context(), third.ID); err != nil {
		t.Fatal(err)
	}
	have := s.recent(t, "default")
	got := have[key]
	if len(have) != 1 || got[state.CounterRuns] != 4 || got[state.CounterOutputTokens] != 21 || got.Ends()[state.EndMaxTurns] != 1 || got.Histogram(state.ModelTime).Count != 3 {
		t.Errorf("the statistics of four runs, after Delete of the runs = %v, want one series with 4 runs, 21 output tokens, 1 end max_turns and 3 model times", have)
	}
	s.checkBounds(t)
}

// checkBounds requires a range to have the hours that begin in it, without its end.
func (s *suite) checkBounds(t *testing.T) {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hours, err := s.Figures(t.Context(), "default", now.Add(-2*time.Hour), now.Add(time.Hour))
	if err != nil || len(hours) == 0 {
		t.Fatalf("Figures = %v, %v", hours, err)
	}
	last := hours[len(hours)-1].Hour
	for _, c := range []struct {
		from, to time.Duration // after the beginning of the hour
		want     int
	}{{0, time.Hour, 1}, {0, time.Second, 1}, {0, 0, 0}, {-time.Minute, 0, 0}, {-time.Minute, time.Second, 1}, {time.Second, time.Hour, 0}} {
		got, err := s.Figures(t.Context(), "default", last.Add(c.from), last.Add(c.to))
		if err != nil || len(got) != c.want || c.want == 1 && !got[0].Hour.Equal(last) {
			t.Errorf("Figures from %s to %s after the beginning of an hour = %v, %v, want %d hours", c.from, c.to, got, err, c.want)
		}
	}
}

// Series beyond the maximum are added to one for the rest.
func testFiguresLimit(t *testing.T, s *suite) {
	const rest = 7
	for _, base := range []int{0, state.MaxSeries / 2} {
		run := s.create(t)
		var figures []state.FigureSeries
		for i := range state.MaxSeries/2 + base*2*rest/state.MaxSeries {
			figures = append(figures, figuresOf(fmt.Sprintf("agent-%03d", base+i), "m", state.Figures{state.CounterRuns: 1})...)
		}
		s.end(t, run.ID, 1, 0, figures)
	}
	have := s.recent(t, "default")
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, f := range have {
		total += f[state.CounterRuns]
	}
	if total != state.MaxSeries+rest {
		t.Errorf("all series together have %d ends, want %d", total, state.MaxSeries+rest)
	}
	hours, err := s.Figures(t.Context(), "default", now.Add(-2*time.Hour), now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if len(hours) == 1 && (len(have) != state.MaxSeries || have[state.OtherSeries][state.CounterRuns] != rest+1) {
		t.Errorf("the statistics of one hour have %d series, with the counters %v in OtherSeries; want %d series, and %d runs in OtherSeries", len(have), have[state.OtherSeries], state.MaxSeries, rest+1)
	}
}

// Runs that end during reads and folds are each counted once.
func testFiguresRace(t *testing.T, s *suite) {
	const runs = 40
	one := figuresOf("a", "m", state.Figures{state.CounterRuns: 1})
	var g errgroup.Group
	for range runs {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		commit := commitOf(c, move(t, *c.State, state.EndCompleted, state.Entry{}))
		commit.Figures = one
		g.Go(func() error {
			for range 2 {
				if _, err := s.Commit(t.Context(), c.Lease, commit); err != nil {
					return err
				}
			}
			_, err := s.Figures(t.Context(), "default", time.Now().Add(-time.Hour), time.Now())
			return errors.Join(err, s.FoldFigures(t.Context()))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if have := s.recent(t, "default"); have[state.SeriesKey{Agent: "a", Model: "m"}][state.CounterRuns] != runs {
		t.Errorf("figures of %d runs = %v", runs, have)
	}
}
