package state

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// MaxSeries is the maximum number of series that a tenant has in an hour, OtherSeries included.
	MaxSeries = 100

	// FiguresLifetime is the lifetime of an hour's figures in a store, from the beginning of the hour.
	FiguresLifetime = 90 * 24 * time.Hour

	// MaxFiguresHours is the maximum number of hours that one call of HourlyFigures.Figures reads.
	MaxFiguresHours = 24

	maxSeriesName = 100 // bytes of an agent or a model
	maxRunSeries  = 8   // of one commit
)

// HourlyFigures sums up the runs that have ended, for each tenant, hour, agent and model. Commit
// adds to the sums and nothing subtracts from them: they outlive the runs.
type HourlyFigures interface {
	// Figures returns the sums of a tenant for the hours that begin in the interval [from, to), the oldest
	// first and without hours that have none. The sums include every commit that has returned, except in hours
	// whose FiguresLifetime is over. The order of an hour's series is not defined. The caller must pass an interval
	// of at most MaxFiguresHours hours.
	Figures(ctx context.Context, tenant string, from, to time.Time) ([]HourFigures, error)

	// FoldFigures adds to the sums the Figures that commits have so far stored elsewhere, such
	// as next to the run, so that the store no longer needs those. Workers call it once a
	// minute. It does nothing and returns nil if the store's commits write to the sums themselves,
	// and may do nothing if any process has called it in the last minute.
	// FoldFigures, a commit or the server removes the sums of an hour after FiguresLifetime.
	FoldFigures(ctx context.Context) error
}

// HourFigures are the sums of one hour of the store's clock. Hour is its beginning.
type HourFigures struct {
	Hour   time.Time
	Series []FigureSeries
}

// FirstHour returns the first hour that begins at from or later.
func FirstHour(from time.Time) time.Time {
	hour := from.UTC().Truncate(time.Hour)
	if hour.Before(from) {
		hour = hour.Add(time.Hour)
	}
	return hour
}

// SeriesKey identifies a series. Model is that of the latest response, or of the calls that are
// counted; it is empty for a run that has called no model.
type SeriesKey struct{ Agent, Model string }

// OtherSeries is the key of the series that takes what would exceed MaxSeries. No agent has an
// empty name.
var OtherSeries = SeriesKey{}

// FigureSeries are the sums of one series.
type FigureSeries struct {
	SeriesKey

	Figures Figures
}

// Figures are sums by the name of a counter. Counters that are not in it are 0.
type Figures map[string]int64

// The counters. Others begin with CounterEnd or belong to one of Durations.
const (
	CounterRuns             = "runs" // ends of runs: a run that continues after its end may end again
	CounterEnd              = "end." // and a terminal reason
	CounterInputTokens      = "input"
	CounterOutputTokens     = "output"
	CounterCacheReadTokens  = "cache_read"
	CounterCacheWriteTokens = "cache_write"
	CounterCacheExpired     = "cache_expired"      // tokens, see Usage.CacheExpiredTokens
	CounterCacheExpiredCost = "cache_expired_cost" // in millionths of a dollar, part of CounterCost
	CounterModelCalls       = "model_calls"
	CounterToolCalls        = "tool_calls"
	CounterToolErrors       = "tool_errors"
	CounterCost             = "cost" // in millionths of a dollar
)

// DurationKind is what a histogram measures.
type DurationKind string

// The kinds of durations.
const (
	// QueueTime is the time from the moment a run was queued to the claim of its turn. It includes
	// attempts that were lost. A turn that a signal or a timer has queued is not in it.
	QueueTime DurationKind = "queue"

	// ModelTime is the time of calls with a response, retries included.
	ModelTime DurationKind = "model"

	// ToolTime is the time of calls that a worker has made and that took a millisecond or more.
	ToolTime DurationKind = "tool"
)

// DurationKinds returns every kind.
func DurationKinds() []DurationKind { return []DurationKind{QueueTime, ModelTime, ToolTime} }

// bounds are the upper bounds of the buckets, in milliseconds; a last bucket has all above. A
// counter has the bound in its name, so that other bounds may be added.
var bounds = []int64{5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000}

// FigureBounds returns the upper bounds of the buckets of a Histogram, in milliseconds and inclusive. A
// Histogram has one bucket more, for durations above the last bound.
func FigureBounds() []int64 { return slices.Clone(bounds) }

// Histogram is the distribution of durations.
type Histogram struct {
	Count, SumMS int64
	Buckets      []int64 // see FigureBounds; a duration is in one of them
}

const beyond = "+"

// Observe adds a duration.
func (f Figures) Observe(kind DurationKind, ms int64) {
	ms = max(ms, 0)
	bound := beyond
	if i, _ := slices.BinarySearch(bounds, ms); i < len(bounds) {
		bound = strconv.FormatInt(bounds[i], 10)
	}
	f[string(kind)+bound]++
	f[string(kind)+"_ms"] += ms
}

// Histogram returns the durations of a kind.
func (f Figures) Histogram(kind DurationKind) Histogram {
	h := Histogram{SumMS: f[string(kind)+"_ms"], Buckets: make([]int64, len(bounds)+1)}
	for i := range h.Buckets {
		bound := beyond
		if i < len(bounds) {
			bound = strconv.FormatInt(bounds[i], 10)
		}
		h.Buckets[i] = f[string(kind)+bound]
		h.Count += h.Buckets[i]
	}
	return h
}

// Quantile returns the upper bound, in milliseconds, of the bucket that has the q-quantile of the
// durations, with q from 0 to 1, and false without durations. For a duration above the highest
// bound it returns that bound.
func (h Histogram) Quantile(q float64) (ms int64, ok bool) {
	if h.Count == 0 {
		return 0, false
	}
	left := max(1, int64(float64(h.Count)*q+0.999999))
	for i, n := range h.Buckets {
		if left -= n; left <= 0 {
			return bounds[min(i, len(bounds)-1)], true
		}
	}
	return bounds[len(bounds)-1], true
}

// Ends returns the number of ends by terminal reason.
func (f Figures) Ends() map[Reason]int64 {
	ends := map[Reason]int64{}
	for name, n := range f {
		if reason, ok := strings.CutPrefix(name, CounterEnd); ok {
			ends[Reason(reason)] = n
		}
	}
	return ends
}

// Add adds g to f.
func (f Figures) Add(g Figures) {
	for name, n := range g {
		f[name] += n
	}
}

// spend adds the tokens, calls and cost of u, without its tool calls.
func (f Figures) spend(u *Usage) {
	f.count(CounterInputTokens, u.InputTokens)
	f.count(CounterOutputTokens, u.OutputTokens)
	f.count(CounterCacheReadTokens, u.CacheReadTokens)
	f.count(CounterCacheWriteTokens, u.CacheWriteTokens)
	f.count(CounterCacheExpired, u.CacheExpiredTokens)
	f.count(CounterModelCalls, u.ModelCalls)
	if u.CostUSD != nil {
		f.count(CounterCost, int64(*u.CostUSD))
	}
	if u.CacheExpiredCostUSD != nil {
		f.count(CounterCacheExpiredCost, int64(*u.CacheExpiredCostUSD))
	}
}

func (f Figures) count(name string, n int64) {
	if n != 0 {
		f[name] += n
	}
}

// String returns f as text for ParseFigures: name=value, sorted and separated by spaces.
func (f Figures) String() string {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(append(append(b, name...), '='), f[name], 10)
	}
	return string(b)
}

// ParseFigures reads a text of Figures.String.
func ParseFigures(text string) (Figures, error) {
	f := Figures{}
	for counter := range strings.FieldsSeq(text) {
		name, value, ok := strings.Cut(counter, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("decode stored metrics: %q is not a counter: %w", counter, ErrDamaged)
		}
		f[name] = n
	}
	return f, nil
}

// AddSeries adds series to the sums of an hour. It adds to OtherSeries what would exceed MaxSeries.
func AddSeries(sums map[SeriesKey]Figures, more []FigureSeries) {
	for _, s := range more {
		if sums[s.SeriesKey] == nil {
			named := len(sums)
			if sums[OtherSeries] != nil {
				named--
			}
			if named >= MaxSeries-1 {
				s.SeriesKey = OtherSeries
			}
			if sums[s.SeriesKey] == nil {
				sums[s.SeriesKey] = Figures{}
			}
		}
		sums[s.SeriesKey].Add(s.Figures)
	}
}

// EndFigures returns what the end of s adds to the figures of its hour: the run, and everything in
// its log since it was submitted, or since its previous end. s must carry its log from its checkpoint on. EndFigures
// returns nil if s has not ended.
func EndFigures(s *State) []FigureSeries {
	n := len(s.Log)
	if !s.Status.Terminal() || n == 0 || s.Log[n-1].Type != EntryFinished {
		return nil
	}
	e := endingOf(&State{Agent: s.Agent, Log: s.Log[:n-1]})
	e.entry(&s.Log[n-1])
	last := e.current()
	last.count(CounterRuns, 1)
	last.count(CounterEnd+string(s.Transition.Reason), 1)
	return e.Series
}

// endingOf returns the figures of a log since the latest end of its run.
func endingOf(s *State) ending {
	from := len(s.Log)
	for from > 0 && s.Log[from-1].Type != EntryFinished {
		from--
	}
	e := ending{agent: seriesName(s.Agent)}
	if c := CheckpointOf(s.Log); c != nil && from == 0 {
		e.Ending = c.Ending
		e.Series = slices.Clone(e.Series)
		for i := range e.Series {
			e.Series[i].Figures = maps.Clone(e.Series[i].Figures)
		}
	}
	for i := range s.Log[from:] {
		e.entry(&s.Log[from+i])
	}
	return e
}

// Ending are the figures of a run since its latest end.
type Ending struct {
	Series []FigureSeries `json:"series,omitempty"`
	At     int            `json:"at,omitempty"`     // index of the series of the model that has responded last
	Began  bool           `json:"began,omitempty"`  // whether it has responded
	Queued *Time          `json:"queued,omitempty"` // the time at which the run was queued; nil if it waits, or if that is not known
}

// ending collects them.
type ending struct {
	Ending

	agent string
}

// current returns the figures of the latest model.
func (e *ending) current() Figures {
	if len(e.Series) == 0 {
		e.Series = append(e.Series, FigureSeries{SeriesKey{Agent: e.agent}, Figures{}})
	}
	return e.Series[e.At].Figures
}

// use makes a model the latest one. Figures before the first response belong to its model.
func (e *ending) use(model string) {
	model = seriesName(model)
	if !e.Began {
		e.current()
		e.Series[0].Model, e.Began = model, true
		return
	}
	if e.Series[e.At].Model == model {
		return
	}
	e.At = slices.IndexFunc(e.Series, func(s FigureSeries) bool { return s.Model == model })
	switch {
	case e.At >= 0:
	case len(e.Series) == maxRunSeries:
		e.At = len(e.Series) - 1
	default:
		e.At = len(e.Series)
		e.Series = append(e.Series, FigureSeries{SeriesKey{e.agent, model}, Figures{}})
	}
}

// entry adds an entry of a log.
func (e *ending) entry(x *Entry) {
	switch {
	case x.Type == EntryModel:
		if x.Message != nil {
			e.use(x.Message.Model)
		}
		if x.Attempt > 0 { // else the call was cut short
			e.current().Observe(ModelTime, x.DurationMS)
		}
	case x.Type == EntryTool && x.made():
		f := e.current()
		f[CounterToolCalls]++
		if x.IsError {
			f[CounterToolErrors]++
		}
		if x.DurationMS > 0 {
			f.Observe(ToolTime, x.DurationMS)
		}
	case x.transition():
		if e.Queued != nil && x.Type != EntrySubmitted {
			claimed := x.At.Add(-time.Duration(x.DurationMS) * time.Millisecond)
			e.current().Observe(QueueTime, claimed.Sub(e.Queued.Time).Milliseconds())
		}
		e.Queued = nil
		if x.Status == Queued {
			e.Queued = &x.At
		}
	}
	if x.Usage != nil {
		e.current().spend(x.Usage)
	}
}

// seriesName returns a name in a form that every store can keep: at most maxSeriesName bytes,
// without control characters.
func seriesName(name string) string {
	plain := len(name) <= maxSeriesName && utf8.ValidString(name) && !strings.ContainsFunc(name, control)
	if plain {
		return name
	}
	name = strings.Map(func(r rune) rune {
		if control(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
	for len(name) > maxSeriesName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

func control(r rune) bool { return r < ' ' || r == 0x7f }
