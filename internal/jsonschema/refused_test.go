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
		`{"type": "objekt"}`:                                                        `#/type is "objekt", which is not a type: write one of array, boolean, integer, null, number, object, string`,
		`{"type": ["object", "nul"]}`:                                               `#/type is "nul", which is not a type: write one of`,
		`{"properties": {"a": {"items": {"type": "strng"}}}}`:                       `#/properties/a/items/type is "strng", which is not a type: write one of`,
		`{"required": "a"}`:                                                         "the value of #/required has a wrong type",
		`{"properties": {"required": {"type": "string"}}, "minLength": "a"}`:        "the value of #/minLength has a wrong type",
		`{"maxLength": 2147483648}`:                                                 "the value of #/maxLength has a wrong type or is out of range",
		`{"properties": {"a": null}}`:                                               "the schema at #/properties/a is null: write a schema there, or remove it",
		`{"properties": {"a": 5}}`:                                                  "the value of #/properties/a has a wrong type",
		`{"properties": {"a": {"enum": 5}}}`:                                        "the value of #/properties/a/enum has a wrong type",
		`{"properties": {"a/b": {"anyOf": [true, {"exclusiveMinimum": true}]}}}`:    "the value of #/properties/a~1b/anyOf/1/exclusiveMinimum has a wrong type",
		`{"items": {"not": {"maxItems": "a"}}}`:                                     "the value of #/items/not/maxItems has a wrong type",
		`{"properties": {"a": {"type": "string", "pattern": "("}}}`:                 "missing closing )",
		`{"type": "object", "properties": {"a": {"type": {"type": "string"}}}}`:     "the value of #/properties/a/type has a wrong type",
		`{"$defs": {"properties": {"properties": []}}, "allOf": [{"const": 1}, 1]}`: "the value of #/$defs/properties/properties has a wrong type",
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

// A check without steps left is refused, whichever keyword it was in: it is not known whether the value matches.
func TestCheckWithoutSteps(t *testing.T) {
	t.Parallel()
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 30_000), ",") + "]"
	long := `{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"items":{"type":"integer"}},`, 20), ",") + `]}`
	for keyword, c := range map[string]struct{ schema, value string }{
		"not":      {`{"not":` + long + `}`, list},
		"if":       {`{"if":` + long + `}`, list},
		"oneOf":    {`{"oneOf":[` + long + `]}`, list},
		"anyOf":    {`{"anyOf":[` + long + `]}`, list},
		"contains": {`{"contains":` + long + `,"minContains":0}`, "[" + list + "]"},
		"allOf":    {long, list},
	} {
		if _, err := jsonschema.ValidateOutput([]byte(c.schema), c.value); err == nil || !strings.Contains(err.Error(), "its check was stopped after 500000 steps, the maximum") {
			t.Errorf("%s: %v, want the check stopped", keyword, err)
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
