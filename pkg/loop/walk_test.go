package loop_test

import (
	"encoding/json"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/loop/looptest"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// I2, I5, A1, A2, A4: what must be true of every loop, in random histories.
func TestProperties(t *testing.T) {
	t.Parallel()
	all := tools(
		plain, client, gated, agent.Tool{Name: "once", MaxCalls: 1}, agent.Tool{Name: "safe", Idempotent: true},
		agent.Tool{Name: "later", Async: true}, agent.Tool{Name: "strict", Schema: json.RawMessage(`{"type":"object","required":["amount"]}`)},
		agent.Tool{Name: "helper", Kind: agent.KindAgent, Agent: "helper"},
	)
	hooks := &agent.Hooks{PreTool: []agent.Hook{{Kind: agent.KindGo, Name: "h", Tools: []string{"t", "pick"}}}, Stop: watched, MaxStopBlocks: 2}
	two := agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}
	met := looptest.Exercise(t, loop.Builtin(),
		agent.Definition{Tools: all},
		agent.Definition{Tools: all, Hooks: hooks, Model: two, Instructions: "be good"},
		agent.Definition{Tools: all, Loop: agent.Loop{Converse: true, ToolLoopThreshold: 2}},
		agent.Definition{Tools: all, Compaction: &agent.Compaction{At: 0.3, Window: 1000, Keep: 1, Summarize: true}},
		agent.Definition{Tools: all, Compaction: &agent.Compaction{At: 0.3, Window: 1000, Keep: 1}, Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 300, MinDelta: 5}}},
		agent.Definition{Tools: all, Hooks: hooks, Loop: agent.Loop{Type: "reflect", TellGuidance: true}},
		agent.Definition{Tools: all, Hooks: hooks, Loop: agent.Loop{Type: "two_phase"}, Instructions: "be good"},
		agent.Definition{Loop: agent.Loop{Type: "single_call"}, Model: two},
	)
	if testing.Verbose() {
		for name, reasons := range met {
			t.Logf("%s: %v", name, reasons)
		}
	}
	for _, want := range []state.Reason{state.EndCompleted, state.NextTurn, state.UserMessage} {
		if met["react"][want] == 0 {
			t.Errorf("the walk never met %s: it does not go far enough", want)
		}
	}
}
