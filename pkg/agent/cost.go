package agent

import (
	"fmt"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/pkg/rule"
)

// Bounds of what a schema costs. The library that checks values can neither be stopped nor
// asked how long it will take, so the work is counted before it begins.
const (
	maxSchemaValues = 20_000     // values in a schema; each costs the library about a kilobyte
	maxSchemaWeight = 16_000_000 // bytes of a schema times the levels that they are below
	maxPattern      = 10_000     // instructions of one regular expression
	maxPatterns     = 50_000     // instructions of all those of a schema
	maxSteps        = 500_000    // of one check of a value
	patternSteps    = 16         // instructions of a regular expression, for a byte, that are a step
	textSteps       = 64         // bytes of a text that are one
)

// valuesOf returns how many values a schema has.
func valuesOf(raw []byte) int {
	values, text, escaped := 1, false, false
	for _, b := range raw {
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case !text && (b == ',' || b == '{' || b == '['):
			values++
		}
	}
	return values
}

// boundSize returns an error if reading the schema raw would cost too much. The library reads
// each part once for each level that it is below.
func boundSize(raw []byte) error {
	weight, depth, text, escaped := 0, 0, false, false
	for _, b := range raw {
		weight += depth
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case text:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		}
	}
	if valuesOf(raw) > maxSchemaValues {
		return fmt.Errorf("it has more than %d values", maxSchemaValues)
	}
	if weight > maxSchemaWeight {
		return fmt.Errorf("it is too large for how deep it is nested: %d bytes below each other, %d are allowed", weight, maxSchemaWeight)
	}
	return nil
}

// schema is a compiled JSON Schema.
type schema struct {
	resolved *jsonschema.Resolved
	cost     *applied
}

// validate returns an error if the schema does not admit a value, or if nobody could tell
// within a bounded number of steps.
func (s *schema) validate(v any) error {
	m := meter{left: maxSteps}
	m.apply(s.cost, v)
	if m.left < 0 {
		return fmt.Errorf("checking it against the schema takes more than %d steps: the schema applies too many parts (allOf, anyOf, $ref, pattern) to one value, or the value is too large for it", maxSteps)
	}
	return s.resolved.Validate(v)
}

// applied is one schema, as far as it costs something to apply it to a value.
type applied struct {
	types   []string
	compare bool       // it has enum or const
	size    int        // of its enum, const and lists of names
	pattern int        // instructions
	unique  bool       // items are compared with each other
	ref     *applied   // before all others
	same    []*applied // to the same value

	properties map[string]*applied
	members    []*applied // to each member of an object
	names      []*applied // to each name
	keys       int        // instructions of the patterns of names
	items      []*applied // to each item of a list
	prefix     []*applied // to one item each
}

// costs returns what the schema at the root costs.
func (r *references) costs() (*applied, error) {
	nodes := map[string]*applied{}
	left := maxPatterns
	// Bounded: height has looked at all chains, and the depth of the document is.
	var of func(place string) (*applied, error)
	of = func(place string) (*applied, error) {
		if n := nodes[place]; n != nil {
			return n, nil
		}
		v, _ := r.at(place)
		in, ok := v.(map[string]any)
		n := &applied{}
		nodes[place] = n
		if !ok {
			return n, nil
		}
		var failed error
		at := func(place string) *applied {
			inner, err := of(place)
			if err != nil && failed == nil {
				failed = err
			}
			return inner
		}
		n.own(in)
		next, err := r.next(place)
		if err != nil {
			return nil, err
		}
		for i, p := range next {
			if _, ok := in["$ref"].(string); ok && i == 0 {
				n.ref = at(p)
				continue
			}
			n.same = append(n.same, at(p))
		}
		if text, ok := in["pattern"].(string); ok {
			if n.pattern, err = sizeOf(text, &left); err != nil {
				return nil, err
			}
		}
		members(in, "properties", func(name string) {
			if n.properties == nil {
				n.properties = map[string]*applied{}
			}
			n.properties[name] = at(below(below(place, "properties"), name))
		})
		members(in, "patternProperties", func(name string) {
			size, err := sizeOf(name, &left)
			if err != nil && failed == nil {
				failed = err
			}
			n.keys += size
			n.members = append(n.members, at(below(below(place, "patternProperties"), name)))
		})
		for _, key := range []string{"additionalProperties", "unevaluatedProperties"} {
			if in[key] != nil {
				n.members = append(n.members, at(below(place, key)))
			}
		}
		if in["propertyNames"] != nil {
			n.names = append(n.names, at(below(place, "propertyNames")))
		}
		for _, key := range []string{"items", "additionalItems", "unevaluatedItems", "contains"} {
			if _, list := in[key].([]any); in[key] != nil && !list {
				n.items = append(n.items, at(below(place, key)))
			}
		}
		for _, key := range []string{"prefixItems", "items"} {
			list, _ := in[key].([]any)
			for i := range list {
				n.prefix = append(n.prefix, at(below(below(place, key), fmt.Sprint(i))))
			}
		}
		return n, failed
	}
	return of("")
}

func members(in map[string]any, key string, each func(name string)) {
	object, _ := in[key].(map[string]any)
	for name := range object {
		each(name)
	}
}

// own notes what a schema looks at by itself.
func (n *applied) own(in map[string]any) {
	switch t := in["type"].(type) {
	case string:
		n.types = []string{t}
	case []any:
		for _, e := range t {
			if text, ok := e.(string); ok {
				n.types = append(n.types, text)
			}
		}
	}
	m := meter{left: 1 << 30}
	for _, key := range []string{"enum", "const", "required", "dependentRequired"} {
		if v, ok := in[key]; ok {
			m.size(v)
			n.compare = n.compare || key == "enum" || key == "const"
		}
	}
	n.size = 1<<30 - m.left
	n.unique, _ = in["uniqueItems"].(bool)
}

// sizeOf returns how many instructions a regular expression has, and takes them from what is
// left of those that a schema may have.
func sizeOf(text string, left *int) (int, error) {
	size := rule.PatternSize(text)
	if *left -= size; size > maxPattern {
		return 0, fmt.Errorf("the pattern %q comes to more than %d instructions: repeat less", clip(text), maxPattern)
	}
	if *left < 0 {
		return 0, fmt.Errorf("its patterns come to more than %d instructions: use fewer, or repeat less", maxPatterns)
	}
	return size, nil
}

// meter counts down the steps that applying a schema takes, as far as they are left.
type meter struct{ left int }

// apply does what the library does, but for deciding anything: it follows every branch.
func (m *meter) apply(n *applied, v any) {
	m.left--
	if n.ref != nil && m.left >= 0 {
		m.apply(n.ref, v)
	}
	if len(n.types) > 0 && !fits(n.types, v) {
		m.size(v) // the error shows it
		return
	}
	if n.size > 0 {
		m.left -= n.size
	}
	if n.compare {
		m.size(v)
	}
	for _, inner := range n.same {
		if m.left < 0 {
			return
		}
		m.apply(inner, v)
	}
	switch v := v.(type) {
	case string:
		m.left -= len(v)/textSteps + n.pattern*len(v)/patternSteps
	case []any:
		m.list(n, v)
	case map[string]any:
		m.object(n, v)
	}
}

func (m *meter) list(n *applied, list []any) {
	if n.unique {
		m.size(list)
		m.size(list)
	}
	for i := range min(len(n.prefix), len(list)) {
		if m.left < 0 {
			return
		}
		m.apply(n.prefix[i], list[i])
	}
	for _, inner := range n.items {
		for _, e := range list {
			if m.left < 0 {
				return
			}
			m.apply(inner, e)
		}
	}
}

func (m *meter) object(n *applied, object map[string]any) {
	m.left -= len(n.properties) / textSteps
	for name, e := range object {
		if m.left < 0 {
			return
		}
		m.left -= n.keys * len(name) / patternSteps
		if inner := n.properties[name]; inner != nil {
			m.apply(inner, e)
		}
		for _, inner := range n.members {
			m.apply(inner, e)
		}
		for _, inner := range n.names {
			m.apply(inner, name)
		}
	}
}

// size counts what looking at the whole of a value takes.
func (m *meter) size(v any) {
	if m.left--; m.left < 0 {
		return
	}
	switch v := v.(type) {
	case string:
		m.left -= len(v) / textSteps
	case []any:
		for _, e := range v {
			if m.left < 0 {
				return
			}
			m.size(e)
		}
	case map[string]any:
		for name, e := range v {
			if m.left < 0 {
				return
			}
			m.left -= len(name) / textSteps
			m.size(e)
		}
	}
}

// fits reports whether a value is of one of the types.
func fits(types []string, v any) bool {
	is := "null"
	switch v.(type) {
	case string:
		is = "string"
	case bool:
		is = "boolean"
	case []any:
		is = "array"
	case map[string]any:
		is = "object"
	case float64:
		is = "number"
	}
	for _, t := range types {
		if t == is || t == "integer" && is == "number" {
			return true
		}
	}
	return false
}

// maxEcho is how many bytes of what somebody has written an error shows.
const maxEcho = 200

// clip returns the beginning of a text that a caller wrote.
func clip(text string) string {
	if len(text) <= maxEcho {
		return text
	}
	end := maxEcho
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
