package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Fields of the bodies of requests that definitions may set, and fields that they may never set.
var (
	anthropicExtra = []string{"inference_geo", "metadata.user_id"}
	anthropicOwn   = []string{
		"model", "messages", "system", "tools", "tool_choice", "stream", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "thinking",
		"output_config.effort", "output_config.format", "output_format", "service_tier", "cache_control", "container", "mcp_servers", "context_management", "diagnostics", "betas",
	}
	openAIExtra = []string{
		"frequency_penalty", "presence_penalty", "logit_bias", "verbosity", "text.verbosity", "reasoning.summary", "prompt_cache_key", "safety_identifier",
	}
	openAIOwn = []string{
		"model", "messages", "input", "instructions", "prompt", "tools", "tool_choice", "tool_resources", "functions", "function_call", "parallel_tool_calls", "max_tool_calls",
		"stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "top_p", "stop", "seed", "service_tier",
		"response_format", "text.format", "reasoning_effort", "reasoning.effort", "include", "n", "modalities", "audio",
		"store", "metadata", "background", "conversation", "previous_response_id", "context_management", "prompt_cache_options.mode", "web_search_options", "access_programs",
	}
	geminiExtra = []string{"generationConfig.presencePenalty", "generationConfig.frequencyPenalty", "generationConfig.mediaResolution"}
	geminiOwn   = []string{
		"model", "contents", "systemInstruction", "tools", "toolConfig", "cachedContent", "store", "serviceTier",
		"generationConfig.temperature", "generationConfig.topP", "generationConfig.topK", "generationConfig.stopSequences", "generationConfig.seed",
		"generationConfig.maxOutputTokens", "generationConfig.thinkingConfig", "generationConfig.candidateCount", "generationConfig.responseModalities",
		"generationConfig.responseMimeType", "generationConfig.responseSchema", "generationConfig.responseJsonSchema", "generationConfig.routingConfig", "generationOutputConfig",
	}
)

// Extras are the fields that model.extra of a definition may set, by provider. nil allows all fields that Turnpike does
// not set itself.
type Extras map[string][]string

// NewExtras returns the fields that the providers allow and, in addition, those that the operator allows with entries
// "PROVIDER:FIELD", such as "openai:prompt_cache_retention". FIELD is a path with dots. The error names the first entry
// that has another form, or whose field Turnpike never allows or sets itself, wholly or in part. An unknown provider is
// no error.
func NewExtras(specs Specs, allow []string) (Extras, error) {
	e := Extras{}
	for name, spec := range specs {
		e[name] = slices.Clone(spec.Extra)
	}
	for _, entry := range allow {
		name, field, ok := strings.Cut(strings.TrimSpace(entry), ":")
		switch {
		case !ok || name == "" || !fieldPath.MatchString(field):
			return nil, fmt.Errorf("model extra %q is not PROVIDER:FIELD: write one such as openai:prompt_cache_retention (TURNPIKE_MODEL_EXTRA; in Go, ModelExtra)", entry)
		case specs[name].owns(field) != apart:
			return nil, fmt.Errorf("model extra %q is not allowed, since Turnpike sets this field or a part of it, or it would make the provider store data, run tools or call other servers: remove it (TURNPIKE_MODEL_EXTRA; in Go, ModelExtra)", entry)
		}
		e[name] = append(e[name], field)
	}
	return e, nil
}

var (
	fieldPath = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// relation is the relation of a field to a list of fields.
type relation int

const (
	apart  relation = iota
	inside          // the field is one of the list, or a part of one
	above           // a field of the list is a part of it
)

// lies returns the relation of path to fields. Providers accept names in camel case and with
// underscores alike.
func lies(path string, fields []string) relation {
	path = plainName(path)
	found := apart
	for _, f := range fields {
		f = plainName(f)
		switch {
		case path == f || strings.HasPrefix(path, f+"."):
			return inside
		case strings.HasPrefix(f, path+"."):
			found = above
		}
	}
	return found
}

func plainName(path string) string { return strings.ToLower(strings.ReplaceAll(path, "_", "")) }

func (s Spec) owns(path string) relation { return lies(path, s.Own) }

// CheckExtra returns the mistakes in the extra fields of a definition's model. name is the provider's name in the
// specs. Scripted providers ignore the fields, so they have no mistakes.
func (e Extras) CheckExtra(name string, s Spec, extra map[string]json.RawMessage) []Refusal {
	if s.Scripted {
		return nil // nobody gets them
	}
	var wrong []Refusal
	s.walkExtra("", extra, e[name], func(path string, _ json.RawMessage) {
		at := "extra." + path
		switch {
		case !fieldPath.MatchString(path):
			wrong = append(wrong, Refusal{at, "it is not a valid name of a field: use letters, digits and _"})
		case s.owns(path) != apart:
			wrong = append(wrong, Refusal{at, "it is not allowed, since Turnpike sets this field or a part of it, or it would make the provider store data, run tools or call other servers: remove it"})
		case e != nil && lies(path, e[name]) != inside:
			wrong = append(wrong, Refusal{at, fmt.Sprintf("this deployment does not allow it: remove it, or ask the operator to add %s:%s to TURNPIKE_MODEL_EXTRA (in Go, Options.ModelExtra)", name, path)})
		}
	})
	return wrong
}

// Field is a field of a request's body, as a path with dots, and its value.
type Field struct {
	Path  string
	Value json.RawMessage
}

// ExtraFields returns the fields that Extra sets in the body of a request, sorted, without those that Turnpike sets
// itself for the built-in provider of that name.
func (s Settings) ExtraFields(provider string) []Field {
	var fields []Field
	spec := builtin[provider]
	spec.walkExtra("", s.Extra, nil, func(path string, value json.RawMessage) {
		if fieldPath.MatchString(path) && spec.owns(path) == apart {
			fields = append(fields, Field{path, value})
		}
	})
	return fields
}

// walkExtra calls each for every field that extra sets. It descends into objects that contain a field of Own or of
// allowed, and passes other values whole.
func (s Spec) walkExtra(prefix string, extra map[string]json.RawMessage, allowed []string, each func(path string, value json.RawMessage)) {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		path := prefix + key
		var object map[string]json.RawMessage
		if fieldName.MatchString(key) && (s.owns(path) == above || lies(path, allowed) == above) && json.Unmarshal(extra[key], &object) == nil && len(object) > 0 {
			s.walkExtra(path+".", object, allowed, each)
			continue
		}
		each(path, extra[key])
	}
}
