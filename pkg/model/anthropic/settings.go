package anthropic

import (
	"slices"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// leastBudget is the minimum of tokens for thinking that the API accepts.
const leastBudget = 1024

var budgets = map[model.Effort]int64{
	model.EffortLow: 2048, model.EffortMedium: 8192, model.EffortHigh: 16384, model.EffortXHigh: 16384, model.EffortMax: 16384,
}

// tune applies the definition's settings for sampling, tools and service.
func tune(p *sdk.MessageNewParams, r model.Request) {
	if r.Temperature != nil {
		p.Temperature = param.NewOpt(*r.Temperature)
	}
	if r.TopP != nil {
		p.TopP = param.NewOpt(*r.TopP)
	}
	if r.TopK != nil {
		p.TopK = param.NewOpt(*r.TopK)
	}
	p.StopSequences = r.Stop
	switch r.ServiceTier {
	case model.TierStandard:
		p.ServiceTier = sdk.MessageNewParamsServiceTierStandardOnly
	case model.TierPriority:
		p.ServiceTier = sdk.MessageNewParamsServiceTierAuto // at the organisation's priority capacity, if it has any
	default:
	}
	if len(p.Tools) > 0 {
		p.ToolChoice = toolChoice(r.ToolChoice, r.ParallelToolCalls)
	}
}

func toolChoice(c model.ToolChoice, parallel *bool) (out sdk.ToolChoiceUnionParam) {
	var one param.Opt[bool]
	if parallel != nil {
		one = param.NewOpt(!*parallel)
	}
	switch {
	case c.Tool != "":
		out.OfTool = &sdk.ToolChoiceToolParam{Name: c.Tool, DisableParallelToolUse: one}
	case c.Mode == model.ToolsAny:
		out.OfAny = &sdk.ToolChoiceAnyParam{DisableParallelToolUse: one}
	case c.Mode == model.ToolsNone:
		out.OfNone = &sdk.ToolChoiceNoneParam{}
	case c.Mode == model.ToolsAuto || parallel != nil:
		out.OfAuto = &sdk.ToolChoiceAutoParam{DisableParallelToolUse: one}
	}
	return out
}

// reason requests thinking. Models from 4.6 on accept an effort and refuse a budget; older ones accept only a budget.
func reason(p *sdk.MessageNewParams, e model.Effort) {
	switch {
	case e == "":
	case e == model.EffortNone:
		p.Thinking.OfDisabled = &sdk.ThinkingConfigDisabledParam{}
	case adapts(p.Model):
		p.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{Display: sdk.ThinkingConfigAdaptiveDisplaySummarized}
		p.OutputConfig.Effort = sdk.OutputConfigEffort(e)
	case !thoughtThrough(p.Messages):
		// Another model made these calls: with a budget, the API requires the thinking that preceded them.
	default:
		budget := budgets[e]
		if p.MaxTokens <= 0 {
			p.MaxTokens = budget + defaultMaxTokens
		} else {
			budget = min(budget, p.MaxTokens/2) // thinking counts as output
		}
		if budget >= leastBudget {
			p.Thinking = sdk.ThinkingConfigParamOfEnabled(budget)
		}
	}
}

// since reports whether a model has this version or a later one. Models other than Claude count as the newest.
func since(name string, major, minor int) bool {
	v := modelname.Claude(name)
	return !v.Known() || v.Since(major, minor)
}

// adapts reports whether a model accepts an effort.
func adapts(name string) bool { return since(name, 4, 6) }

// formats reports whether the API can enforce an output schema for a model.
func formats(name string) bool { return since(name, 4, 5) }

// thoughtThrough reports whether the assistant message whose tool calls were answered last begins with thinking. It
// reports true without such calls.
func thoughtThrough(messages []sdk.MessageParam) bool {
	for _, m := range slices.Backward(messages) {
		if m.Role != sdk.MessageParamRoleAssistant {
			if !slices.ContainsFunc(m.Content, func(b sdk.ContentBlockParamUnion) bool { return b.OfToolResult != nil }) {
				return true // the user has sent a message since
			}
			continue
		}
		first := m.Content[0]
		return first.OfThinking != nil || first.OfRedactedThinking != nil
	}
	return true
}

// cache marks the prefix of the prompt that the run's next call will repeat: the tools and the instructions, as far as
// other runs of the agent share them (Request.Shared), and the conversation so far. It also marks the end of the
// previous call, because the API looks back only twenty blocks. CacheAuto does not mark the conversation of a request
// without tools: a next call is unlikely then, and writing to the cache costs more than reading saves. cache returns
// the lifetime of its marks, or "" if it set none.
func cache(p *sdk.MessageNewParams, r model.Request) (lifetime model.Cache) {
	if r.Cache == model.CacheOff {
		return ""
	}
	mark, of := sdk.NewCacheControlEphemeralParam(), model.CacheFiveMinutes // the API's default
	if r.Cache == model.CacheHour || r.LongWait && r.Cache != model.CacheFiveMinutes {
		mark.TTL, of = sdk.CacheControlEphemeralTTLTTL1h, model.CacheHour
	}
	put := func(c *sdk.CacheControlEphemeralParam) {
		if c != nil {
			*c, lifetime = mark, of
		}
	}
	switch {
	case len(p.System) > 0 && r.Shared >= 0:
		put(&p.System[0].CacheControl) // of the instructions; texts of hooks follow them
	case len(p.Tools) > 0:
		put(p.Tools[len(p.Tools)-1].GetCacheControl())
	}
	asked := r.Cache == model.CacheFiveMinutes || r.Cache == model.CacheHour
	if len(p.Tools) == 0 && !asked {
		return lifetime
	}
	marked := 0
	for _, m := range slices.Backward(p.Messages) {
		if m.Role != sdk.MessageParamRoleUser {
			continue
		}
		put(m.Content[len(m.Content)-1].GetCacheControl())
		if marked++; marked == 2 {
			break
		}
	}
	return lifetime
}
