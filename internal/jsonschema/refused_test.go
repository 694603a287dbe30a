package jsonschema_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
)

func TestRefusedSchemasNameThePlace(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type": "objekt"}`:                                                        `#/type: "objekt" is not one of array, boolean, integer, null, number, object, string`,
		`{"type": ["object", "nul"]}`:                                               `#/type: "nul" is not one of`,
		`{"properties": {"a": {"items": {"type": "strng"}}}}`:                       `#/properties/a/items/type: "strng" is not one of`,
		`{"required": "a"}`:                                                         "#/required has a value of a wrong type",
		`{"properties": {"required": {"type": "string"}}, "minLength": "a"}`:        "#/minLength has a value of a wrong type",
		`{"properties": {"a": 5}}`:                                                  "#/properties/a has a value of a wrong type",
		`{"properties": {"a": {"enum": 5}}}`:                                        "#/properties/a/enum has a value of a wrong type",
		`{"properties": {"a/b": {"anyOf": [true, {"exclusiveMinimum": true}]}}}`:    "#/properties/a~1b/anyOf/1/exclusiveMinimum has a value of a wrong type",
		`{"items": {"not": {"maxItems": "a"}}}`:                                     "#/items/not/maxItems has a value of a wrong type",
		`{"properties": {"a": {"type": "string", "pattern": "("}}}`:                 "missing closing )",
		`{"type": "object", "properties": {"a": {"type": {"type": "string"}}}}`:     "#/properties/a/type has a value of a wrong type",
		`{"$defs": {"properties": {"properties": []}}, "allOf": [{"const": 1}, 1]}`: "#/$defs/properties/properties has a value of a wrong type",
	} {
		err := jsonschema.Check([]byte(schema))
		if !refusedSchema(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", schema, err, want)
		}
		if err != nil && strings.Contains(strings.ToLower(err.Error()), "unmarshal") {
			t.Errorf("%s: %v names the library, not the schema", schema, err)
		}
	}
}

func TestInMember(t *testing.T) {
	left := 10_000
	s, err := jsonschema.Compile([]byte(`{"minProperties": 1, "properties": {"a": {"type": "integer"}, "b": {"items": {"type": "string"}}}}`), &left)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string][2]string{
		`{"a": "x"}`:         {"a", "the value: it is \"x\": send a value of type integer"},
		`{"b": ["x", true]}`: {"b", "/1: it is"},
		`{}`:                 {"", "the value: "},
	} {
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
		name, err := jsonschema.InMember(s.Validate(v, jsonschema.TurnSteps()))
		if err == nil || name != want[0] || !strings.HasPrefix(err.Error(), want[1]) {
			t.Errorf("%s: member %q, %v, want %q", value, name, err, want)
		}
	}
	if name, err := jsonschema.InMember(errors.New("other")); name != "" || err.Error() != "other" {
		t.Errorf("another error: %q, %v", name, err)
	}
}
