package jsonschema_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
)

// One name may have both required members and a schema, and both apply, also where only one of them does for another
// name. The keywords of the other draft have no effect, but a reference may lead to their schemas.
func TestDependencies(t *testing.T) {
	t.Parallel()
	const both = `{"dependentRequired": {"card": ["address"], "phone": ["name"]}, "dependentSchemas": {"card": {"maxProperties": 2}, "mail": {"required": ["name"]}}}`
	const seventh = `{"$schema": "http://json-schema.org/draft-07/schema#", `
	for _, c := range []struct{ schema, value, want string }{
		{both, `{"card": 1, "address": 2}`, ""},
		{both, `{"card": 1}`, `the member "address" is missing, which "card" requires`},
		{both, `{"card": 1, "address": 2, "more": 3}`, "it has 3 members, at most 2 are allowed"},
		{both, `{"a": 1, "b": 2, "c": 3}`, ""},
		{both, `{"phone": 1}`, `the member "name" is missing, which "phone" requires`},
		{both, `{"mail": 1}`, `the member "name" is missing: send it`},
		{both, `{"mail": 1, "phone": 2, "name": 3}`, ""},
		{seventh + `"dependencies": {"card": ["address"], "mail": {"required": ["name"]}}}`, `{"card": 1}`, `the member "address" is missing, which "card" requires`},
		{seventh + `"dependencies": {"card": ["address"], "mail": {"required": ["name"]}}}`, `{"mail": 1}`, `the member "name" is missing: send it`},
		{seventh + both[1:], `{"mail": 1, "a": 2}`, ""},
		{`{"dependencies": {"mail": {"required": ["name"]}}}`, `{"mail": 1}`, ""},
		{`{"dependencies": {"mail": {"type": "string"}}, "properties": {"a": {"$ref": "#/dependencies/mail"}}}`, `{"a": 1}`, "send a value of type string"},
		{seventh + `"dependentSchemas": {"mail": {"type": "string"}}, "properties": {"a": {"$ref": "#/dependentSchemas/mail"}}}`, `{"a": 1}`, "send a value of type string"},
	} {
		_, err := jsonschema.ValidateOutput([]byte(c.schema), c.value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v, want an error with %q", c.value, c.schema, err, c.want)
		}
		if valid, usable := byLibrary(t, []byte(c.schema), []byte(c.value)); !usable || valid != (c.want == "") {
			t.Errorf("%s with %s: the library returns valid %t, usable %t", c.value, c.schema, valid, usable)
		}
	}
}
