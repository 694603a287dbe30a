package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/internal/keys"
)

// Compile compiles a JSON Schema. It loads nothing from other places, and every check of a value that is at most
// MaxDepth levels deep ends. It subtracts the instructions of the schema's regular expressions from left, and compiles
// none of them if left does not suffice.
func Compile(raw json.RawMessage, left *int) (*Schema, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, errors.New("not a JSON Schema: write an object such as {\"type\": \"object\"}")
	}
	if TooDeep(raw) {
		return nil, fmt.Errorf("not a usable JSON Schema: the schema is nested more than %d levels deep: flatten it", MaxDepth)
	}
	if err := boundSize(raw); err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		if place := misread("", raw); place != "" {
			return nil, fmt.Errorf("not a JSON Schema: the value of #%s has a wrong type or is out of range: write one that JSON Schema allows for this keyword; counts such as maxLength are integers up to %d", keys.Clip(place), math.MaxInt32)
		}
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	// Examine the library's interpretation, not the text: the library may accept a duplicate or
	// wrongly capitalised key.
	understood, err := json.Marshal(&s)
	var refs *references
	if err == nil {
		refs, err = boundSchema(understood)
	}
	if err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	return refs.compile(&s, left)
}

// misread returns the path of the keyword whose value the library cannot read, or "" if no single keyword is the cause.
// The library's own errors name its Go types instead of the path.
func misread(place string, raw json.RawMessage) string {
	unreadable := func(raw json.RawMessage) bool { return json.Unmarshal(raw, new(jsonschema.Schema)) != nil }
	var words map[string]json.RawMessage
	if json.Unmarshal(raw, &words) != nil {
		return place
	}
	for _, word := range slices.Sorted(maps.Keys(words)) {
		alone, err := json.Marshal(map[string]json.RawMessage{word: words[word]})
		if err != nil || !unreadable(alone) {
			continue
		}
		at := below(place, word)
		inner := map[string]json.RawMessage{}
		var list []json.RawMessage
		switch {
		case slices.Contains(named, word):
			_ = json.Unmarshal(words[word], &inner) // it stays empty for a value of another type
		case slices.Contains(single, word) || word == "items" && bytes.HasPrefix(words[word], []byte("{")):
			return misread(at, words[word])
		case slices.Contains(listed, word) && json.Unmarshal(words[word], &list) == nil:
			for i, s := range list {
				inner[strconv.Itoa(i)] = s
			}
		}
		for _, name := range slices.Sorted(maps.Keys(inner)) {
			if unreadable(inner[name]) {
				return misread(below(at, name), inner[name])
			}
		}
		return at
	}
	return ""
}

// The keywords whose values are schemas: by name, in a list, or a single one.
var (
	named  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
	listed = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	single = []string{
		"not", "if", "then", "else", "contains", "additionalItems", "unevaluatedItems", "additionalProperties",
		"propertyNames", "unevaluatedProperties", "contentSchema",
	}
)

// CompileArguments compiles the schema of a tool's arguments or of variables, which must admit an object.
func CompileArguments(raw json.RawMessage, left *int) (*Schema, error) {
	r, err := Compile(raw, left)
	if err != nil {
		return nil, err
	}
	if !r.root.anyType && r.root.types&kindObject == 0 {
		return nil, errors.New("the type of the schema is not \"object\": set type to \"object\"")
	}
	return r, nil
}

// alone returns the instructions for the regular expressions of a schema that belongs to no definition.
func alone() *int {
	left := maxPatterns
	return &left
}

// CheckArguments returns an error if raw is not a usable JSON Schema of a tool's arguments: see CompileArguments.
func CheckArguments(raw json.RawMessage) error {
	_, err := CompileArguments(raw, alone())
	return err
}

// Check returns an error if raw is not a usable JSON Schema: see Compile.
func Check(raw json.RawMessage) error {
	_, err := Compile(raw, alone())
	return err
}

// ValidateOutput returns text as compact JSON, or an error if it is not JSON that schema admits.
func ValidateOutput(schema json.RawMessage, text string) (json.RawMessage, error) {
	r, err := recent.compile(schema)
	if err != nil {
		return nil, err
	}
	if TooDeep([]byte(text)) {
		return nil, fmt.Errorf("the output is nested more than %d levels deep: nest it less; if the schema requires more levels, its author must flatten it", MaxDepth)
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("the output is not JSON: %w", err)
	}
	if err := r.Validate(v, TurnSteps()); err != nil {
		if f, ok := errors.AsType[*fault](err); ok && f.spent {
			return nil, fmt.Errorf("the output was not checked completely against the schema: %w", err)
		}
		return nil, fmt.Errorf("the output does not match the schema: %w", err)
	}
	// Compacted, not encoded again: large numbers keep their digits.
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return nil, fmt.Errorf("the output is not JSON: %w", err)
	}
	return b.Bytes(), nil
}
