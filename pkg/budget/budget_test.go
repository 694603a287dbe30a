package budget_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func usd(n int64) *state.MicroUSD { m := state.MicroUSD(n); return &m }

func TestExhausted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		limits state.Limits
		usage  state.Usage
		turns  int
		want   state.Reason
		limit  string
	}{
		{"nothing set", state.Limits{}, state.Usage{OutputTokens: 1e9}, 1e6, "", ""},
		{"turns left", state.Limits{MaxTurns: 3}, state.Usage{}, 2, "", ""},
		{"turns", state.Limits{MaxTurns: 3}, state.Usage{}, 3, state.EndMaxTurns, budget.MaxTurns},
		{"output", state.Limits{OutputTokens: 10}, state.Usage{OutputTokens: 10}, 0, state.EndTokenBudget, budget.OutputTokens},
		{"total", state.Limits{TotalTokens: 10}, state.Usage{InputTokens: 5, OutputTokens: 5}, 0, state.EndTokenBudget, budget.TotalTokens},
		{"cost", state.Limits{CostUSD: 10}, state.Usage{CostUSD: usd(11)}, 0, state.EndCostBudget, budget.CostUSD},
		{"deadline", state.Limits{DeadlineAt: state.At(now)}, state.Usage{}, 0, state.EndDeadline, budget.Deadline},
		{"just before the deadline", state.Limits{DeadlineAt: state.At(now.Add(time.Millisecond))}, state.Usage{}, 0, "", ""},
		{"cost unknown", state.Limits{CostUSD: 1}, state.Usage{OutputTokens: 1e9}, 0, "", ""},
		{"cached tokens are not counted twice", state.Limits{TotalTokens: 10}, state.Usage{InputTokens: 9, CacheReadTokens: 9}, 0, "", ""},
		{"money before turns", state.Limits{CostUSD: 1, MaxTurns: 1}, state.Usage{CostUSD: usd(1)}, 1, state.EndCostBudget, budget.CostUSD},
	}
	for _, tt := range tests {
		got, limit, over := budget.Exhausted(tt.limits, tt.usage, tt.turns, now)
		if got != tt.want || limit != tt.limit || over != (tt.want != "") {
			t.Errorf("%s: Exhausted = %q, %q, %v; want %q, %q", tt.name, got, limit, over, tt.want, tt.limit)
		}
	}
}

// Each limit warns once (F5).
func TestWarnings(t *testing.T) {
	t.Parallel()
	l := state.Limits{OutputTokens: 100, TotalTokens: 1000, WarnAt: 0.5}
	got := budget.Warnings(l, state.Usage{OutputTokens: 60}, 0, now, nil)
	if len(got) != 1 || got[0].Limit != budget.OutputTokens || got[0].Fraction != 0.6 {
		t.Fatalf("Warnings = %v, want output_tokens at 0.6", got)
	}
	if again := budget.Warnings(l, state.Usage{OutputTokens: 70}, 0, now, []string{budget.OutputTokens}); len(again) != 0 {
		t.Fatalf("Warnings = %v, want none the second time", again)
	}
}

func TestWarningThreshold(t *testing.T) {
	t.Parallel()
	// Without its own threshold, a run is warned at 0.8.
	l := state.Limits{OutputTokens: 100, MaxTurns: 10}
	if got := budget.Warnings(l, state.Usage{OutputTokens: 79}, 9, now, nil); len(got) != 0 {
		t.Errorf("Warnings = %v at 79 of 100, want none", got)
	}
	if got := budget.Warnings(l, state.Usage{OutputTokens: 80}, 9, now, nil); len(got) != 1 {
		t.Errorf("Warnings = %v at 80 of 100, want one", got)
	}
}

func TestUsedFraction(t *testing.T) {
	t.Parallel()
	created := now.Add(-time.Minute)
	tests := []struct {
		name   string
		limits state.Limits
		usage  state.Usage
		turns  int
		want   float64
	}{
		{"no limits", state.Limits{}, state.Usage{OutputTokens: 5}, 5, 0},
		{"the tightest counts", state.Limits{MaxTurns: 10, OutputTokens: 100}, state.Usage{OutputTokens: 75}, 5, 0.75},
		{"passed by the last call", state.Limits{OutputTokens: 100}, state.Usage{OutputTokens: 150}, 0, 1.5},
		{"half the time", state.Limits{DeadlineAt: state.At(now.Add(time.Minute))}, state.Usage{}, 0, 0.5},
		{"long past", state.Limits{DeadlineAt: state.At(now.Add(-time.Second))}, state.Usage{}, 0, 1},
		{"past from the beginning", state.Limits{DeadlineAt: state.At(created)}, state.Usage{}, 0, 1},
	}
	for _, tt := range tests {
		if got := budget.UsedFraction(tt.limits, tt.usage, tt.turns, created, now); got != tt.want {
			t.Errorf("%s: UsedFraction = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The tightest limit says how many more calls of a size fit. Turns do not count, and a call without cost fits any
// number of times.
func TestCallsLeft(t *testing.T) {
	t.Parallel()
	call := state.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: usd(100)}
	for name, tt := range map[string]struct {
		limits  state.Limits
		used    state.Usage
		call    state.Usage
		want    int
		limited bool
	}{
		"no limits":             {state.Limits{}, state.Usage{}, call, 0, false},
		"turns only":            {state.Limits{MaxTurns: 3}, state.Usage{}, call, 0, false},
		"output":                {state.Limits{OutputTokens: 20}, state.Usage{OutputTokens: 5}, call, 3, true},
		"output, rounded down":  {state.Limits{OutputTokens: 20}, state.Usage{OutputTokens: 6}, call, 2, true},
		"the first is tightest": {state.Limits{OutputTokens: 10, TotalTokens: 1000, CostUSD: 5000}, state.Usage{}, call, 2, true},
		"the last is tightest":  {state.Limits{OutputTokens: 1000, TotalTokens: 1000, CostUSD: 100}, state.Usage{}, call, 1, true},
		"passed":                {state.Limits{TotalTokens: 10}, state.Usage{InputTokens: 30}, call, 0, true},
		"no call yet":           {state.Limits{OutputTokens: 10}, state.Usage{}, state.Usage{}, 0, false},
	} {
		if got, limited := budget.CallsLeft(tt.limits, tt.used, tt.call); got != tt.want || limited != tt.limited {
			t.Errorf("%s: CallsLeft = %d, %t; want %d, %t", name, got, limited, tt.want, tt.limited)
		}
	}
}

// A token budget that no answer could satisfy is refused.
func TestTokensCheck(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		b  budget.Tokens
		ok bool
	}{
		"defaults":           {budget.Tokens{OutputTokens: 1}, true},
		"the whole budget":   {budget.Tokens{OutputTokens: 1, StopAt: 1, MinDelta: 1, MinCount: 1}, true},
		"no budget":          {budget.Tokens{}, false},
		"below 0":            {budget.Tokens{OutputTokens: 1, StopAt: -0.1}, false},
		"above 1":            {budget.Tokens{OutputTokens: 1, StopAt: 1.1}, false},
		"not a number":       {budget.Tokens{OutputTokens: 1, StopAt: math.NaN()}, false},
		"negative min_delta": {budget.Tokens{OutputTokens: 1, MinDelta: -1}, false},
		"negative min_count": {budget.Tokens{OutputTokens: 1, MinCount: -1}, false},
	} {
		if err := tt.b.Check(); (err == nil) != tt.ok {
			t.Errorf("%s: Check = %v", name, err)
		}
	}
}

// If limits are checked before each call, the spend exceeds a limit by at most the last call, whatever calls
// cost (I10).
func TestSpendExceedsLimitByOneCall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := state.Limits{
			MaxTurns:     rapid.IntRange(1, 50).Draw(t, "max_turns"),
			OutputTokens: rapid.Int64Range(0, 1000).Draw(t, "output_tokens"),
			TotalTokens:  rapid.Int64Range(0, 1000).Draw(t, "total_tokens"),
			CostUSD:      state.MicroUSD(rapid.Int64Range(0, 1000).Draw(t, "cost")),
		}
		var u, before state.Usage
		turns := 0
		for {
			if _, _, over := budget.Exhausted(l, u, turns, now); over {
				break
			}
			if turns++; turns > 50 {
				t.Fatal("the run does not end")
			}
			before = u
			u = u.Add(state.Usage{
				InputTokens:  rapid.Int64Range(0, 300).Draw(t, "input"),
				OutputTokens: rapid.Int64Range(0, 300).Draw(t, "output"),
				CostUSD:      usd(rapid.Int64Range(0, 300).Draw(t, "cost")),
			})
		}
		// Without the last call, every limit holds.
		var cost state.MicroUSD
		if before.CostUSD != nil {
			cost = *before.CostUSD
		}
		if turns > l.MaxTurns ||
			l.OutputTokens > 0 && before.OutputTokens >= l.OutputTokens ||
			l.TotalTokens > 0 && before.InputTokens+before.OutputTokens >= l.TotalTokens ||
			l.CostUSD > 0 && cost >= l.CostUSD {
			t.Fatalf("the call after %+v and %d turns exceeded %+v", before, turns-1, l)
		}
	})
}
