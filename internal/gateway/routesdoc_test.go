package gateway

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

var update = flag.Bool("update", false, "rewrite docs/reference/routes.md")

const routesDoc = "../../docs/reference/routes.md"

// The route reference is generated from the OpenAPI document and the table of routes.
func TestRoutesDoc(t *testing.T) {
	t.Parallel()
	g, err := New(memstore.New(memstore.Config{}), membus.New(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	want := doc.render(func(route string) string {
		r, ok := g.routes[route]
		if !ok {
			r = g.routes[strings.Replace(route, "{path}", "{path...}", 1)] // in OpenAPI notation
		}
		o, asked := r.Operation()
		if route == "GET /metrics" {
			o, asked = service.ReadMetrics, true
		}
		if !asked {
			return "none"
		}
		roles := "`" + strings.Join(o.Roles(), "` or `") + "`"
		if o.OfDeployment() {
			roles += " of the deployment"
		}
		return roles
	})
	if *update {
		if err := os.WriteFile(routesDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(routesDoc)
	if err != nil || !bytes.Equal(have, want) {
		t.Fatalf("docs/reference/routes.md is stale (%v): run `make generate`", err)
	}
}

type document struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	Summary, Description string
	Parameters           []struct {
		Name, In, Description string
		Schema                schema
	}
	RequestBody struct{ Content map[string]media }
	Responses   map[string]struct {
		Description string
		Content     map[string]media
	}
}

type media struct{ Schema schema }

type schema struct {
	Ref          string `json:"$ref"`
	Type         any
	Description  string
	Enum         []any
	Const        any
	Properties   map[string]schema
	Required     []string
	Items        *schema
	OneOf, AnyOf []schema
}

func (d document) render(roles func(route string) string) []byte {
	var b bytes.Buffer
	b.WriteString("# Routes\n\n```sh\ncurl -sS http://127.0.0.1:7070/openapi.json\n```\n\n")
	b.WriteString("With this page you write a request to any route and read the response. [HTTP API](http.md) explains the rules that all\nroutes share. `make generate` makes the page from the OpenAPI document, which a gateway serves at `/openapi.json`.\n\n")
	b.WriteString("Every route may respond with a [problem](errors.md) instead. The fields marked with * are always present.\n")
	methods := []string{"get", "post", "put", "delete"}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range methods {
			o, ok := d.Paths[path][method]
			if !ok {
				continue
			}
			route := strings.ToUpper(method) + " " + path
			fmt.Fprintf(&b, "\n## `%s`\n\n%s", route, lines(strings.TrimSuffix(o.Summary, ".")+". Role: "+roles(route)+". "+o.Description))
			if len(o.Parameters) > 0 {
				b.WriteString("\n| parameter | in | type | |\n|---|---|---|---|\n")
				for _, p := range o.Parameters {
					fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, p.In, p.Schema.words(), p.Description)
				}
			}
			for _, kind := range slices.Sorted(maps.Keys(o.RequestBody.Content)) {
				s := o.RequestBody.Content[kind].Schema
				fmt.Fprintf(&b, "\n%s", lines("Body, `"+kind+"`: "+s.words()))
				s.fields(&b)
			}
			b.WriteString("\n| response | body | |\n|---|---|---|\n")
			for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
				if status == "default" {
					continue
				}
				r := o.Responses[status]
				var bodies []string
				for _, kind := range slices.Sorted(maps.Keys(r.Content)) {
					if s := r.Content[kind].Schema; kind == "application/json" {
						bodies = append(bodies, s.page())
					} else {
						bodies = append(bodies, "`"+kind+"`")
					}
				}
				fmt.Fprintf(&b, "| %s | %s | %s |\n", status, strings.Join(bodies, " or "), r.Description)
			}
		}
	}
	b.WriteString("\n## Objects\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		fmt.Fprintf(&b, "\n### %s\n", name)
		if s.Description != "" {
			fmt.Fprintf(&b, "\n%s", lines(strings.TrimSuffix(s.Description, ".")+"."))
		}
		s.fields(&b)
	}
	return b.Bytes()
}

// fields writes the table of an object's fields, including those of nested objects.
func (s schema) fields(b *bytes.Buffer) {
	if s.Items != nil {
		s.Items.fields(b)
	}
	if len(s.Properties) == 0 {
		return
	}
	b.WriteString("\n| field | type | |\n|---|---|---|\n")
	s.rows(b, "")
}

func (s schema) rows(b *bytes.Buffer, prefix string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p, mark := s.Properties[name], ""
		if slices.Contains(s.Required, name) {
			mark = " *"
		}
		fmt.Fprintf(b, "| `%s%s`%s | %s | %s |\n", prefix, name, mark, p.words(), strings.ReplaceAll(p.Description, "|", "\\|"))
		p.rows(b, prefix+name+".")
		if p.Items != nil {
			p.Items.rows(b, prefix+name+"[].")
		}
	}
}

// page names the schema of a list by its items.
func (s schema) page() string {
	if len(s.OneOf) > 0 {
		return joined(s.OneOf, schema.page)
	}
	if items, ok := s.Properties["items"]; ok && s.Ref == "" {
		return "list of " + strings.TrimPrefix(items.words(), "array of ")
	}
	return s.words()
}

// words describes the type in words, with links to objects.
func (s schema) words() string {
	switch {
	case s.Ref != "":
		name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case len(s.Enum) > 0:
		return joined(s.Enum, func(v any) string { return code(v) })
	case s.Const != nil:
		return code(s.Const)
	case len(s.OneOf)+len(s.AnyOf) > 0:
		return joined(append(s.OneOf, s.AnyOf...), schema.words)
	case s.Items != nil:
		return "array of " + s.Items.words()
	}
	switch kind := s.Type.(type) {
	case string:
		return kind
	case []any:
		return joined(kind, func(v any) string { return fmt.Sprint(v) })
	default:
		return "any"
	}
}

// lines breaks a paragraph into lines.
func lines(paragraph string) string {
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(paragraph) {
		if width > 0 && width+1+len(word) > 118 {
			b.WriteString("\n")
			width = 0
		} else if width > 0 {
			b.WriteString(" ")
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String() + "\n"
}

func joined[T any](list []T, words func(T) string) string {
	var all []string
	for _, v := range list {
		all = append(all, words(v))
	}
	return strings.Join(all, " or ")
}

func code(v any) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprintf("`%v`", v)
}
