package jsonschema

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/internal/keys"
)

// Schema is a compiled JSON Schema. It is immutable, so it is safe for concurrent use.
type Schema struct {
	root *part
	seen bool // some part depends on what other parts have evaluated
}

// Validate returns an error if the schema does not admit a value, or if left or the limit of one check does not suffice
// to decide. It subtracts its steps from left. v must be a value as encoding/json decodes it into an any, at most
// MaxDepth levels deep.
func (s *Schema) Validate(v any, left *Steps) error {
	if left.left <= 0 {
		return fmt.Errorf("the check of %s against their schemas was stopped after %d steps in total, the maximum: send fewer at once, or simplify the schemas", left.what, maxTurnSteps)
	}
	most := min(maxSteps, left.left)
	count := steps{left: most, most: most, seen: s.seen}
	f := count.apply(s.root, v, nil)
	left.left -= most - max(0, count.left)
	if f != nil {
		return f
	}
	if count.left < 0 {
		return count.spent(s.root)
	}
	return nil
}

// Steps is a number of steps that several checks share. The zero value has none. It is not safe for concurrent use.
type Steps struct {
	left int
	what string // what is checked, for errors
}

// TurnSteps returns new steps, for the calls of one turn.
func TurnSteps() *Steps { return &Steps{maxTurnSteps, "the calls of this turn"} }

// RequestSteps returns new steps, for the variables of all runs of one request.
func RequestSteps() *Steps { return &Steps{maxTurnSteps, "the variables of the runs"} }

// part is a schema or a part of one. It has many fields because JSON Schema has many keywords.
type part struct {
	place string
	ref   *part
	only  bool // draft 7: keywords beside $ref are ignored

	types    kind
	anyType  bool
	wanted   string
	constant *any
	choice   bool // the part has enum
	enum     []any
	scalars  map[any]bool // the scalars of enum

	multiple, min, max, above, below *float64

	minText, maxText *int
	pattern          *regexp.Regexp
	patternSize      int

	logic                          bool // one of the following is present
	all, anyOf, oneOf              []*part
	not, when, then, otherwise     *part
	prefix                         []*part
	items, contains, otherItems    *part
	unique                         bool
	minItems, maxItems             *int
	minContains, maxContains       *int
	names                          []string // names of properties, sorted
	properties                     map[string]*part
	patterns                       []*namedPart
	additional, name, otherMembers *part
	closed                         bool // additionalProperties is false
	minMembers, maxMembers         *int
	required                       []string
	dependent                      []dependency
}

type namedPart struct {
	name *regexp.Regexp
	size int
	part *part
}

// dependency is what the presence of a member requires.
type dependency struct {
	name     string
	required []string
	part     *part
}

// everyName reports whether the part applies to members that it does not list.
func (n *part) everyName() bool { return len(n.patterns) > 0 || n.additional != nil || n.name != nil }

// kind is a set of types.
type kind uint8

const (
	kindNull kind = 1 << iota
	kindBoolean
	kindInteger
	kindFraction
	kindString
	kindArray
	kindObject
)

var kinds = map[string]kind{
	"null": kindNull, "boolean": kindBoolean, "integer": kindInteger, "number": kindInteger | kindFraction,
	"string": kindString, "array": kindArray, "object": kindObject,
}

func typeOf(v any) kind {
	switch v := v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBoolean
	case float64:
		if v == math.Trunc(v) {
			return kindInteger
		}
		return kindFraction
	case string:
		return kindString
	case []any:
		return kindArray
	}
	return kindObject
}

// compiler makes the parts of a schema.
type compiler struct {
	refs     *references
	parts    map[string]*part
	left     int  // remaining instructions of the patterns of the schema
	all      *int // remaining instructions of the patterns of all schemas of the definition
	draft7   bool
	seen     bool
	unlinked []link
	patterns []pattern // to be compiled once all are known to be small enough
}

type pattern struct {
	text string
	into **regexp.Regexp
}

type link struct {
	from *part
	ref  string
}

// compile returns the schema for s, which the library has read and whose references are all within it.
func (r *references) compile(s *jsonschema.Schema, left *int) (*Schema, error) {
	c := compiler{refs: r, parts: map[string]*part{}, left: maxPatterns, all: left}
	switch strings.TrimSuffix(s.Schema, "#") {
	case "", "https://json-schema.org/draft/2020-12/schema":
	case "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema":
		c.draft7 = true
	default:
		return nil, fmt.Errorf("not a usable JSON Schema: $schema %q is not supported: use draft-07 or draft 2020-12", keys.Clip(s.Schema))
	}
	root, err := c.part(s, "")
	if err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	if err := c.link(); err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	if _, err := s.Resolve(nil); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	return &Schema{root: root, seen: c.seen}, nil
}

// link compiles the patterns and connects the references to their targets.
func (c *compiler) link() error {
	for _, l := range c.unlinked {
		place, err := c.refs.target(l.ref)
		if err != nil {
			return err
		}
		if l.from.ref = c.parts[place]; l.from.ref == nil {
			return fmt.Errorf("$ref %q: there is no schema at this place: correct the reference", keys.Clip(l.ref))
		}
	}
	for _, p := range c.patterns {
		re, err := regexp.Compile(p.text)
		if err != nil {
			return err
		}
		*p.into = re
	}
	return nil
}

// part returns the part for a schema.
func (c *compiler) part(s *jsonschema.Schema, place string) (*part, error) {
	if s == nil {
		return nil, fmt.Errorf("the schema at #%s is null: write a schema there, or remove it", keys.Clip(place))
	}
	n := &part{
		place: place, only: c.draft7, constant: s.Const, choice: s.Enum != nil, enum: s.Enum,
		multiple: s.MultipleOf, min: s.Minimum, max: s.Maximum, above: s.ExclusiveMinimum, below: s.ExclusiveMaximum,
		minText: s.MinLength, maxText: s.MaxLength, unique: s.UniqueItems, minItems: s.MinItems, maxItems: s.MaxItems,
		minContains: s.MinContains, maxContains: s.MaxContains, minMembers: s.MinProperties, maxMembers: s.MaxProperties,
		required: s.Required,
	}
	c.parts[place] = n
	if s.Ref != "" {
		c.unlinked = append(c.unlinked, link{n, s.Ref})
	}
	c.seen = c.seen || s.UnevaluatedItems != nil || s.UnevaluatedProperties != nil
	if err := n.typed(s); err != nil {
		return nil, err
	}
	if n.choice {
		n.scalars = map[any]bool{}
		for _, e := range s.Enum {
			switch e.(type) {
			case []any, map[string]any:
			default:
				n.scalars[e] = true
			}
		}
	}
	if s.Pattern != "" {
		var err error
		if n.patternSize, err = c.pattern(s.Pattern, &n.pattern); err != nil {
			return nil, err
		}
	}
	if err := c.inner(n, s, place); err != nil {
		return nil, err
	}
	n.logic = len(n.all) > 0 || n.anyOf != nil || n.oneOf != nil || n.not != nil || n.when != nil
	return n, nil
}

// typed reads the type of a schema. It refuses an unknown type, which would admit no value.
func (n *part) typed(s *jsonschema.Schema) error {
	list := s.Types
	if s.Type != "" {
		list = []string{s.Type}
	}
	n.anyType = list == nil
	for _, t := range list {
		if kinds[t] == 0 {
			return fmt.Errorf("#%s/type is %q, which is not a type: write one of %s", keys.Clip(n.place), keys.Clip(t), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
		}
		n.types |= kinds[t]
	}
	n.wanted = keys.Clip(strings.Join(list, " or "))
	return nil
}

// pattern returns the number of instructions of a regular expression, which link compiles later.
func (c *compiler) pattern(text string, into **regexp.Regexp) (int, error) {
	size, err := sizeOf(text, &c.left, c.all)
	c.patterns = append(c.patterns, pattern{text, into})
	return size, err
}

// inner makes the parts for the schemas in keywords of a part.
func (c *compiler) inner(n *part, s *jsonschema.Schema, place string) error {
	draft7, draft2020 := c.draft7, !c.draft7
	for _, at := range []struct {
		into *(*part)
		from *jsonschema.Schema
		key  string
		use  bool
	}{
		{&n.not, s.Not, "not", true}, {&n.when, s.If, "if", true}, {&n.then, s.Then, "then", true}, {&n.otherwise, s.Else, "else", true},
		{&n.items, s.Items, "items", true}, {&n.contains, s.Contains, "contains", true}, {&n.otherItems, s.UnevaluatedItems, "unevaluatedItems", true},
		{&n.items, s.AdditionalItems, "additionalItems", draft7 && s.ItemsArray != nil},
		{&n.additional, s.AdditionalProperties, "additionalProperties", true}, {&n.name, s.PropertyNames, "propertyNames", true},
		{&n.otherMembers, s.UnevaluatedProperties, "unevaluatedProperties", true}, {new(*part), s.ContentSchema, "contentSchema", true},
	} {
		if at.from == nil {
			continue
		}
		inner, err := c.part(at.from, below(place, at.key))
		if err != nil {
			return err
		}
		if at.use {
			*at.into = inner
		}
	}
	if of := s.AdditionalProperties; of != nil && of.Not != nil {
		n.closed = reflect.ValueOf(*of.Not).IsZero()
	}
	for _, at := range []struct {
		into *[]*part
		from []*jsonschema.Schema
		key  string
		use  bool
	}{
		{&n.all, s.AllOf, "allOf", true}, {&n.anyOf, s.AnyOf, "anyOf", true}, {&n.oneOf, s.OneOf, "oneOf", true},
		{&n.prefix, s.PrefixItems, "prefixItems", draft2020}, {&n.prefix, s.ItemsArray, "items", draft7},
	} {
		if at.from == nil {
			continue
		}
		list := make([]*part, 0, len(at.from))
		for i, e := range at.from {
			inner, err := c.part(e, below(below(place, at.key), strconv.Itoa(i)))
			if err != nil {
				return err
			}
			list = append(list, inner)
		}
		if at.use {
			*at.into = list
		}
	}
	return c.named(n, s, place)
}

// named makes the parts for schemas that have names, such as properties.
func (c *compiler) named(n *part, s *jsonschema.Schema, place string) error {
	if len(s.Properties) > 0 {
		n.names, n.properties = slices.Sorted(maps.Keys(s.Properties)), map[string]*part{}
	}
	dependent := map[string]dependency{}
	add := func(schemas map[string]*jsonschema.Schema, key string, use func(name string, inner *part) error) error {
		if len(schemas) == 0 {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(schemas)) {
			inner, err := c.part(schemas[name], below(below(place, key), name))
			if err == nil {
				err = use(name, inner)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	unused := func(string, *part) error { return nil }
	depends := func(name string, inner *part) error {
		dependent[name] = dependency{name: name, part: inner}
		return nil
	}
	schemas, others, lists := s.DependentSchemas, s.DependencySchemas, s.DependentRequired
	key, otherKey := "dependentSchemas", "dependencies"
	if c.draft7 {
		schemas, others, lists = s.DependencySchemas, s.DependentSchemas, s.DependencyStrings
		key, otherKey = otherKey, key
	}
	for _, err := range []error{
		add(s.Defs, "$defs", unused),
		add(s.Definitions, "definitions", unused),
		add(others, otherKey, unused),
		add(schemas, key, depends),
		add(s.Properties, "properties", func(name string, inner *part) error {
			n.properties[name] = inner
			return nil
		}),
		add(s.PatternProperties, "patternProperties", func(name string, inner *part) error {
			p := &namedPart{part: inner}
			n.patterns = append(n.patterns, p)
			var err error
			p.size, err = c.pattern(name, &p.name)
			return err
		}),
	} {
		if err != nil {
			return err
		}
	}
	for name, list := range lists {
		d := dependent[name]
		d.name, d.required = name, list
		dependent[name] = d
	}
	if len(dependent) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(dependent)) {
		n.dependent = append(n.dependent, dependent[name])
	}
	return nil
}
