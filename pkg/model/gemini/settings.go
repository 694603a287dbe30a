package gemini

import (
	"strings"

	sdk "google.golang.org/genai"

	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// foreignSignature is the value that Google prescribes for a tool call of another model: from Gemini 3 on, the API
// refuses a first call of a content without a signature.
const foreignSignature = "skip_thought_signature_validator"

// three reports whether a model is Gemini 3 or later. Such a model requires signatures, accepts
// images in results, and supports an output schema together with tools.
func three(name string) bool { return modelname.Gemini(name).Since(3, 0) }

// budgets are the tokens for thinking of Gemini 2.5, as Google maps efforts to them.
var budgets = map[model.Effort]int64{model.EffortLow: 1024, model.EffortMedium: 8192, model.EffortHigh: 24576, model.EffortXHigh: 24576, model.EffortMax: 24576}

const (
	leastPro  = 128 // minimum; thinking cannot be turned off
	leastLite = 512
)

// reason requests thinking: from Gemini 3 on by a level, at 2.5 by a budget. Earlier models do not think.
func reason(r model.Request) *sdk.ThinkingConfig {
	family, v := model.Family(r.Model), modelname.Gemini(r.Model)
	pro, lite := strings.Contains(family, "pro"), strings.Contains(family, "lite")
	switch {
	case r.Reasoning == "" || !v.Since(2, 5):
		return nil
	case v.Since(3, 0):
		return &sdk.ThinkingConfig{ThinkingLevel: level(r.Reasoning, pro, v == modelname.Version{Major: 3}), IncludeThoughts: r.Reasoning != model.EffortNone}
	}
	budget := budgets[r.Reasoning]
	if r.MaxOutputTokens > 0 {
		budget = min(budget, r.MaxOutputTokens/2) // thinking counts as output
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

// level returns the nearest level that a model accepts: Pro models always think, and the first Pro has only two levels.
func level(e model.Effort, pro, first bool) sdk.ThinkingLevel {
	switch {
	case e == model.EffortNone && !pro:
		return sdk.ThinkingLevelMinimal
	case e == model.EffortNone, e == model.EffortLow:
		return sdk.ThinkingLevelLow
	case e == model.EffortMedium && !(pro && first):
		return sdk.ThinkingLevelMedium
	default:
		return sdk.ThinkingLevelHigh
	}
}

// tune applies the definition's settings for sampling, tools and service.
func tune(c *sdk.GenerateContentConfig, r model.Request) {
	c.Temperature, c.TopP = narrow(r.Temperature), narrow(r.TopP)
	if r.TopK != nil {
		k := float32(*r.TopK)
		c.TopK = &k
	}
	if r.Seed != nil {
		seed := int32(*r.Seed) //nolint:gosec // gateways refuse more
		c.Seed = &seed
	}
	c.StopSequences = r.Stop
	c.ServiceTier = sdk.ServiceTier(r.ServiceTier)
	if len(r.Tools) == 0 || r.ToolChoice.IsZero() {
		return
	}
	calling := &sdk.FunctionCallingConfig{Mode: sdk.FunctionCallingConfigMode(strings.ToUpper(string(r.ToolChoice.Mode)))}
	if r.ToolChoice.Tool != "" {
		calling.Mode, calling.AllowedFunctionNames = sdk.FunctionCallingConfigModeAny, []string{r.ToolChoice.Tool}
	}
	c.ToolConfig = &sdk.ToolConfig{FunctionCallingConfig: calling}
}

func narrow(v *float64) *float32 {
	if v == nil {
		return nil
	}
	n := float32(*v)
	return &n
}
