package effect

import (
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// defaultUses limits the uses of a provider's tool in one model call if the run has a cost limit but the definition
// sets no max_uses. A submission with a cost limit is refused then, so the limit is that of a parent, of a batch, or
// of the agent before a handoff.
const defaultUses = 10

// affordable returns tools unchanged if the run has no cost limit. Otherwise a tool without MaxUses gets defaultUses,
// if the provider can bound its uses, and the uses of a tool that is charged per use are capped at what the run and the
// tools before it have left of the limit. affordable leaves out a charged tool for which nothing is left, or whose uses
// the provider cannot bound.
func (ms *models) affordable(s *state.State, m *agent.Model, tools []model.ProviderTool) []model.ProviderTool {
	limit := s.Limits.CostUSD
	if limit <= 0 {
		return tools
	}
	left := limit
	if used := s.Usage.CostUSD; used != nil {
		left -= *used
	}
	spec := builtin[m.Provider]
	choice := model.Choice{Provider: m.Provider, Model: m.Name, API: m.API, BaseURL: m.BaseURL, Reasoning: m.Reasoning, Settings: m.Settings}
	var out []model.ProviderTool
	for _, t := range tools {
		price := ms.cfg.Prices.UsePrice(m.Name, t.Name)
		bounded := spec.Bounds(choice, t.Name)
		if bounded && t.MaxUses == 0 {
			t.MaxUses = defaultUses
		}
		switch {
		case price <= 0:
		case !bounded:
			continue
		default:
			t.MaxUses = min(t.MaxUses, int64(max(left, 0)/price))
			if t.MaxUses == 0 {
				continue
			}
			left -= state.MicroUSD(t.MaxUses) * price
		}
		out = append(out, t)
	}
	return out
}
