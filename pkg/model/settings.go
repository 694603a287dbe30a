package model

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Settings tune the answers of a model. A setting that is not set is the provider's choice. Gateways refuse settings
// that the family of models does not accept: see Spec.Takes.
type Settings struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	TopK        *int64   `json:"top_k,omitempty"`
	Stop        []string `json:"stop,omitempty"` // texts that end an answer
	Seed        *int64   `json:"seed,omitempty"`

	// ToolChoice is the mode of tool calls. A choice that forces a call applies only to the first model call after
	// input of the user, so that the model can answer when it has the result.
	ToolChoice        ToolChoice  `json:"tool_choice,omitzero"`
	ParallelToolCalls *bool       `json:"parallel_tool_calls,omitempty"`
	ServiceTier       ServiceTier `json:"service_tier,omitempty"`

	// Cache determines how long the provider keeps the prompt for the run's next call. Empty means CacheAuto.
	Cache Cache `json:"cache,omitempty"`

	// Extra is merged into the body of a request. Gateways accept only fields that the operator allows, and none that
	// Turnpike sets itself: see Extras.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// ToolMode determines whether a model may, must or must not call tools. Empty means ToolsAuto.
type ToolMode string

// The modes.
const (
	ToolsAuto ToolMode = "auto"
	ToolsNone ToolMode = "none" // the model sees its tools and calls none
	ToolsAny  ToolMode = "any"  // the model calls at least one
)

// ToolChoice is a mode, or the name of the tool that a model must call. In JSON it is a text or {"name": TOOL}.
type ToolChoice struct {
	Mode ToolMode
	Tool string
}

// Forced reports whether the model must call a tool.
func (c ToolChoice) Forced() bool { return c.Mode == ToolsAny || c.Tool != "" }

// IsZero reports whether c has neither a mode nor a tool.
func (c ToolChoice) IsZero() bool { return c == ToolChoice{} }

// MarshalJSON encodes c in a form that UnmarshalJSON decodes.
func (c ToolChoice) MarshalJSON() ([]byte, error) {
	if c.Tool != "" {
		return json.Marshal(map[string]string{"name": c.Tool})
	}
	return json.Marshal(c.Mode)
}

// UnmarshalJSON decodes auto, none, any, {"name": TOOL}, or the name of a tool alone.
func (c *ToolChoice) UnmarshalJSON(b []byte) error {
	var text string
	var named map[string]string
	switch {
	case json.Unmarshal(b, &text) == nil:
	case json.Unmarshal(b, &named) == nil && len(named) == 1 && named["name"] != "":
		*c = ToolChoice{Tool: named["name"]}
		return nil
	default:
		return fmt.Errorf("the tool choice %.60s is not valid: write auto, none, any or {name: TOOL}", b)
	}
	switch m := ToolMode(text); m {
	case "", ToolsAuto, ToolsNone, ToolsAny:
		*c = ToolChoice{Mode: m}
	default:
		*c = ToolChoice{Tool: text}
	}
	return nil
}

// ServiceTier selects the speed and price of a request. Empty means the provider's default.
type ServiceTier string

// The tiers.
const (
	TierStandard ServiceTier = "standard"
	TierFlex     ServiceTier = "flex"
	TierPriority ServiceTier = "priority"
)

// Cache is a policy for the provider's prompt cache.
type Cache string

// The policies.
const (
	// CacheAuto caches the prompt if a next call is likely: for an hour if the worker expects that call 5 to 60 minutes
	// later, else for 5 minutes.
	CacheAuto Cache = "auto"

	CacheOff         Cache = "off"
	CacheFiveMinutes Cache = "5m"
	CacheHour        Cache = "1h"
)

// Refusal is a setting that a model refuses: its key and the reason.
type Refusal struct{ Key, Text string }

// Choice is the model of a definition with its settings.
type Choice struct {
	Provider  string // its name in the definition
	Model     string
	API       API // empty means the provider's default
	BaseURL   string
	Reasoning Effort
	Settings
}

// given returns the keys of the settings that are set in c.
func (c Choice) given() []string {
	var keys []string
	for _, k := range []struct {
		key string
		is  bool
	}{
		{"temperature", c.Temperature != nil},
		{"top_p", c.TopP != nil},
		{"top_k", c.TopK != nil},
		{"stop", len(c.Stop) > 0},
		{"seed", c.Seed != nil},
		{"tool_choice", !c.ToolChoice.IsZero()},
		{"parallel_tool_calls", c.ParallelToolCalls != nil},
		{"service_tier", c.ServiceTier != ""},
		{"cache", c.Cache != "" && c.Cache != CacheAuto},
		{"reasoning", c.Reasoning != ""},
	} {
		if k.is {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// Check returns the settings in c that are invalid for any provider, and those that the models of s do not accept.
func (s Spec) Check(c Choice) []Refusal {
	wrong := c.outOfRange()
	if s.Takes == nil {
		return wrong
	}
	c = s.withAPI(c)
	for _, key := range c.given() {
		if text := s.refuses(c, key); text != "" {
			wrong = append(wrong, Refusal{key, text})
		}
	}
	return wrong
}

// withAPI returns c with the provider's default API if c names none.
func (s Spec) withAPI(c Choice) Choice {
	if c.API == "" && len(s.APIs) > 0 {
		if c.API = APIResponses; c.BaseURL != "" {
			c.API = APIChat
		}
	}
	return c
}

// refuses returns the reason why a model does not accept a setting, or "".
func (s Spec) refuses(c Choice, key string) string {
	var elsewhere API
	for _, t := range s.Takes {
		if t.Setting != key {
			continue
		}
		if t.API != "" && t.API != c.API {
			elsewhere = t.API
			continue
		}
		for _, e := range t.Not {
			if e.Refuses(c) {
				return e.Text
			}
		}
		return ""
	}
	if elsewhere != "" {
		return fmt.Sprintf("the API %s of %s does not support it: remove it, or write api: %s", c.API, c.Provider, elsewhere)
	}
	return c.Provider + " does not support it: remove it"
}

// Bounds of the texts that end an answer: their number, and the bytes of each.
const (
	maxStops = 16
	maxStop  = 256
)

// outOfRange returns the settings that no model accepts.
func (c Choice) outOfRange() (wrong []Refusal) {
	refuse := func(key, format string, args ...any) {
		wrong = append(wrong, Refusal{key, fmt.Sprintf(format, args...)})
	}
	if v := c.Temperature; v != nil && !(*v >= 0 && *v <= 2) {
		refuse("temperature", "%v is not between 0 and 2: write a number in that range", *v)
	}
	if v := c.TopP; v != nil && !(*v >= 0 && *v <= 1) {
		refuse("top_p", "%v is not between 0 and 1: write a number in that range", *v)
	}
	if v := c.TopK; v != nil && *v < 1 {
		refuse("top_k", "%d is below 1: write 1 or more", *v)
	}
	if len(c.Stop) > maxStops {
		refuse("stop", "there are %d, at most %d are allowed: remove some", len(c.Stop), maxStops)
	}
	for i, text := range c.Stop {
		switch {
		case strings.TrimSpace(text) == "":
			refuse(fmt.Sprintf("stop[%d]", i), "it is blank: remove it")
		case len(text) > maxStop:
			refuse(fmt.Sprintf("stop[%d]", i), "it has %d bytes, at most %d are allowed: shorten it", len(text), maxStop)
		}
	}
	switch c.ServiceTier {
	case "", TierStandard, TierFlex, TierPriority:
	default:
		refuse("service_tier", "it is %q: write standard, flex or priority", c.ServiceTier)
	}
	switch c.Cache {
	case "", CacheAuto, CacheOff, CacheFiveMinutes, CacheHour:
	default:
		refuse("cache", "it is %q: write auto, off, 5m or 1h", c.Cache)
	}
	return wrong
}
