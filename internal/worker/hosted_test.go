package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func searchTool(maxUses int64) agent.Tool {
	return agent.Tool{Name: model.WebSearch, Kind: toolspec.Provider, Own: tool.EncodeSettings(toolspec.Hosted{MaxUses: maxUses})}
}

var searched = model.ScriptedUse{Name: model.WebSearch, Arguments: json.RawMessage(`{"query":"tea"}`), Result: "All about tea"}

// Under a cost limit, a model call gets no more uses of a provider's tool than the remaining budget pays for,
// and none when nothing remains.
func TestUsesWithinCostLimit(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	cfg.Prices = model.DefaultPrices() // a search costs 0.01 dollars
	s.work(cfg)
	run := func(maxUses int64, limit state.MicroUSD, responses ...model.Scripted) (state.RunID, state.State) {
		d := agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Name: "claude-haiku-4-5", Responses: responses}, Tools: []agent.Tool{searchTool(maxUses)}}
		id := s.start(s.createFor(d, state.Limits{CostUSD: limit}))
		return id, s.awaitReason(id, state.EndCompleted)
	}
	show := model.Scripted{Show: model.ShowSettings}
	for _, tt := range []struct {
		name    string
		maxUses int64
		limit   state.MicroUSD
		want    string
	}{
		{"no limit", 5, 0, `"provider_tools":[{"name":"web_search","max_uses":5}]`},
		{"enough", 5, 60_000, `"max_uses":5`},
		{"less", 5, 35_000, `"max_uses":3`},
		{"nothing", 5, 5_000, `{}`},
		{"a limit that the agent did not expect, such as a child's", 0, 10_000_000, `"max_uses":10`},
	} {
		if _, end := run(tt.maxUses, tt.limit, show); !strings.Contains(*end.Output, tt.want) {
			t.Errorf("%s: the model was called with %s, want %s", tt.name, *end.Output, tt.want)
		}
	}
	// Uses are charged, and a use beyond the bound is not made.
	id, end := run(2, 1_000_000, model.Scripted{Text: "Tea.", ProviderTools: []model.ScriptedUse{searched, searched, searched}})
	if u := end.Usage; u.WebSearches != 2 || u.CostUSD == nil || *u.CostUSD != 20_000 {
		t.Errorf("usage %+v", u)
	}
	view := s.view(id)
	if p := view[len(view)-1].Parts[2]; p.Type != state.PartProviderTool || p.Content != "max_uses_exceeded" || !p.IsError {
		t.Errorf("the third use is %+v", p)
	}
}

// A provider tool's output is untrusted at once: a rule sees it in the same response that also makes the call.
// The model cannot call a provider's tool as a function.
func TestUsesAreUntrusted(t *testing.T) {
	t.Parallel()
	var paid atomic.Int32
	s := newDeployment(t)
	cfg := s.config()
	cfg.Kinds = toolspec.Kinds(map[string]tool.Tool{"pay": tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		paid.Add(1)
		return tool.Result{Content: "paid"}, nil
	})})
	s.work(cfg)
	pay := agent.Tool{Name: "pay", Approval: "args_from_untrusted"}
	both := call("pay", "c1")
	both.ToolCalls[0].Arguments = json.RawMessage(`{"to":"tea house"}`)
	trusted := s.submitTo(agent.Definition{Name: "a", Tools: []agent.Tool{searchTool(1), pay}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{both, {Text: "end"}}}})
	s.awaitReason(trusted, state.EndCompleted)
	if paid.Load() != 1 {
		t.Errorf("without a search, %d calls were made", paid.Load())
	}
	both.ProviderTools = []model.ScriptedUse{searched}
	id := s.submitTo(agent.Definition{Name: "b", Tools: []agent.Tool{searchTool(1), pay}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{both, {Text: "end"}}}})
	s.awaitReason(id, state.WaitingApproval)
	if paid.Load() != 1 {
		t.Error("a call that may depend on a search result was made without approval")
	}

	unknown := s.submitTo(agent.Definition{Name: "c", Tools: []agent.Tool{searchTool(1)}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call(model.WebSearch, "c1"), {Text: "end"}}}})
	s.awaitReason(unknown, state.EndCompleted)
	if got := s.transcript(unknown)[2]; !strings.Contains(got, "Unknown tool: web_search. Available tools: none") {
		t.Errorf("a call of a provider's tool returns %s", got)
	}
}

// If a tenant is restricted after its agent was saved, a call gets no uses of a provider's tool beyond the
// restriction.
func TestNarrowedProviderTools(t *testing.T) {
	t.Parallel()
	var settings atomic.Pointer[api.TenantSettings]
	settings.Store(&api.TenantSettings{ProviderTools: []string{"scripted/web_*"}})
	s := newDeployment(t)
	cfg := s.config()
	cfg.Policy = func(_ context.Context, tenant string) (policy.Policy, error) {
		return policy.Of(tenant, *settings.Load()), nil
	}
	s.work(cfg)
	def := agent.Definition{Name: "a", Tools: []agent.Tool{searchTool(1)}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "end", ProviderTools: []model.ScriptedUse{searched}}}}}
	if end := s.awaitReason(s.submitTo(def), state.EndCompleted); end.Usage.WebSearches != 1 {
		t.Errorf("usage %+v", end.Usage)
	}
	settings.Store(&api.TenantSettings{ProviderTools: []string{"code_execution"}})
	if end := s.awaitReason(s.submitTo(def), state.EndModelError); !strings.Contains(end.Error.Message, "tool scripted/web_search is not among the providers' tools") || end.Usage.WebSearches != 0 {
		t.Errorf("error %+v", end.Error)
	}
}
