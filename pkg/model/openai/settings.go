package openai

import (
	"regexp"
	"strings"

	"github.com/openai/openai-go/v3/shared"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// unreasoning are OpenAI's models that do not reason and refuse to be asked.
var unreasoning = regexp.MustCompile(`^(gpt-3|gpt-4|chatgpt-|gpt-5[0-9.]*-chat)`)

// reasons reports whether a model may reason: all do that are newer than those
// known not to.
func reasons(name string) bool { return !unreasoning.MatchString(model.Family(name)) }

// effort is the word for how much to reason; empty is not to say.
func effort(r model.Request) shared.ReasoningEffort {
	switch {
	case !reasons(r.Model):
		return ""
	case r.Reasoning == model.EffortNone:
		return least(model.Family(r.Model))
	default:
		return shared.ReasoningEffort(r.Reasoning)
	}
}

var oSeries = regexp.MustCompile(`^(o[0-9]|gpt-oss)`)

// least is the smallest effort that a family takes: "none" is understood from
// gpt-5.1 on.
func least(family string) shared.ReasoningEffort {
	switch {
	case strings.HasSuffix(family, "-pro"):
		return "" // they only think hard
	case oSeries.MatchString(family), strings.Contains(family, "codex"):
		return shared.ReasoningEffortLow
	case family == "gpt-5", strings.HasPrefix(family, "gpt-5-"):
		return shared.ReasoningEffortMinimal
	default:
		return shared.ReasoningEffortNone
	}
}
