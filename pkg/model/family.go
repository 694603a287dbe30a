package model

import "github.com/turnpike-dev/turnpike/internal/modelname"

// Family returns the name of a model in lower case, without the path before it and without what tells its builds apart,
// such as a date or -latest: "models/claude-haiku-4-5-20251001" is of the family "claude-haiku-4-5". Content that a
// model signed or encrypted is sent back only to models of its provider and family (A12).
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
