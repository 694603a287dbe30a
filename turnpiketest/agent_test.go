package turnpiketest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

// An agent in Go has hooks, other agents and a memory, as one in YAML has.
func TestAgentInGo(t *testing.T) {
	t.Parallel()
	noGossip := func(_ context.Context, r hook.Request) (hook.Answer, error) {
		if !strings.Contains(string(r.Call.Arguments), "gossip") {
			return hook.Answer{}, nil
		}
		return hook.Answer{Deny: new("no gossip")}, nil
	}
	k := tt.New(t, turnpike.Options{Hooks: map[string]hook.Hook{"no_gossip": hook.Func(noGossip)}})
	for name, says := range map[string]tt.Reply{"researcher": tt.Says("It has caffeine."), "invoices": tt.Says("I have corrected the invoice.")} {
		other := turnpike.Agent{Name: name, Model: turnpike.Model{Provider: "scripted", Responses: slices.Repeat([]tt.Reply{says}, 5)}}
		if _, err := k.PutAgent(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	a := turnpike.Agent{
		Name: "desk",
		Tools: []tool.Definition{
			{Name: "research", Kind: "agent", Own: tool.EncodeSettings(map[string]any{"agent": "researcher", "max_depth": 2})},
			{Name: "to_invoices", Kind: "handoff", Own: tool.EncodeSettings(map[string]any{"agent": "invoices"})},
			{Name: "memory", Kind: "memory", Own: tool.EncodeSettings(map[string]any{"scope": "agent"})},
		},
		Hooks: &agent.Hooks{PreTool: []agent.Hook{
			{Kind: "go", Tools: []string{"research"}, Own: tool.EncodeSettings(map[string]any{"name": "no_gossip"})},
		}},
	}
	run := k.Start(a, "My invoice is wrong.",
		tt.Calls("memory", notes{Command: "create", Path: "/memories/user", FileText: "Has an invoice.\n"}),
		tt.Calls("research", map[string]string{"task": "Find gossip."}),
		tt.Calls("research", map[string]string{"task": "Compare tea and coffee."}),
		tt.Calls("to_invoices", struct{}{}))
	i := k.WaitIdle(run)
	if i.Status != "completed" || i.Output == nil || *i.Output != "I have corrected the invoice." {
		t.Errorf("the run is %+v", i)
	}
	got := results(t, run)
	for _, want := range []string{"File created", "no gossip", "It has caffeine."} {
		if !strings.Contains(got, want) {
			t.Errorf("the results %q lack %q", got, want)
		}
	}
}
