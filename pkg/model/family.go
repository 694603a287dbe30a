package model

import "github.com/turnpike-dev/turnpike/internal/modelname"

// Family returns the name of a model in lower case, without the path before it and the ending that tells its
// builds apart, in the forms known to Turnpike: a date such as -20251001 or -2025-08-07, a number such as -001,
// -latest, -preview or -exp. "models/claude-haiku-4-5-20251001" is of the family "claude-haiku-4-5". Adapters send
// content that a model signed or encrypted back only to models of its provider and family (A12). Thinking in an
// imported Anthropic transcript, which does not name a family, goes to all models of Anthropic.
func Family(name string) string { return modelname.Family(name) }

// SealedBy returns the value of state.Part.OpaqueBy for content that only models of one provider and one family can
// read.
func SealedBy(provider, name string) string { return provider + " " + Family(name) }

// Effort is the effort that a model spends on reasoning before it answers. Empty leaves it to the provider.
type Effort string

// The efforts.
const (
	EffortNone   Effort = "none"
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
	EffortXHigh  Effort = "xhigh"
	EffortMax    Effort = "max"
)

// Efforts returns the efforts in increasing order.
func Efforts() []Effort {
	return []Effort{EffortNone, EffortLow, EffortMedium, EffortHigh, EffortXHigh, EffortMax}
}
