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

// effort is the word for how much to reason: the nearest that the family takes.
// Empty is not to say.
func effort(r model.Request) shared.ReasoningEffort {
	family := model.Family(r.Model)
	switch {
	case r.Reasoning == "" || !reasons(r.Model):
		return ""
	case family == "gpt-5-pro" && r.Reasoning != model.EffortHigh:
		return "" // it takes high only, and takes it by itself
	case laterPro.MatchString(family) && r.Reasoning != model.EffortHigh:
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
