package worker_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The cost of a run uses the worker's own prices.
func TestOwnPrices(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	cfg.Prices = model.Prices{"scripted": {Input: 1_250_000, Output: 10_000_000}}
	s.work(cfg)
	id := s.submit(state.Limits{}, nil, model.Scripted{Text: "hi", Usage: &model.ScriptedUsage{InputTokens: 1000, OutputTokens: 100}})
	if st := s.awaitReason(id, state.EndCompleted); st.Usage.CostUSD == nil || *st.Usage.CostUSD != 2250 {
		t.Errorf("cost = %v, want 2250 micro-dollars", st.Usage.CostUSD)
	}
}

// Absurd token counts are bounded, so that sums neither overflow nor shrink.
func TestAbsurdUsage(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	id := s.submit(state.Limits{}, nil, model.Scripted{Text: "hi", Usage: &model.ScriptedUsage{InputTokens: 5_000_000_000, OutputTokens: 7}})
	if u := s.awaitReason(id, state.EndCompleted).Usage; u.InputTokens != 1_000_000_000 || u.OutputTokens != 7 {
		t.Errorf("usage = %d and %d tokens, want a billion and 7", u.InputTokens, u.OutputTokens)
	}
}
