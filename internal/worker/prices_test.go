package worker_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The worker's own prices say what a run has cost.
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
