package openai

import (
	"regexp"
	"slices"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// effort returns the nearest effort that the family of the model accepts, or "" to omit it.
func effort(r model.Request) shared.ReasoningEffort {
	family := model.Family(r.Model)
	switch {
	case r.Reasoning == "" || !modelname.Reasons(r.Model):
		return ""
	case family == "gpt-5-pro" && r.Reasoning != model.EffortHigh:
		return "" // it accepts only high, which is its default
	case laterPro.MatchString(family) && slices.Index(model.Efforts(), r.Reasoning) < slices.Index(model.Efforts(), model.EffortHigh):
		return shared.ReasoningEffortMedium
	case r.Reasoning == model.EffortNone:
		return least(family)
	default:
		return shared.ReasoningEffort(r.Reasoning)
	}
}

var (
	laterPro = regexp.MustCompile(`^gpt-[0-9.]+-pro$`)
	oSeries  = regexp.MustCompile(`^(o[0-9]|gpt-oss)`)
)

// least returns the smallest effort that a family accepts, or "" to omit it. Models from gpt-5.1 on accept "none".
func least(family string) shared.ReasoningEffort {
	switch {
	case strings.HasSuffix(family, "-pro"):
		return "" // they accept only high efforts
	case oSeries.MatchString(family), strings.Contains(family, "codex"):
		return shared.ReasoningEffortLow
	case family == "gpt-5", strings.HasPrefix(family, "gpt-5-"):
		return shared.ReasoningEffortMinimal
	default:
		return shared.ReasoningEffortNone
	}
}

// tiers maps service tiers to the names in both APIs.
var tiers = map[model.ServiceTier]string{model.TierStandard: "default", model.TierFlex: "flex", model.TierPriority: "priority"}

// tuneResponses applies the definition's settings for sampling, tools and service.
func tuneResponses(p *responses.ResponseNewParams, r model.Request) {
	p.Temperature, p.TopP = optional(r.Temperature), optional(r.TopP)
	p.ServiceTier = responses.ResponseNewParamsServiceTier(tiers[r.ServiceTier])
	if len(p.Tools) == 0 {
		return // without tools the API refuses these settings
	}
	p.ParallelToolCalls = optional(r.ParallelToolCalls)
	switch c := r.ToolChoice; {
	case c.Tool != "":
		p.ToolChoice.OfFunctionTool = &responses.ToolChoiceFunctionParam{Name: c.Tool}
	case c.Mode != "":
		p.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptions(mode(c.Mode)))
	}
}

// tuneChat applies the definition's settings to a request of chat completions.
func tuneChat(p *sdk.ChatCompletionNewParams, r model.Request) {
	p.Temperature, p.TopP, p.Seed = optional(r.Temperature), optional(r.TopP), optional(r.Seed)
	p.Stop.OfStringArray = r.Stop
	p.ServiceTier = sdk.ChatCompletionNewParamsServiceTier(tiers[r.ServiceTier])
	if len(r.Tools) == 0 {
		return
	}
	p.ParallelToolCalls = optional(r.ParallelToolCalls)
	switch c := r.ToolChoice; {
	case c.Tool != "":
		p.ToolChoice.OfFunctionToolChoice = &sdk.ChatCompletionNamedToolChoiceParam{Function: sdk.ChatCompletionNamedToolChoiceFunctionParam{Name: c.Tool}}
	case c.Mode != "":
		p.ToolChoice.OfAuto = param.NewOpt(mode(c.Mode))
	}
}

// mode returns OpenAI's name of a mode.
func mode(m model.ToolMode) string {
	if m == model.ToolsAny {
		return "required"
	}
	return string(m)
}

func optional[T comparable](v *T) param.Opt[T] {
	if v == nil {
		return param.Opt[T]{}
	}
	return param.NewOpt(*v)
}
