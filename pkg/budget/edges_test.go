package budget_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A limit warns as soon as the share is reached, not only beyond it.
func TestWarningAtTheShare(t *testing.T) {
	t.Parallel()
	for tokens, want := range map[int64]int{79: 0, 80: 1, 81: 1} {
		if got := budget.Warnings(state.Limits{OutputTokens: 100}, state.Usage{OutputTokens: tokens}, 0, now, nil); len(got) != want {
			t.Errorf("%d of 100 tokens: warnings %v, want %d", tokens, got, want)
		}
	}
}

// A limit that is not set, or that only the clock measures, counts as used up when it ends a run.
func TestFractionOfOtherLimits(t *testing.T) {
	t.Parallel()
	l := state.Limits{OutputTokens: 100}
	for name, want := range map[string]float64{budget.OutputTokens: 0.5, budget.TotalTokens: 1, budget.Deadline: 1} {
		if got := budget.FractionOf(name, l, state.Usage{OutputTokens: 50}, 0); got != want {
			t.Errorf("FractionOf(%s) = %v, want %v", name, got, want)
		}
	}
}

// The share at which a budget is used up, and what counts as little, are those of the agent.
func TestJudgeWithSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of     budget.Tokens
		before state.Nudges
		total  int64
		want   budget.Verdict
	}{
		"below the share":            {budget.Tokens{OutputTokens: 100, StopAt: 0.5}, state.Nudges{}, 49, budget.GoOn},
		"at the share":               {budget.Tokens{OutputTokens: 100, StopAt: 0.5}, state.Nudges{}, 50, budget.Enough},
		"below the default":          {budget.Tokens{OutputTokens: 100}, state.Nudges{}, 89, budget.GoOn},
		"at the default":             {budget.Tokens{OutputTokens: 100}, state.Nudges{}, 90, budget.Enough},
		"twice little":               {budget.Tokens{OutputTokens: 1000, MinDelta: 10, MinCount: 2}, state.Nudges{Count: 2, LastDelta: 9, LastTotal: 100}, 109, budget.Diminishing},
		"little after much":          {budget.Tokens{OutputTokens: 1000, MinDelta: 10, MinCount: 2}, state.Nudges{Count: 2, LastDelta: 10, LastTotal: 100}, 109, budget.GoOn},
		"much after little":          {budget.Tokens{OutputTokens: 1000, MinDelta: 10, MinCount: 2}, state.Nudges{Count: 2, LastDelta: 9, LastTotal: 100}, 110, budget.GoOn},
		"twice little, but too soon": {budget.Tokens{OutputTokens: 1000, MinDelta: 10, MinCount: 2}, state.Nudges{Count: 1, LastDelta: 9, LastTotal: 100}, 109, budget.GoOn},
	} {
		if _, got := c.of.Judge(c.before, c.total); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
	}
}
