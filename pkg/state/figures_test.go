package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ran returns the log of a run and the resulting state.
func ran(t *testing.T, steps ...func(state.State, time.Time) state.State) *state.State {
	t.Helper()
	s := state.State{ID: "run_1", Agent: "a", Tenant: "default", Priority: state.Normal}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, step := range steps {
		s = step(s, at)
		at = at.Add(time.Second)
	}
	return &s
}

func moved(t *testing.T, r state.Reason, tookMS int64) func(state.State, time.Time) state.State {
	t.Helper()
	return func(s state.State, at time.Time) state.State {
		next, err := s.Move(r, state.Entry{At: state.At(at), Detail: "x"})
		if err != nil {
			t.Fatal(err)
		}
		next.Log[len(next.Log)-1].DurationMS = tookMS
		return next
	}
}

func answered(model string, tookMS, tokens int64) func(state.State, time.Time) state.State {
	return func(s state.State, at time.Time) state.State {
		cost := state.MicroUSD(tokens * 10)
		return s.Append(state.Entry{
			Type: state.EntryModel, Turn: s.Turn + 1, Attempt: 1, At: state.At(at), DurationMS: tookMS,
			Message: &state.Message{Role: state.RoleAssistant, Model: model}, Usage: &state.Usage{ModelCalls: 1, OutputTokens: tokens, CostUSD: &cost},
		})
	}
}

func called(tookMS int64, failed bool) func(state.State, time.Time) state.State {
	return func(s state.State, at time.Time) state.State {
		m := state.ToolResult("c", "x", failed)
		return s.Append(state.Entry{Type: state.EntryTool, At: state.At(at), CallID: "c", Name: "t", Message: &m, IsError: failed, DurationMS: tookMS})
	}
}

// A run adds to the figures of the hour of its end: usage by the model that was used, the rest by the last one.
func TestEndFigures(t *testing.T) {
	t.Parallel()
	s := ran(t,
		moved(t, state.Submitted, 0),
		answered("small", 40, 5), called(700, true), called(0, false),
		moved(t, state.NextTurn, 2500), // at 4 s; so claimed at 1.5 s, and queued at 0 s
		answered("large", 3000, 7),
		moved(t, state.EndMaxTurns, 1000), // at 6 s; claimed at 5 s, queued at 4 s
	)
	got := map[string]string{}
	for _, series := range state.EndFigures(s) {
		got[series.Agent+" "+series.Model] = series.Figures.String()
	}
	want := map[string]string{
		"a small": "cost=50 model50=1 model_calls=1 model_ms=40 output=5 queue2000=1 queue_ms=1500 tool1000=1 tool_calls=2 tool_errors=1 tool_ms=700",
		"a large": "cost=70 end.max_turns=1 model5000=1 model_calls=1 model_ms=3000 output=7 queue1000=1 queue_ms=1000 runs=1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A run that continues after its end adds only what came after that.
func TestEndFiguresAgain(t *testing.T) {
	t.Parallel()
	s := ran(t,
		moved(t, state.Submitted, 0), answered("m", 40, 5), moved(t, state.EndCompleted, 0),
		moved(t, state.UserMessage, 0), answered("m", 40, 7), moved(t, state.EndCompleted, 0),
	)
	series := state.EndFigures(s)
	if len(series) != 1 || series[0].Figures[state.CounterOutputTokens] != 7 || series[0].Figures[state.CounterRuns] != 1 {
		t.Errorf("the second end adds %v, want 7 tokens and an end", series)
	}
}

// Only an end adds figures.
func TestEndFiguresInFlight(t *testing.T) {
	t.Parallel()
	if series := state.EndFigures(ran(t, moved(t, state.Submitted, 0), answered("m", 1, 1), moved(t, state.NextTurn, 0))); series != nil {
		t.Errorf("a run in flight adds %v", series)
	}
}

// A wait for a person does not count as time in the queue; the time after it does not either.
func TestEndFiguresWait(t *testing.T) {
	t.Parallel()
	s := ran(t,
		moved(t, state.Submitted, 0), moved(t, state.WaitingHumanInput, 500),
		moved(t, state.Answered, 0), moved(t, state.EndCompleted, 1000),
	)
	h := state.EndFigures(s)[0].Figures.Histogram(state.QueueTime)
	if h.Count != 2 || h.SumMS != 500 {
		t.Errorf("times in the queue: %+v, want 500 ms and 0 ms", h)
	}
}

// Model names are external input: series contain them shortened and without control characters. The number of
// models of one run is bounded.
func TestEndFiguresNames(t *testing.T) {
	t.Parallel()
	steps := []func(state.State, time.Time) state.State{moved(t, state.Submitted, 0), answered("a\x00b\nc"+strings.Repeat("ü", 100), 1, 1)}
	for i := range 20 {
		steps = append(steps, answered(fmt.Sprint("m", i), 1, 1))
	}
	series := state.EndFigures(ran(t, append(steps, moved(t, state.EndCompleted, 0))...))
	total := int64(0)
	for _, s := range series {
		total += s.Figures[state.CounterOutputTokens]
	}
	if name := series[0].Model; !strings.HasPrefix(name, "a?b?cü") || len(name) > 100 {
		t.Errorf("model %q", name)
	}
	if len(series) != 8 || total != 21 {
		t.Errorf("%d series with %d tokens, want 8 with 21", len(series), total)
	}
}

// Encoded figures decode to the same figures.
func TestFiguresText(t *testing.T) {
	t.Parallel()
	f := state.Figures{state.CounterRuns: 3, state.CounterEnd + "completed": 2}
	f.Observe(state.ToolTime, 1<<40)
	back, err := state.ParseFigures(f.String())
	if diff := cmp.Diff(f, back); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, text := range []string{"runs", "runs=x", "=;"} {
		if _, err := state.ParseFigures(text); !errors.Is(err, state.ErrDamaged) {
			t.Errorf("ParseFigures(%q) = %v, want ErrDamaged", text, err)
		}
	}
}

// A quantile is the bound of the bucket that contains it.
func TestQuantile(t *testing.T) {
	t.Parallel()
	f := state.Figures{}
	if _, ok := f.Histogram(state.ModelTime).Quantile(0.5); ok {
		t.Error("there is a median of no values")
	}
	for _, ms := range []int64{1, 3, 40, 90, 4000} {
		f.Observe(state.ModelTime, ms)
	}
	h := f.Histogram(state.ModelTime)
	for q, want := range map[float64]int64{0: 5, 0.4: 5, 0.5: 50, 0.8: 100, 0.95: 5000, 1: 5000} {
		if ms, ok := h.Quantile(q); !ok || ms != want {
			t.Errorf("quantile %v = %d, want %d", q, ms, want)
		}
	}
	f.Observe(state.ModelTime, 1<<40)
	if ms, _ := f.Histogram(state.ModelTime).Quantile(1); ms != 600_000 {
		t.Errorf("quantile above the last bound = %d", ms)
	}
}
