package agent

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

func (s Source) hosted() model.ProviderTool {
	return model.ProviderTool{Name: s.Name, MaxUses: s.MaxUses, Settings: s.Options}
}

// hostedTools checks the tools that providers run against the loop, and against each model of the agent whose provider
// is known. A fallback that lacks a tool, or one of its settings, is a mistake: after a fallback, a setting such as
// blocked_domains must still apply.
func (c *checker) hostedTools(a *Agent) {
	if len(a.hosted) == 0 {
		return
	}
	if a.Loop.Type == loopTwoPhase {
		c.fault(place("tools", a.hosted[0].Index), "the loop two_phase cannot use tools that the model's provider runs: remove the tools of kind provider, or use react")
	}
	with := model.Beside{Functions: len(a.specs)+len(a.sources) > 0, OutputSchema: len(a.OutputSchema) > 0}
	for i := 0; a.ModelAt(i) != nil; i++ {
		m, which := a.ModelAt(i), "model"
		if i > 0 {
			which = fmt.Sprintf("model.fallback[%d]", i-1)
		}
		spec, known := c.known.Providers[m.Provider]
		if !known {
			continue
		}
		choice := model.Choice{Provider: m.Provider, Model: m.Name, API: m.API, BaseURL: m.BaseURL, Reasoning: m.Reasoning, Settings: m.Settings}
		for _, h := range a.hosted {
			for _, r := range spec.CheckTool(choice, h.hosted(), with, a.Limits.CostUSD > 0) {
				c.fault(place("tools", h.Index)+"."+r.Key, "%s %s: %s", which, m.Provider+orName(m.Name), r.Text)
			}
		}
	}
}

func orName(name string) string {
	if name == "" {
		return ""
	}
	return " " + name
}
