package toolspec

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Hosted is the settings of the kind Provider. Which Settings are valid depends on the models of the agent.
type Hosted struct {
	// MaxUses is the maximum number of uses of the tool in one model call; 0 means no limit.
	MaxUses int64 `json:"max_uses,omitempty"`

	Settings json.RawMessage `json:"settings,omitempty"`
}

// maxSettings is the maximum size of the settings of a provider's tool, in bytes.
const maxSettings = 64 << 10

// isZero reports whether an author has written 0 for a key of a tool, which differs from a missing key.
func isZero(d tool.Definition, key string) bool {
	var own map[string]json.RawMessage
	return json.Unmarshal(d.Own, &own) == nil && string(own[key]) == "0"
}

func checkHosted(d tool.Definition, s *Hosted) (tool.Needs, error) {
	var errs []error
	if !model.IsProviderTool(d.Name) {
		errs = append(errs, tool.Invalid("name", "%.80q is not a tool that model providers run: write one of %s", d.Name, strings.Join(model.ProviderTools(), ", ")))
	}
	if isZero(d, "max_uses") || s.MaxUses < 0 || s.MaxUses > model.MostUses {
		errs = append(errs, tool.Invalid("max_uses", "%d is not between 1 and %d: write a number in that range", s.MaxUses, model.MostUses))
	}
	if n := len(s.Settings); n > maxSettings {
		errs = append(errs, tool.Invalid("settings", "they have %d bytes, at most %d are allowed: shorten them", n, maxSettings))
	}
	for _, key := range []struct {
		name string
		set  bool
	}{
		{"description", d.Description != ""}, {"schema", len(d.Schema) > 0}, {"approval", d.Approval != ""}, {"risk", d.Risk != ""},
		{"idempotent", d.Idempotent}, {"probe", d.Probe != nil}, {"reuse", d.Reuse != nil}, {"max_calls", d.MaxCalls != 0},
		{"max_result", d.MaxResult != 0}, {"timeout", d.Timeout != 0}, {"concurrency", d.Concurrency != ""},
	} {
		if !key.set {
			continue
		}
		text := "the model's provider runs the tool, so no worker makes its calls: remove it"
		switch key.name {
		case "approval":
			text = "the model's provider runs the tool during the model call, so no person can approve it first: remove it, or use a tool of another kind"
		case "max_calls":
			text = "the model's provider runs the tool, so the worker cannot count its calls: write max_uses, the maximum for one model call"
		}
		errs = append(errs, tool.Invalid(key.name, "%s", text))
	}
	return tool.Needs{By: tool.ByProvider, MaxUses: s.MaxUses, Options: s.Settings}, errors.Join(errs...)
}
