package loop_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/loop/looptest"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
)

// I2, I5, A1, A2, A4: what must be true of every loop, in random histories.
func TestProperties(t *testing.T) {
	t.Parallel()
	all := tools(
		plain, client, gated, agent.Tool{Name: "once", MaxCalls: 1}, agent.Tool{Name: "safe", Idempotent: true},
		agent.Tool{Name: "later", Async: true}, agent.Tool{Name: "strict", Schema: json.RawMessage(`{"type":"object","required":["amount"]}`)},
		agent.Tool{Name: "helper", Kind: toolspec.Agent, Own: tool.Own(toolspec.Delegate{Agent: "helper"})},
	)
	hooks := &agent.Hooks{PreTool: []agent.Hook{{Kind: hookspec.Go, Own: tool.Own(hookspec.Function{Name: "h"}), Tools: []string{"t", "pick"}}}, Stop: watched, MaxStopBlocks: 2}
	two := agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}
	low := 0.1
	met := looptest.Exercise(t, loop.Builtin(),
		agent.Definition{Tools: all},
		agent.Definition{Tools: all, Hooks: hooks, Model: two, Instructions: "be good"},
		agent.Definition{Tools: all, Loop: agent.Loop{Converse: true, ToolLoopThreshold: 2}},
		agent.Definition{Tools: all, Compaction: &agent.Compaction{At: 0.3, Window: 1000, Keep: 1, Summarize: true}},
		agent.Definition{Tools: all, Compaction: &agent.Compaction{At: 0.3, Window: 1000, Keep: 1}, Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 300, MinDelta: 5}}},
		agent.Definition{Tools: all, Hooks: hooks, Loop: agent.Loop{Type: "reflect", TellGuidance: true, ToolLoopThreshold: 2}},
		agent.Definition{Tools: all, Hooks: hooks, Loop: agent.Loop{Type: "two_phase"}, Instructions: "be good"},
		agent.Definition{Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 10_000, MinDelta: 500, MinCount: 1}}},
		agent.Definition{Tools: all, Loop: agent.Loop{Type: "reflect", ConfidenceThreshold: &low, ReflectInterval: 1}},
		agent.Definition{Loop: agent.Loop{Type: "single_call"}, Model: two},
		agent.Definition{Loop: agent.Loop{Type: "single_call"}, OutputSchema: json.RawMessage(`{"type":"object","maxProperties":0}`)},
	)
	if t.Failed() {
		return
	}
	// What a worker finds without asking a loop.
	others := []state.Reason{state.EndInvalidAgent, state.EndLost}
	for _, r := range state.Reasons() {
		reached := false
		for _, reasons := range met {
			reached = reached || reasons[r] > 0
		}
		if r.Terminal() && !reached && !slices.Contains(others, r) {
			t.Errorf("no walk ended %s: they do not go far enough", r)
		}
	}
}
