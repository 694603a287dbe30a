package budget_test

import (
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
	}{
		{"nothing set", state.Limits{}, state.Usage{OutputTokens: 1e9}, 1e6, ""},
		{"turns left", state.Limits{MaxTurns: 3}, state.Usage{}, 2, ""},
		{"turns", state.Limits{MaxTurns: 3}, state.Usage{}, 3, state.EndMaxTurns},
		{"output", state.Limits{OutputTokens: 10}, state.Usage{OutputTokens: 10}, 0, state.EndTokenBudget},
		{"total", state.Limits{TotalTokens: 10}, state.Usage{InputTokens: 5, OutputTokens: 5}, 0, state.EndTokenBudget},
		{"cost", state.Limits{CostUSD: 10}, state.Usage{CostUSD: usd(11)}, 0, state.EndCostBudget},
		{"deadline", state.Limits{DeadlineAt: state.At(now)}, state.Usage{}, 0, state.EndDeadline},
	}
	for _, tt := range tests {
		if got, _, over := budget.Exhausted(tt.limits, tt.usage, tt.turns, now); got != tt.want || over != (tt.want != "") {
			t.Errorf("%s: Exhausted = %q, %v; want %q", tt.name, got, over, tt.want)
		}
	}
}

// F5: each limit warns once.
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

// I10: whatever a call costs, spend passes the limit by at most that one call.
func TestSpendPassesLimitByOneCall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := state.Limits{OutputTokens: rapid.Int64Range(1, 1000).Draw(t, "limit")}
		var u state.Usage
		for {
			if _, _, over := budget.Exhausted(l, u, 0, now); over {
				break
			}
			cost := rapid.Int64Range(1, 300).Draw(t, "cost")
			before := u.OutputTokens
			u.OutputTokens += cost
			if before >= l.OutputTokens {
				t.Fatalf("a call was made with %d of %d spent", before, l.OutputTokens)
			}
		}
	})
}
