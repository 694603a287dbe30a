package turn_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A result is durable before the turn of a noisy tenant waits for its place (I3).
func TestResultIsRecordedBeforeANoisyTurnWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		tenants := admission.NewTenants(10, 1)
		defer tenants.Enter("other", false).Leave() // tenants share the worker
		load := tenants.Enter(state.DefaultTenant, true)
		defer load.Leave()
		var works *admission.Turn
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
			works = tenants.Enter(state.DefaultTenant, true) // works while the tool does
			return tool.Result{Content: "PAID"}, nil
		})
		s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"))
		d, err := s.queue.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); s.taker("w1").Take(t.Context(), answered{d, s}, load) }()
		synctest.Wait()
		if !s.has("c1") || s.record().Version != 1 {
			t.Errorf("the turn waits, and the store has the result: %v; version %d", s.has("c1"), s.record().Version)
		}
		works.Leave()
		<-done
		if s.record().Version != 2 {
			t.Errorf("the run has version %d after the turn", s.record().Version)
		}
	})
}
