package loop_test

import (
	"slices"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// When a fallback model takes over, the partial response of the failed call is withdrawn for good; the rest of
// the history stays (A12).
func TestModelFallback(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Tools: tools(plain), Model: agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}}
	r := start(t, def, state.Limits{})
	r.work(1, "kept")
	r.begin(loop.TurnBegan{})
	r.step(loop.ModelFailed{At: r.now(), Failed: 2, Err: &model.Error{Class: model.Overloaded, Message: "busy", Partial: "half a thou"}})
	r.wantReason(state.ModelFallback)
	if r.s.Fallback != 1 || r.s.FallbackBase != 3 || r.s.Turn != 1 {
		t.Fatalf("fallback %d, base %d, turn %d; want 1, 3, 1", r.s.Fallback, r.s.FallbackBase, r.s.Turn)
	}
	r.begin(loop.TurnBegan{})
	if msgs := wantEffect[loop.CallModel](r).Messages; len(msgs) != 3 || msgs[2].Parts[0].Content != "kept" {
		t.Fatalf("the second model reads %s", dump(msgs))
	}
	full := state.FullView(r.s.Log)
	if last := full[len(full)-1]; !last.Tombstoned || last.Text() != "half a thou" {
		t.Fatalf("the full view ends with %s", dump(last))
	}
	r.fail(model.Auth)
	r.wantReason(state.EndModelError)
	r.wantPaired()
}

// After a handoff the run uses the first model of the new agent, also if a fallback model has made the call.
func TestHandoffEndsFallback(t *testing.T) {
	t.Parallel()
	to := agent.Tool{Name: "to_billing", Kind: toolspec.Handoff, Own: tool.EncodeSettings(toolspec.Successor{Agent: "billing"})}
	def := agent.Definition{Tools: tools(to), Model: agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}}
	r := start(t, def, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.fail(model.Overloaded)
	r.wantReason(state.ModelFallback)
	r.begin(loop.TurnBegan{})
	r.respond(calls("to_billing"))
	r.step(loop.AgentFound{At: r.now(), Asked: wantEffect[loop.SwitchAgent](r), Agent: state.AgentRef{Name: "billing", Version: 1}})
	r.wantReason(state.HandedOff)
	if r.s.Fallback != 0 || r.s.FallbackBase != 0 {
		t.Errorf("after the handoff: fallback %d, base %d; want 0, 0", r.s.Fallback, r.s.FallbackBase)
	}
}

// A request that is itself invalid goes to no other model (A12).
func TestNoFallback(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Model: agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}}
	for class, want := range map[model.Class]state.Reason{
		model.InvalidRequest: state.EndModelError, model.ContentFilter: state.EndRefused, model.PromptTooLong: state.ReactiveCompactRetry,
	} {
		r := start(t, def, state.Limits{})
		r.begin(loop.TurnBegan{})
		r.fail(class)
		r.wantReason(want)
	}
}

// Each model before the last one is called once; only the last one is tried again, later and later.
func TestOnlyTheLastFallbackIsTriedAgain(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Model: agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}, {Provider: "scripted"}}}}
	r := start(t, def, state.Limits{})
	for want := range 2 {
		r.begin(loop.TurnBegan{})
		r.fail(model.Overloaded)
		r.wantReason(state.ModelFallback)
		if r.s.Fallback != want+1 || r.s.Failures != 0 {
			t.Fatalf("fallback %d after %d failures, want %d after 0", r.s.Fallback, r.s.Failures, want+1)
		}
	}
	var delays []time.Duration
	for range 5 {
		r.begin(loop.TurnBegan{})
		r.fail(model.Overloaded)
		r.wantReason(state.WaitingSchedule)
		delays = append(delays, r.s.ResumeAt.Sub(r.at))
		r.s.Status, r.s.Waiting = state.Queued, nil // as when the delay has passed
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}; !slices.Equal(delays, want) {
		t.Errorf("the last model is tried again after %v, want %v", delays, want)
	}
	r.begin(loop.TurnBegan{})
	r.fail(model.Overloaded)
	r.wantReason(state.EndModelError)
}
