package loop_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/loop/looptest"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Every loop keeps its general properties in random histories (I2, I5, A1, A2, A4).
func TestProperties(t *testing.T) {
	t.Parallel()
	all := tools(
		plain, client, gated, agent.Tool{Name: "once", MaxCalls: 1}, agent.Tool{Name: "safe", Idempotent: true},
		agent.Tool{Name: "later", Async: true}, agent.Tool{Name: "strict", Schema: json.RawMessage(`{"type":"object","required":["amount"]}`)},
		agent.Tool{Name: "helper", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "helper"})},
		agent.Tool{Name: "over", Kind: toolspec.Handoff, Own: tool.EncodeSettings(toolspec.Successor{Agent: "other"})},
	)
	hooks := &agent.Hooks{PreTool: []agent.Hook{{Kind: hookspec.Go, Own: tool.EncodeSettings(hookspec.Function{Name: "h"}), Tools: []string{"t", "pick"}}}, Stop: watched, Input: watched, MaxStopBlocks: 2}
	two := agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}
	low := 0.1
	value := json.RawMessage(`{"type":["object","number"]}`)
	definitions := []agent.Definition{
		{Tools: all},
		{Tools: all, Hooks: hooks, Model: two, Instructions: "be good"},
		{Tools: all, Loop: agent.Loop{Converse: true, ToolLoopThreshold: 2}},
		{Tools: all, Compaction: &agent.Compaction{At: 0.3, Window: 1000, Keep: 1, Summarize: true}},
		{Tools: append(slices.Clip(all), agent.Tool{Name: "read", Kind: toolspec.Results}), Compaction: &agent.Compaction{At: 0.2, Window: 1000, Keep: 1}},
		{Tools: all, Compaction: &agent.Compaction{At: 0.3, Window: 1000, Keep: 1}, Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 300, MinDelta: 5}}},
		{Tools: all, Hooks: hooks, Loop: agent.Loop{Type: "reflect", TellGuidance: true, ToolLoopThreshold: 2}},
		{Tools: all, Hooks: hooks, Loop: agent.Loop{Type: "two_phase"}, Instructions: "be good"},
		{Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 10_000, MinDelta: 500, MinCount: 1}}},
		{Tools: all, Loop: agent.Loop{Type: "reflect", ConfidenceThreshold: &low, ReflectInterval: 1}},
		{Tools: all, Hooks: hooks, OutputSchema: value, Model: two, Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 300, MinDelta: 5}}},
		{Tools: all, Hooks: hooks, OutputSchema: value, Loop: agent.Loop{Type: "reflect", ConfidenceThreshold: &low, TerminalTools: []string{"safe"}}},
		{Tools: all, OutputSchema: value, MaxOutputRetries: new(5), Loop: agent.Loop{Type: "two_phase"}},
		{Tools: all, Hooks: hooks, Loop: agent.Loop{OnLimit: agent.OnLimitAnswer, MaxTurns: 3}, OutputSchema: value, Model: two},
		{Tools: all, Loop: agent.Loop{Type: "reflect", OnLimit: agent.OnLimitAnswer}},
		{Tools: all, Loop: agent.Loop{Type: "two_phase", OnLimit: agent.OnLimitAnswer, MaxSteps: 2}, Instructions: "be good"},
		{Loop: agent.Loop{Type: "single_call"}, Model: two},
		{Loop: agent.Loop{Type: "single_call"}, OutputSchema: json.RawMessage(`{"type":"object","maxProperties":0}`)},
	}
	// Walks are random: they repeat until they have met every reason.
	const rounds = 10 // one round misses a reason in one of fifteen runs
	missing := ends()
	for round := 0; round < rounds && len(missing) > 0 && !t.Failed(); round++ {
		met := looptest.Exercise(t, loop.Builtin(), definitions...)
		missing = slices.DeleteFunc(missing, func(r state.Reason) bool {
			return slices.ContainsFunc(slices.Collect(maps.Values(met)), func(reasons map[state.Reason]int) bool { return reasons[r] > 0 })
		})
	}
	if len(missing) > 0 && !t.Failed() {
		t.Errorf("no walk of %d rounds ended %s: add a definition whose walks reach it, or list it in ends", rounds, missing)
	}
}

// ends returns every reason for which a loop may end a run.
func ends() []state.Reason {
	others := []state.Reason{state.EndInvalidAgent, state.EndLost} // reasons that a worker finds without a loop
	return slices.DeleteFunc(state.Reasons(), func(r state.Reason) bool { return !r.Terminal() || slices.Contains(others, r) })
}
