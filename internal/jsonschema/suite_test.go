package jsonschema_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	google "github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
)

// byLibrary returns the library's verdict about a value.
func byLibrary(t testing.TB, schema, value []byte) (valid, usable bool) {
	var s google.Schema
	if json.Unmarshal(schema, &s) != nil {
		return false, false
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return false, false
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		t.Fatal(err)
	}
	return r.Validate(v) == nil, true
}

// refusedSchemas are the prefixes of errors about schemas that are refused.
var refusedSchemas = []string{"not a JSON Schema: ", "not a usable JSON Schema: "}

func refusedSchema(err error) bool {
	for _, text := range refusedSchemas {
		if err != nil && strings.HasPrefix(err.Error(), text) {
			return true
		}
	}
	return false
}

// TestSchemaSuite runs the official JSON Schema test suite, which the library includes.
func TestSchemaSuite(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(strings.TrimSpace(string(dir)), "jsonschema", "testdata")
	tried, refused := 0, 0
	for draft, id := range map[string]string{"draft2020-12": "https://json-schema.org/draft/2020-12/schema", "draft7": "http://json-schema.org/draft-07/schema#"} {
		files, err := filepath.Glob(filepath.Join(root, draft, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", root, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var groups []struct {
				Description string
				Schema      json.RawMessage
				Tests       []struct {
					Description string
					Data        json.RawMessage
					Valid       bool
				}
			}
			if err := json.Unmarshal(data, &groups); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				schema := bytes.TrimSpace(g.Schema)
				if draft == "draft7" && bytes.HasPrefix(schema, []byte("{")) && !bytes.Contains(schema, []byte(`"$schema"`)) {
					schema = []byte(strings.TrimSuffix(`{"$schema":"`+id+`",`+string(schema[1:]), ",}") + "")
					if strings.HasSuffix(string(schema), ",") {
						schema = []byte(strings.TrimSuffix(string(schema), ",") + "}")
					}
				}
				for _, c := range g.Tests {
					_, err := jsonschema.ValidateOutput(schema, string(c.Data))
					if refusedSchema(err) {
						refused++
						continue
					}
					tried++
					if (err == nil) != c.Valid {
						want, usable := byLibrary(t, schema, c.Data)
						if usable && want == (err == nil) {
							continue // the library does not decide this case
						}
						t.Errorf("%s %s: %s: %s: %v, want valid %v", draft, filepath.Base(file), g.Description, c.Description, err, c.Valid)
					}
				}
			}
		}
	}
	t.Logf("%d cases, and %d with a refused schema", tried, refused)
	if tried < 1400 {
		t.Errorf("only %d cases", tried)
	}
}

// FuzzSchemaAgrees checks that a value is valid here exactly if it is valid for the library.
func FuzzSchemaAgrees(f *testing.F) {
	for _, c := range [][2]string{
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"pattern":"^a+$"}}}`, `{"a":"aa"}`},
		{`{"items":{"anyOf":[{"type":"integer"},{"enum":["a",null]}]},"uniqueItems":true}`, `[1,"a",null]`},
		{`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, `{"a":1,"b":2}`},
		{`{"anyOf":[{"contains":{"const":1}},{"prefixItems":[true]}],"unevaluatedItems":{"minimum":2}}`, `[1,2]`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"number"}],"additionalItems":false,"dependencies":{"a":["b"],"c":{"maxProperties":1}}}`, `{"a":1,"c":[1,2]}`},
		{`{"if":{"required":["a"]},"then":{"additionalProperties":{"multipleOf":0.1}},"else":{"propertyNames":{"maxLength":1}},"not":{"minProperties":3}}`, `{"a":0.3}`},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		if len(schema)+len(value) > 2000 || !json.Valid([]byte(value)) {
			return
		}
		_, err := jsonschema.ValidateOutput([]byte(schema), value)
		if refusedSchema(err) || err != nil && (strings.Contains(err.Error(), "steps") || strings.Contains(err.Error(), "levels deep")) {
			return
		}
		var v any
		if json.Unmarshal([]byte(value), &v) != nil {
			return
		}
		if valid, usable := byLibrary(t, []byte(schema), []byte(value)); !usable || valid != (err == nil) {
			t.Errorf("%s with %s: %v, and the library returns valid %v", schema, value, err, valid)
		}
	})
}
