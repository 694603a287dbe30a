package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// hour identifies the figures of a tenant in an hour.
type hour struct {
	tenant string
	began  int64 // seconds since 1970
}

// addFigures adds the figures of a commit; the caller holds s.mu.
func (s *Store) addFigures(c state.Commit) {
	if !c.State.Status.Terminal() || len(c.Figures) == 0 {
		return
	}
	now := s.now()
	at := hour{c.State.Tenant, now.UTC().Truncate(time.Hour).Unix()}
	if s.figures[at] == nil {
		oldest := now.Add(-state.FiguresLifetime).Unix()
		maps.DeleteFunc(s.figures, func(h hour, _ map[state.SeriesKey]state.Figures) bool { return h.began < oldest })
		s.figures[at] = map[state.SeriesKey]state.Figures{}
	}
	state.AddSeries(s.figures[at], c.Figures)
}

// Figures implements state.HourlyFigures.
func (s *Store) Figures(ctx context.Context, tenant string, from, to time.Time) ([]state.HourFigures, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var hours []state.HourFigures
	for began := state.FirstHour(from); began.Before(to); began = began.Add(time.Hour) {
		sums := s.figures[hour{tenant, began.Unix()}]
		if sums == nil {
			continue
		}
		h := state.HourFigures{Hour: began}
		for key, f := range sums {
			h.Series = append(h.Series, state.FigureSeries{SeriesKey: key, Figures: maps.Clone(f)})
		}
		hours = append(hours, h)
	}
	return slices.Clip(hours), nil
}

// FoldFigures implements state.HourlyFigures. Commits write to the sums.
func (*Store) FoldFigures(ctx context.Context) error { return ctx.Err() }

func copyFigures(all map[hour]map[state.SeriesKey]state.Figures) map[hour]map[state.SeriesKey]state.Figures {
	c := make(map[hour]map[state.SeriesKey]state.Figures, len(all))
	for at, sums := range all {
		c[at] = make(map[state.SeriesKey]state.Figures, len(sums))
		for key, f := range sums {
			c[at][key] = maps.Clone(f)
		}
	}
	return c
}
