package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Compile compiles a JSON Schema. Nothing is loaded from anywhere, and
// checking a value that is not too deep against the result ends. It takes the instructions of the
// schema's regular expressions from left, and compiles none of them if they exceed it.
func Compile(raw json.RawMessage, left *int) (*Schema, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, errors.New("not a JSON Schema: it must be an object such as {\"type\": \"object\"}")
	}
	if TooDeep(raw) {
		return nil, fmt.Errorf("not a usable JSON Schema: it is nested more than %d levels deep", MaxDepth)
	}
	if err := boundSize(raw); err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
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

// CompileArguments compiles the schema of a tool's arguments, which are an object.
func CompileArguments(raw json.RawMessage, left *int) (*Schema, error) {
	r, err := Compile(raw, left)
	if err != nil {
		return nil, err
	}
	if !r.root.anyType && r.root.types&kindObject == 0 {
		return nil, errors.New("the arguments of a tool are an object: its type must be \"object\"")
	}
	return r, nil
}

// alone returns the instructions that a schema may have which belongs to no definition.
func alone() *int {
	left := maxPatterns
	return &left
}

// CheckArguments returns an error if raw is not a JSON Schema of a tool's arguments.
func CheckArguments(raw json.RawMessage) error {
	_, err := CompileArguments(raw, alone())
	return err
}

// Check returns an error if raw is not a JSON Schema.
func Check(raw json.RawMessage) error {
	_, err := Compile(raw, alone())
	return err
}

// ValidateOutput returns text as a JSON value if schema admits it.
func ValidateOutput(schema json.RawMessage, text string) (json.RawMessage, error) {
	r, err := Compile(schema, alone())
	if err != nil {
		return nil, err
	}
	if TooDeep([]byte(text)) {
		return nil, fmt.Errorf("the output is nested more than %d levels deep", MaxDepth)
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("the output is not JSON: %w", err)
	}
	if err := r.Validate(v, TurnSteps()); err != nil {
		return nil, fmt.Errorf("the output does not match the schema: %w", err)
	}
	// Compacted, not encoded again: large numbers keep their digits.
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return nil, fmt.Errorf("the output is not JSON: %w", err)
	}
	return b.Bytes(), nil
}
