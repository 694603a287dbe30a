package gemini

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	sdk "google.golang.org/genai"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

var version = regexp.MustCompile(`^gemini-(\d+)(?:\.(\d+))?\b`)

// generation returns the number of a model's generation: 2.5 of
// gemini-2.5-flash. A Gemini without one, such as gemini-flash-latest, is the newest;
// another model has none, which is 0.
func generation(name string) float64 {
	family := model.Family(name)
	m := version.FindStringSubmatch(family)
	switch {
	case m != nil:
		n, _ := strconv.ParseFloat(m[1]+"."+m[2]+"0", 64) // digits
		return n
	case strings.HasPrefix(family, "gemini-"):
		return math.Inf(1)
	default:
		return 0
	}
}

// foreignSignature is what Google tells to send where a tool call came from another
// model: from Gemini 3 on, the API refuses the first call of a content without a
// signature.
const foreignSignature = "skip_thought_signature_validator"

func wantsSignatures(name string) bool { return generation(name) >= 3 }

// Tokens that Gemini 2.5 may think with, as Google maps efforts to them, and the
// least that its models take if they think.
var budgets = map[model.Effort]int64{model.EffortLow: 1024, model.EffortMedium: 8192, model.EffortHigh: 24576}

const (
	leastPro  = 128 // cannot be turned off
	leastLite = 512
)

// reason asks for thinking: from Gemini 3 on by a level, at 2.5 by a budget; models
// before do not think.
func reason(r model.Request) *sdk.ThinkingConfig {
	family, n := model.Family(r.Model), generation(r.Model)
	pro, lite := strings.Contains(family, "pro"), strings.Contains(family, "lite")
	switch {
	case r.Reasoning == "" || n < 2.5:
		return nil
	case n >= 3:
		return &sdk.ThinkingConfig{ThinkingLevel: level(r.Reasoning, pro, n), IncludeThoughts: r.Reasoning != model.EffortNone}
	}
	budget := budgets[r.Reasoning]
	if r.MaxOutputTokens > 0 {
		budget = min(budget, r.MaxOutputTokens/2) // it counts as output
	}
	switch {
	case pro:
		budget = max(budget, leastPro)
	case lite && budget > 0:
		budget = max(budget, leastLite)
	}
	tokens := int32(budget)
	return &sdk.ThinkingConfig{ThinkingBudget: &tokens, IncludeThoughts: r.Reasoning != model.EffortNone}
}

// level is the nearest that the model has: Pro always thinks, and the first one
// knows two levels only.
func level(e model.Effort, pro bool, generation float64) sdk.ThinkingLevel {
	switch {
	case e == model.EffortNone && !pro:
		return sdk.ThinkingLevelMinimal
	case e == model.EffortNone, e == model.EffortLow:
		return sdk.ThinkingLevelLow
	case e == model.EffortMedium && !(pro && generation == 3):
		return sdk.ThinkingLevelMedium
	default:
		return sdk.ThinkingLevelHigh
	}
}
