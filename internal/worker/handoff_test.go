package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func handoffTo(name string) agent.Tool {
	return agent.Tool{Name: "to_" + name, Kind: toolspec.Handoff, Own: tool.EncodeSettings(toolspec.Successor{Agent: name})}
}

// After a handoff another agent continues the run: its instructions, tools and hooks apply. The history and the
// budget stay, and a message after the end also goes to that agent.
func TestHandoff(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var hooked atomic.Value
	cfg := s.config()
	cfg.Hooks = hookspec.Kinds(map[string]hook.Hook{"look": hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		hooked.Store(r.Agent)
		return hook.Answer{}, nil
	})})
	s.work(cfg)
	s.tools["refund"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "paid"}, nil })
	s.define(agent.Definition{
		Name: "billing", Instructions: "Be exact, {{name}}.", Variables: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
		Model: agent.Model{Provider: "scripted", Name: "b", Responses: []model.Scripted{{}, {ToolCalls: []model.ScriptedCall{{Name: "refund", ID: "c2"}}}, {Text: "Paid."}, {Text: "Yes."}}},
		Tools: []agent.Tool{{Name: "refund"}}, Hooks: &agent.Hooks{PreTool: named("look")},
	})
	id := s.submitTo(agent.Definition{
		Name: "a", Model: agent.Model{Provider: "scripted", Name: "a", Responses: []model.Scripted{call("to_billing", "c1"), {Text: "the first agent answers"}}},
		Tools: []agent.Tool{handoffTo("billing")},
	})
	run := s.awaitReason(id, state.EndCompleted)
	if *run.Output != "Paid." || run.Agent != "a" || run.Definition() != (state.AgentRef{Name: "billing", Version: 1}) || run.Usage.ModelCalls != 3 || run.Usage.ToolCalls != 2 {
		t.Fatalf("output %q, agent %s, responsible %+v, usage %+v", *run.Output, run.Agent, run.Definition(), run.Usage)
	}
	if hooked.Load() != "billing" {
		t.Errorf("the hook was called for agent %v", hooked.Load())
	}
	var said []string
	for _, m := range s.view(id) {
		said = append(said, string(m.Role)+" "+m.Text())
	}
	if got := strings.Join(said, "|"); got != "user hello|assistant |tool |system Be exact, .|assistant |tool |assistant Paid." {
		t.Errorf("the view is %s", got)
	}
	again := state.UserText("Sure?")
	s.signal(id, state.Signal{ID: "again", Message: &again})
	if run := s.await(id, "second answer", func(s state.State) bool { return s.Status == state.Completed && s.Turn > run.Turn }); *run.Output != "Yes." {
		t.Errorf("after the message the output is %q", *run.Output)
	}
}

// A handoff to an agent that does not exist, or that cannot continue a conversation, becomes a failed call.
func TestHandoffFails(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	s.define(agent.Definition{Name: "once", Loop: agent.Loop{Type: "single_call"}, Model: agent.Model{Provider: "scripted"}})
	s.define(agent.Definition{
		Name: "needy", Instructions: "{{name}}", Variables: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`),
		Model: agent.Model{Provider: "scripted"},
	})
	for name, want := range map[string]string{"nobody": "there is no agent", "once": "single_call", "needy": "name"} {
		id := s.submitTo(agent.Definition{
			Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("to_"+name, "c1"), {Text: "I stay."}}},
			Tools: []agent.Tool{handoffTo(name)},
		})
		run := s.awaitReason(id, state.EndCompleted)
		result := s.view(id)[2].Parts[0]
		if *run.Output != "I stay." || run.Active != (state.AgentRef{}) || !result.IsError || !strings.Contains(result.Content, want) {
			t.Errorf("%s: output %q, responsible %+v, result %q", name, *run.Output, run.Active, result.Content)
		}
	}
}
