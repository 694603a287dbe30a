package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// foldPart is the number of entries of a stream that one fold reads at once.
	foldPart = 100

	// foldEvery is the pause of FoldFigures after another process has folded.
	foldEvery = 30 * time.Second

	// foldedLifetime bounds how long an hour keeps the positions up to which it has the streams:
	// a fold that began earlier has ended by then.
	foldedLifetime = 24 * time.Hour
)

// figures are the hourly figures. A commit that ends a run adds to the stream of the run's shard, on whose slot it is,
// and the time of the stream's entry is that of the commit. A fold adds entries to the sums of their hour, which are on
// the tenant's slot, and deletes them. For the case of a crash in between, the hour remembers for foldedLifetime which
// entries it has.
type figures struct{ store *Store }

// packFigures returns the figures of a commit as its script takes them: a series per line. Names
// have no control characters, see state.EndFigures.
func packFigures(c state.Commit) string {
	if !c.State.Status.Terminal() {
		return ""
	}
	lines := make([]string, len(c.Figures))
	for i, s := range c.Figures {
		lines[i] = seriesField(s.SeriesKey) + "\x00" + s.Figures.String()
	}
	return strings.Join(lines, "\n")
}

func seriesField(k state.SeriesKey) string { return k.Agent + "\x00" + k.Model }

func seriesOf(field string) state.SeriesKey {
	agent, model, _ := strings.Cut(field, "\x00")
	return state.SeriesKey{Agent: agent, Model: model}
}

// Figures implements state.HourlyFigures.
func (f *figures) Figures(ctx context.Context, tenant string, from, to time.Time) ([]state.HourFigures, error) {
	if err := f.fold(ctx); err != nil {
		return nil, err
	}
	pipe := f.store.rdb.Pipeline()
	var hours []state.HourFigures
	var found []*redis.MapStringStringCmd
	for hour := state.FirstHour(from); hour.Before(to); hour = hour.Add(time.Hour) {
		hours = append(hours, state.HourFigures{Hour: hour})
		found = append(found, pipe.HGetAll(ctx, f.store.keys.hour(tenant, hourName(hour))))
	}
	if len(found) == 0 {
		return nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read stored metrics: %w", err)
	}
	for i, c := range found {
		for field, text := range c.Val() {
			sums, err := state.ParseFigures(text)
			if err != nil {
				return nil, err
			}
			hours[i].Series = append(hours[i].Series, state.FigureSeries{SeriesKey: seriesOf(field), Figures: sums})
		}
	}
	return slices.DeleteFunc(hours, func(h state.HourFigures) bool { return len(h.Series) == 0 }), nil
}

func hourName(hour time.Time) string { return strconv.FormatInt(hour.Unix()/3600, 10) }

// FoldFigures implements state.HourlyFigures.
func (f *figures) FoldFigures(ctx context.Context) error {
	mine, err := f.store.rdb.SetNX(ctx, f.store.keys.fold(), "1", foldEvery).Result()
	if err != nil {
		return fmt.Errorf("aggregate stored metrics: %w", err)
	}
	if !mine {
		return nil
	}
	return f.fold(ctx)
}

// fold folds all that the streams have when it reads them.
func (f *figures) fold(ctx context.Context) error {
	shards := make([]int, state.Shards)
	for n := range shards {
		shards[n] = n
	}
	for len(shards) > 0 {
		pipe := f.store.rdb.Pipeline()
		found := make([]*redis.XMessageSliceCmd, len(shards))
		for i, n := range shards {
			found[i] = pipe.XRangeN(ctx, f.store.keys.figures[n], "-", "+", foldPart)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("read stored metrics: %w", err)
		}
		var more []int
		for i, n := range shards {
			entries := found[i].Val()
			if err := f.foldShard(ctx, n, entries); err != nil {
				return fmt.Errorf("aggregate stored metrics: %w", err)
			}
			if len(entries) == foldPart {
				more = append(more, n)
			}
		}
		shards = more
	}
	return nil
}

// foldShard folds entries of a shard's stream.
func (f *figures) foldShard(ctx context.Context, shard int, entries []redis.XMessage) error {
	if len(entries) == 0 {
		return nil
	}
	type group struct{ tenant, hour string }
	groups := map[group][]redis.XMessage{}
	ids := make([]string, len(entries))
	for i, e := range entries {
		tenant, _ := e.Values["t"].(string)
		ms, err := strconv.ParseInt(e.ID[:max(0, strings.IndexByte(e.ID, '-'))], 10, 64)
		if err != nil {
			return err
		}
		g := group{tenant, hourName(time.UnixMilli(ms))}
		groups[g] = append(groups[g], e)
		ids[i] = e.ID
	}
	for g, entries := range groups {
		if err := f.foldHour(ctx, shard, g.tenant, g.hour, entries); err != nil {
			return err
		}
	}
	return f.store.rdb.XDel(ctx, f.store.keys.figures[shard], ids...).Err()
}

// foldHour adds entries to the sums of their hour, without those that another fold has added.
func (f *figures) foldHour(ctx context.Context, shard int, tenant, hour string, entries []redis.XMessage) error {
	for len(entries) > 0 {
		sums := map[state.SeriesKey]state.Figures{}
		for _, e := range entries {
			text, _ := e.Values["f"].(string)
			series, err := unpackFigures(text)
			if err != nil {
				return err
			}
			for _, s := range series {
				if sums[s.SeriesKey] == nil {
					sums[s.SeriesKey] = state.Figures{}
				}
				sums[s.SeriesKey].Add(s.Figures)
			}
		}
		began, err := strconv.ParseInt(hour, 10, 64)
		if err != nil {
			return err
		}
		expiry := time.Unix(began*3600, 0).Add(state.FiguresLifetime)
		args := []any{shard, entries[0].ID, entries[len(entries)-1].ID, expiry.UnixMilli(), foldedLifetime.Milliseconds(), state.MaxSeries}
		for _, key := range slices.SortedFunc(maps.Keys(sums), compareSeries) {
			args = append(args, seriesField(key), sums[key].String())
		}
		r, err := figuresScript.call(ctx, f.store, []string{f.store.keys.hour(tenant, hour), f.store.keys.folded(tenant, hour)}, args...)
		if err != nil || r.str(figuresWord) == "ok" {
			return err
		}
		mark := r.str(figuresMark)
		entries = slices.DeleteFunc(slices.Clone(entries), func(e redis.XMessage) bool { return !after(e.ID, mark) })
	}
	return nil
}

func compareSeries(a, b state.SeriesKey) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Model, b.Model))
}

func unpackFigures(text string) ([]state.FigureSeries, error) {
	var all []state.FigureSeries
	for line := range strings.SplitSeq(text, "\n") {
		at := strings.LastIndexByte(line, 0)
		if at < 0 {
			return nil, fmt.Errorf("decode stored metrics: %q is not a series: %w", line, state.ErrDamaged)
		}
		sums, err := state.ParseFigures(line[at+1:])
		if err != nil {
			return nil, err
		}
		all = append(all, state.FigureSeries{SeriesKey: seriesOf(line[:at]), Figures: sums})
	}
	return all, nil
}

// after reports whether an id of a stream follows another.
func after(id, other string) bool {
	ms, n := streamID(id)
	otherMS, otherN := streamID(other)
	return ms > otherMS || ms == otherMS && n > otherN
}

func streamID(id string) (ms, n uint64) {
	first, second, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(first, 10, 64)
	n, _ = strconv.ParseUint(second, 10, 64)
	return ms, n
}
