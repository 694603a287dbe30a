package sqlitestore

import (
	"context"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// addFigures adds the figures of a run that ends to the sums of the current hour.
func (t *tx) addFigures(tenant string, series []state.FigureSeries) error {
	if len(series) == 0 {
		return nil
	}
	hour := t.now.UTC().Truncate(time.Hour)
	sums, err := t.figures(tenant, hour)
	if err != nil {
		return err
	}
	state.AddSeries(sums, series)
	for key, f := range sums {
		const put = `INSERT INTO figures VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET sums = excluded.sums`
		if err := t.exec(put, tenant, millis(hour), key.Agent, key.Model, f.String()); err != nil {
			return err
		}
	}
	return nil
}

// figures returns the sums of an hour.
func (t *tx) figures(tenant string, hour time.Time) (map[state.SeriesKey]state.Figures, error) {
	rows, err := t.sql.QueryContext(t.ctx, `SELECT agent, model, sums FROM figures WHERE tenant = ? AND hour = ?`, tenant, millis(hour))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	sums := map[state.SeriesKey]state.Figures{}
	for rows.Next() {
		var key state.SeriesKey
		var text string
		if err := rows.Scan(&key.Agent, &key.Model, &text); err != nil {
			return nil, err
		}
		if sums[key], err = state.ParseFigures(text); err != nil {
			return nil, err
		}
	}
	return sums, rows.Err()
}

// Figures implements state.HourlyFigures.
func (s *Store) Figures(ctx context.Context, tenant string, from, to time.Time) (hours []state.HourFigures, err error) {
	err = s.update(ctx, func(t *tx) error {
		for hour := state.FirstHour(from); hour.Before(to); hour = hour.Add(time.Hour) {
			sums, err := t.figures(tenant, hour)
			if err != nil {
				return err
			}
			h := state.HourFigures{Hour: hour}
			for key, f := range sums {
				h.Series = append(h.Series, state.FigureSeries{SeriesKey: key, Figures: f})
			}
			if len(h.Series) > 0 {
				hours = append(hours, h)
			}
		}
		return nil
	})
	return hours, err
}

// FoldFigures implements state.HourlyFigures: commits write to the sums, and this removes old ones.
func (s *Store) FoldFigures(ctx context.Context) error {
	return s.update(ctx, func(t *tx) error {
		return t.exec(`DELETE FROM figures WHERE hour < ?`, millis(t.now.Add(-state.FiguresLifetime)))
	})
}
