package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/internal/gateway"
)

// traffic checks API responses against the OpenAPI document: the status must be documented, and the body must
// match its schema and have no member that the schema does not name.
type traffic struct {
	mux     *http.ServeMux                                             // finds the route of a request
	answers map[string]map[string]func() (*jsonschema.Resolved, error) // by pattern and status; nil without a body
}

// documented returns the traffic check for the document that gateways serve.
var documented = sync.OnceValues(func() (*traffic, error) {
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema json.RawMessage `json:"schema"`
				} `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	local := strings.ReplaceAll(string(gateway.OpenAPIDocument), `"#/components/schemas/`, `"#/$defs/`)
	if err := json.Unmarshal([]byte(local), &doc); err != nil {
		return nil, err
	}
	t := &traffic{http.NewServeMux(), map[string]map[string]func() (*jsonschema.Resolved, error){}}
	for path, operations := range doc.Paths {
		for method, o := range operations {
			pattern := strings.ToUpper(method) + " " + path
			t.mux.Handle(pattern, http.NotFoundHandler())
			t.answers[pattern] = map[string]func() (*jsonschema.Resolved, error){}
			for status, r := range o.Responses {
				t.answers[pattern][status] = nil
				for kind, c := range r.Content {
					if strings.HasSuffix(kind, "json") {
						t.answers[pattern][status] = sync.OnceValues(func() (*jsonschema.Resolved, error) {
							return compile(c.Schema, doc.Components.Schemas)
						})
					}
				}
			}
		}
	}
	return t, nil
})

var reference = regexp.MustCompile(`"#/\$defs/([^"]+)"`)

// compile compiles a schema with the definitions it refers to. Compiling the whole document took twelve seconds
// per test process with the race detector.
func compile(text json.RawMessage, all map[string]json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	s.Defs = map[string]*jsonschema.Schema{}
	for texts := []json.RawMessage{text}; len(texts) > 0; texts = texts[1:] {
		for _, match := range reference.FindAllSubmatch(texts[0], -1) {
			name := string(match[1])
			if s.Defs[name] != nil {
				continue
			}
			var def jsonschema.Schema
			if err := json.Unmarshal(all[name], &def); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			s.Defs[name] = &def
			texts = append(texts, all[name])
		}
	}
	closeObjects(&s)
	return s.Resolve(nil)
}

// closeObjects makes every object schema that names its members refuse others.
func closeObjects(s *jsonschema.Schema) {
	if len(s.Properties) > 0 && s.AdditionalProperties == nil && len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) == 0 {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, m := range []map[string]*jsonschema.Schema{s.Properties, s.Defs, s.PatternProperties} {
		for _, sub := range m {
			closeObjects(sub)
		}
	}
	for _, sub := range append([]*jsonschema.Schema{s.Items}, append(s.AnyOf, s.OneOf...)...) {
		if sub != nil {
			closeObjects(sub)
		}
	}
}

// check returns an error if a response does not match the document.
func (t *traffic) check(req *http.Request, status int, body any) error {
	_, pattern := t.mux.Handler(req)
	answers := t.answers[pattern]
	if answers == nil {
		return nil // not a route of the API
	}
	compiled, listed := answers[strconv.Itoa(status)]
	if !listed {
		if compiled, listed = answers["default"]; !listed || status < 400 {
			return fmt.Errorf("%s returned %d, which the OpenAPI document does not list", pattern, status)
		}
	}
	if compiled == nil {
		if body != nil {
			return fmt.Errorf("%s returned %d with a body, for which the OpenAPI document has no schema", pattern, status)
		}
		return nil
	}
	schema, err := compiled()
	if err != nil {
		return fmt.Errorf("%s, %d: %w", pattern, status, err)
	}
	if err := schema.Validate(body); err != nil {
		return fmt.Errorf("%s returned %d with a body that does not match the OpenAPI document: %w", pattern, status, err)
	}
	return nil
}
