package model

import (
	"regexp"
	"slices"

	"github.com/turnpike-dev/turnpike/internal/modelname"
)

// Taken is a setting that models of a provider accept. docs/reference/models.md has a table of those of the built-in
// providers, generated from the lists in this file.
type Taken struct {
	Setting string // its key in a definition
	API     API    // the API that accepts it; empty means all of the provider
	Field   string // path in the body of a request, with dots
	Not     []Exception
}

// Exception is a family of models, or a combination of settings, that refuses a setting.
type Exception struct {
	Models  string // for the docs, such as "o1 to o4"
	Refuses func(c Choice) bool
	Text    string // the mistake and the remedy
}

// beyond reports whether the effort of c is least or a stronger one.
func beyond(c Choice, least Effort) bool {
	return slices.Index(Efforts(), c.Reasoning) >= slices.Index(Efforts(), least)
}

// Exceptions of Anthropic's models.
var (
	unsampled = Exception{
		Models:  "Claude from 4.7 on",
		Refuses: func(c Choice) bool { return modelname.Claude(c.Model).Since(4, 7) },
		Text:    "Claude from 4.7 on does not take it: remove it",
	}
	oneSampler = Exception{
		Models: "Opus 4.1 and Claude from 4.5 on, together with `temperature`",
		Refuses: func(c Choice) bool {
			return c.Temperature != nil && (modelname.Claude(c.Model).Since(4, 5) || modelname.Family(c.Model) == "claude-opus-4-1")
		},
		Text: "this model takes temperature or top_p, not both: remove one",
	}
	thinks = func(c Choice) bool { return c.Reasoning != "" && c.Reasoning != EffortNone }
	cooled = Exception{Models: "with `reasoning`", Refuses: thinks, Text: "Claude does not take it while it reasons: remove it, or write reasoning: none"}
	forced = Exception{
		Models:  "`any` and `{name}` with `reasoning`",
		Refuses: func(c Choice) bool { return thinks(c) && c.ToolChoice.Forced() },
		Text:    "Claude cannot be forced to call a tool while it reasons: write auto, or reasoning: none",
	}
)

var anthropicTakes = []Taken{
	{Setting: "temperature", Field: "temperature", Not: []Exception{unsampled, cooled, {
		Models: "above 1", Refuses: func(c Choice) bool { return *c.Temperature > 1 }, Text: "anthropic takes at most 1: write less",
	}}},
	{Setting: "top_p", Field: "top_p", Not: []Exception{unsampled, oneSampler, {
		Models: "below 0.95 with `reasoning`", Refuses: func(c Choice) bool { return thinks(c) && *c.TopP < 0.95 },
		Text: "Claude takes 0.95 to 1 while it reasons: write more, or reasoning: none",
	}}},
	{Setting: "top_k", Field: "top_k", Not: []Exception{unsampled, cooled}},
	{Setting: "stop", Field: "stop_sequences"},
	{Setting: "tool_choice", Field: "tool_choice.type", Not: []Exception{forced}},
	{Setting: "parallel_tool_calls", Field: "tool_choice.disable_parallel_tool_use"},
	{Setting: "service_tier", Field: "service_tier", Not: []Exception{{
		Models: "`flex`", Refuses: func(c Choice) bool { return c.ServiceTier == TierFlex }, Text: "anthropic has no flex: write standard or priority",
	}}},
	{Setting: "cache", Field: "cache_control"},
	{Setting: "reasoning", Field: "output_config.effort", Not: []Exception{
		{
			Models: "`xhigh` up to Claude 4.6", Refuses: func(c Choice) bool { return c.Reasoning == EffortXHigh && older(modelname.Claude(c.Model), 4, 7) },
			Text: "Claude has xhigh from 4.7 on: write high",
		},
		{
			Models: "`max` up to Claude 4.5", Refuses: func(c Choice) bool { return c.Reasoning == EffortMax && older(modelname.Claude(c.Model), 4, 6) },
			Text: "Claude has max from 4.6 on: write high",
		},
	}},
}

// older reports whether a model is known and from before a version.
func older(v modelname.Version, major, minor int) bool { return v.Known() && !v.Since(major, minor) }

// Exceptions of OpenAI's models.
var (
	reasoner   = func(c Choice) bool { return modelname.OpenAI(c.Model) && modelname.Reasons(c.Model) }
	proOrCodex = regexp.MustCompile(`-pro$|codex`)
	switchable = func(c Choice) bool {
		return modelname.GPT(c.Model).Since(5, 1) && !proOrCodex.MatchString(modelname.Family(c.Model))
	}
	sampled = []Exception{
		{
			Models: "gpt-5.1 and later without `reasoning: none`", Refuses: func(c Choice) bool { return reasoner(c) && switchable(c) && c.Reasoning != EffortNone },
			Text: "this model takes it only while it does not reason: remove it, or write reasoning: none",
		},
		{
			Models: "other models of OpenAI that reason", Refuses: func(c Choice) bool { return reasoner(c) && !switchable(c) },
			Text: "models of OpenAI that reason do not take it: remove it",
		},
	}
	efforts = []Exception{
		{
			Models: "`xhigh` and `max` with models of OpenAI that do not reason",
			Refuses: func(c Choice) bool {
				return beyond(c, EffortXHigh) && modelname.OpenAI(c.Model) && !modelname.Reasons(c.Model)
			},
			Text: "this model does not reason: remove it",
		},
		{
			Models: "`xhigh` before gpt-5.2, gpt-5.1-codex-max apart",
			Refuses: func(c Choice) bool {
				return c.Reasoning == EffortXHigh && reasoner(c) && !modelname.GPT(c.Model).Since(5, 2) && modelname.Family(c.Model) != "gpt-5.1-codex-max"
			},
			Text: "OpenAI has xhigh from gpt-5.2 on: write high",
		},
		{
			Models: "`max` before gpt-5.6", Refuses: func(c Choice) bool {
				return c.Reasoning == EffortMax && reasoner(c) && !modelname.GPT(c.Model).Since(5, 6)
			},
			Text: "OpenAI has max from gpt-5.6 on: write xhigh or high",
		},
	}
	serial = []Exception{{
		Models: "o1 to o4", Refuses: func(c Choice) bool { return modelname.OSeries(c.Model) }, Text: "OpenAI's o models do not take it: remove it",
	}}
)

var openAITakes = []Taken{
	{Setting: "temperature", Field: "temperature", Not: sampled},
	{Setting: "top_p", Field: "top_p", Not: sampled},
	{Setting: "stop", API: APIChat, Field: "stop", Not: []Exception{
		{Models: "models of OpenAI that reason", Refuses: reasoner, Text: "models of OpenAI that reason do not take it: remove it"},
		{Models: "more than 4", Refuses: func(c Choice) bool { return len(c.Stop) > 4 }, Text: "openai takes at most 4: remove some"},
	}},
	{Setting: "seed", API: APIChat, Field: "seed"},
	{Setting: "tool_choice", Field: "tool_choice"},
	{Setting: "parallel_tool_calls", Field: "parallel_tool_calls", Not: serial},
	{Setting: "service_tier", Field: "service_tier"},
	{Setting: "cache", Field: "prompt_cache_key", Not: []Exception{{
		Models: "`5m` and `1h`", Refuses: func(c Choice) bool { return c.Cache != CacheOff }, Text: "openai chooses the lifetime itself: write auto or off",
	}}},
	{Setting: "reasoning", API: APIResponses, Field: "reasoning.effort", Not: efforts},
	{Setting: "reasoning", API: APIChat, Field: "reasoning_effort", Not: efforts},
}

var geminiTakes = []Taken{
	{Setting: "temperature", Field: "generationConfig.temperature"},
	{Setting: "top_p", Field: "generationConfig.topP"},
	{Setting: "top_k", Field: "generationConfig.topK"},
	{Setting: "stop", Field: "generationConfig.stopSequences", Not: []Exception{{
		Models: "more than 5", Refuses: func(c Choice) bool { return len(c.Stop) > 5 }, Text: "gemini takes at most 5: remove some",
	}}},
	{Setting: "seed", Field: "generationConfig.seed", Not: []Exception{{
		Models: "beyond 32 bits", Refuses: func(c Choice) bool { return int64(int32(*c.Seed)) != *c.Seed }, Text: "gemini takes whole numbers from -2147483648 to 2147483647: write one of these", //nolint:gosec // the point
	}}},
	{Setting: "tool_choice", Field: "toolConfig.functionCallingConfig"},
	{Setting: "service_tier", Field: "serviceTier"},
	{Setting: "reasoning", Field: "generationConfig.thinkingConfig", Not: []Exception{{
		Models: "`xhigh` and `max`", Refuses: func(c Choice) bool { return beyond(c, EffortXHigh) }, Text: "gemini has no more than high: write high",
	}}},
}
