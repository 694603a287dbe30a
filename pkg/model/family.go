package model

import "github.com/turnpike-dev/turnpike/internal/modelname"

// Family returns the name of a model in lower case, without the path before it and the endings that tell its builds
// apart. An ending begins with - or @, and is a date (20251001, 2025-08-07 or 04-17), a number of three digits (001),
// latest, preview or exp. After it, a version such as -v1, a number such as :0, or both may follow. All endings are
// removed, so "gemini-2.5-pro-preview-05-06" is of the family "gemini-2.5-pro", and
// "us/anthropic.claude-haiku-4-5-20251001-v1:0" is of "anthropic.claude-haiku-4-5". A name that consists only of
// endings stays whole. Adapters send content that a model signed or encrypted back only to models of its provider and
// family (A12). Thinking in an imported Anthropic transcript, which does not name a family, goes to all models of
// Anthropic.
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
