package mcptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// field is one property of a form.
type field struct {
	property

	name     string
	required bool
}

// property has the keywords that the protocol allows in a form's field. All other parts of a
// server's schema are ignored: following references could loop forever.
//
//nolint:tagliatelle // the keys of JSON Schema
type property struct {
	Type        string          `json:"type"`
	Description string          `json:"description"`
	Enum        []any           `json:"enum"`
	OneOf       []choice        `json:"oneOf"`
	Default     json.RawMessage `json:"default"`
	Minimum     *float64        `json:"minimum"`
	Maximum     *float64        `json:"maximum"`
	MinLength   *int            `json:"minLength"`
	MaxLength   *int            `json:"maxLength"`
	MinItems    *int            `json:"minItems"`
	MaxItems    *int            `json:"maxItems"`
	Items       struct {
		Enum  []any    `json:"enum"`
		AnyOf []choice `json:"anyOf"`
	} `json:"items"`
}

type choice struct {
	Const any `json:"const"`
}

func consts(choices []choice) []any {
	var list []any
	for _, c := range choices {
		list = append(list, c.Const)
	}
	return list
}

// fields returns the properties of a form, in the order of their names.
func fields(asked *mcp.ElicitParams) []field {
	var form struct {
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	b, err := json.Marshal(asked.RequestedSchema)
	if err != nil || json.Unmarshal(b, &form) != nil {
		return nil
	}
	var list []field
	for _, name := range slices.Sorted(maps.Keys(form.Properties)) {
		list = append(list, field{form.Properties[name], name, slices.Contains(form.Required, name)})
	}
	return list
}

// schemaOf returns the schema that the answer to a form must satisfy.
func schemaOf(form []field) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, f := range form {
		p := &jsonschema.Schema{
			Type: f.Type, Enum: f.Enum, Default: f.Default, Minimum: f.Minimum, Maximum: f.Maximum,
			MinLength: f.MinLength, MaxLength: f.MaxLength, MinItems: f.MinItems, MaxItems: f.MaxItems,
		}
		if len(f.OneOf) > 0 {
			p.Enum = consts(f.OneOf)
		}
		if of := slices.Concat(f.Items.Enum, consts(f.Items.AnyOf)); len(of) > 0 {
			p.Items = &jsonschema.Schema{Enum: of}
		}
		s.Properties[f.name] = p
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func (f field) String() string {
	about := []string{f.Type}
	for _, v := range slices.Concat(f.Enum, consts(f.OneOf), f.Items.Enum, consts(f.Items.AnyOf)) {
		about = append(about, fmt.Sprint(v))
	}
	if !f.required {
		about = append(about, "optional")
	}
	text := fmt.Sprintf("%s (%s)", f.name, strings.Join(about, ", "))
	if f.Description != "" {
		text += ": " + f.Description
	}
	return text
}

// answerOf parses a person's answer: decline or cancel; a JSON object with the fields of the form; a complete answer
// of the protocol, {"action": ..., "content": {...}}; or other text. For a form with one field the text is its value.
// For a form with several fields it must be accept, which leaves all fields to their defaults. For a question without
// fields, any text accepts. The error describes what is wrong, for the person.
func answerOf(asked *mcp.ElicitParams, text string) (*mcp.ElicitResult, error) {
	list := fields(asked)
	word := strings.ToLower(strings.TrimSpace(text))
	if word == actionDecline || word == actionCancel {
		return &mcp.ElicitResult{Action: word}, nil
	}
	var content map[string]any
	switch err := json.Unmarshal([]byte(text), &content); {
	case err == nil && content != nil:
		if whole := wholeAnswer(content, list); whole != nil {
			if whole.Action != actionAccept {
				return whole, nil
			}
			content = whole.Content
		}
	case asked.URL != "" || len(list) == 0:
		return &mcp.ElicitResult{Action: actionAccept}, nil
	case len(list) == 1:
		v, err := value(list[0], text)
		if err != nil {
			return nil, err
		}
		content = map[string]any{list[0].name: v}
	case word == actionAccept:
		content = map[string]any{} // the defaults may suffice
	default:
		return nil, fmt.Errorf("the form has %d fields: answer with a JSON object that has their values", len(list))
	}
	if content == nil {
		content = map[string]any{}
	}
	if err := affordable(list, content); err != nil {
		return nil, err
	}
	resolved, err := schemaOf(list).Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the server's form is not valid (%w): answer with %s", err, actionDecline)
	}
	if err := resolved.ApplyDefaults(&content); err != nil {
		return nil, err
	}
	if err := resolved.Validate(content); err != nil {
		return nil, errors.New(tool.Truncate(err.Error(), maxReason))
	}
	return &mcp.ElicitResult{Action: actionAccept, Content: content}, nil
}

const (
	// maxChoices limits the comparisons of an answer with the choices of a form. The library compares each item with
	// each choice, and cannot be interrupted.
	maxChoices = 500_000
	maxReason  = 500 // bytes of the error for an answer
)

// affordable returns an error if comparing an answer with the choices of a form would take long.
func affordable(form []field, content map[string]any) error {
	for _, f := range form {
		items, ok := content[f.name].([]any)
		choices := len(f.Items.Enum) + len(f.Items.AnyOf)
		if ok && choices > 0 && len(items) > maxChoices/choices {
			return fmt.Errorf("%s: %d answers cannot be checked against the %d choices of the form: choose at most %d", f.name, len(items), choices, maxChoices/choices)
		}
	}
	return nil
}

// wholeAnswer returns content as an answer of the protocol, or nil if it is not one or may be the content of the form.
func wholeAnswer(content map[string]any, form []field) *mcp.ElicitResult {
	action, ok := content["action"].(string)
	own := slices.ContainsFunc(form, func(f field) bool { return f.name == "action" })
	if !ok || own || !slices.Contains([]string{actionAccept, actionDecline, actionCancel}, action) {
		return nil
	}
	inner, _ := content["content"].(map[string]any)
	return &mcp.ElicitResult{Action: action, Content: inner}
}

// value parses the answer to a form with one field.
func value(f field, text string) (any, error) {
	text = strings.TrimSpace(text)
	switch f.Type {
	case "boolean":
		switch strings.ToLower(text) {
		case "yes", "y", "true", actionAccept:
			return true, nil
		case "no", "n", "false":
			return false, nil
		}
		return nil, errors.New("the answer is neither yes nor no: answer with one of them")
	case "number", "integer":
		n, err := strconv.ParseFloat(text, 64)
		if errors.Is(err, strconv.ErrRange) {
			return nil, errors.New("the number is too large: answer with a smaller one")
		}
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, errors.New("the answer is not a number: answer with one")
		}
		return n, nil
	case "array":
		var list []any
		if json.Unmarshal([]byte(text), &list) == nil {
			return list, nil
		}
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
		return list, nil
	default:
		return text, nil
	}
}
