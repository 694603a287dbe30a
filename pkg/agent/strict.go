package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// decode reads one YAML or JSON document into v, strictly: unknown keys, keys that occur twice and wrong types are
// mistakes. It checks keys that belong to one kind only if known contains that kind. The error joins the mistakes, each
// with its place (at most maxFaults, and the number of the others), and v gets the values without mistakes, or its zero
// value if these cannot be decoded. But if the document exceeds a bound, cannot be parsed, or is YAML in which a key
// occurs twice, decode returns only an error about that, and leaves v unchanged.
func (known Known) decode(data []byte, v any) error {
	if len(data) > MaxDefinition {
		return fmt.Errorf("the document has more than %d bytes, the maximum: shorten it", MaxDefinition) // the rest was not read, so the size is unknown
	}
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD")) // raw parts are stored and sent to readers
	}
	// JSON is read as JSON: a YAML parser refuses tabs and surrogate pairs.
	if !json.Valid(data) {
		var err error
		if data, err = fromYAML(data); err != nil {
			return err
		}
	}
	if err := bound(data); err != nil {
		return err
	}
	c := &checker{known: known}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	tree := c.tree(dec, "")
	c.shape("", tree, reflect.TypeOf(v).Elem())
	err := c.err()
	if err != nil {
		if rest, failed := json.Marshal(tree); failed != nil || json.Unmarshal(rest, v) != nil {
			reflect.ValueOf(v).Elem().SetZero()
		}
		return err
	}
	return json.Unmarshal(data, v)
}

// Bounds of a definition, in addition to its size in bytes: each value costs far more than
// its bytes.
const (
	maxLevels = 256     // maximum depth of nesting
	maxValues = 100_000 // maximum number of values
	maxMarks  = 150_000 // maximum number of commas, brackets and lines of YAML
	maxRead   = 32      // maximum of millions of bytes; a byte counts once for each level around it
)

// bound returns an error if decoding JSON would cost too much.
func bound(data []byte) error {
	values, depth, weight, text, escaped := 0, 0, 0, false, false
	for _, b := range data {
		weight += depth
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case text:
		case b == ',':
			values++
		case b == '{' || b == '[':
			values++
			if depth++; depth > maxLevels {
				return fmt.Errorf("the document is nested more than %d levels deep: flatten it", maxLevels)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	if values > maxValues {
		return fmt.Errorf("the document has about %d values, at most %d are allowed: shorten it", values, maxValues)
	}
	if weight > maxRead*1_000_000 {
		return fmt.Errorf("the document is too large for its depth: %d bytes, each counted once for each level around it, at most %d are allowed: shorten or flatten it", weight, maxRead*1_000_000)
	}
	return nil
}

// readable returns an error if parsing YAML would cost too much: its parsers take a kilobyte for each value, before
// their caller can count the values.
func readable(data []byte) error {
	marks := 0
	for _, b := range data {
		if b == ',' || b == '[' || b == '{' || b == '\n' {
			marks++
		}
	}
	if marks > maxMarks {
		return fmt.Errorf("the document has %d line ends, commas and opening brackets, at most %d are allowed: shorten it", marks, maxMarks)
	}
	return nil
}

func fromYAML(data []byte) ([]byte, error) {
	if err := readable(data); err != nil {
		return nil, err
	}
	data = quoteKeys(data)
	dec := yamlv2.NewDecoder(bytes.NewReader(data))
	dec.SetStrict(true)
	var first, second any
	if err := dec.Decode(&first); errors.Is(err, io.EOF) {
		return nil, errors.New("the document is empty: write it in YAML or JSON")
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("the text has more than one YAML document: send one at a time")
	}
	// An alias costs a few bytes and may expand to any number of them.
	if spare(first, MaxDefinition) < 0 {
		return nil, fmt.Errorf("the document has more than %d bytes after its YAML aliases are expanded: use fewer aliases", MaxDefinition)
	}
	return yaml.YAMLToJSONStrict(data)
}

// quoteKeys quotes keys that YAML 1.1 reads as booleans: an argument n would silently become
// one named false. It leaves everything else unchanged, including mistakes.
func quoteKeys(data []byte) []byte {
	var doc yamlv3.Node
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	if dec.Decode(&doc) != nil || !quoteIn(&doc) || !errors.Is(dec.Decode(&yamlv3.Node{}), io.EOF) {
		return data
	}
	if quoted, err := yamlv3.Marshal(&doc); err == nil {
		return quoted
	}
	return data
}

// quoteIn quotes such keys below n, and reports whether there were any.
func quoteIn(n *yamlv3.Node) (found bool) {
	for i, e := range n.Content {
		if key := n.Kind == yamlv3.MappingNode && i%2 == 0; key && e.Kind == yamlv3.ScalarNode && e.Style == 0 && slices.Contains(switches, strings.ToLower(e.Value)) {
			e.Style, found = yamlv3.DoubleQuotedStyle, true
		}
		found = quoteIn(e) || found
	}
	return found
}

// switches are the words that are booleans in YAML 1.1 and strings in YAML 1.2.
var switches = []string{"y", "n", "yes", "no", "on", "off"}

// spare returns left minus the approximate number of bytes of v as JSON. It stops when the result is negative.
func spare(v any, left int) int {
	left--
	switch v := v.(type) {
	case string:
		left -= len(v)
	case []any:
		for _, e := range v {
			if left < 0 {
				break
			}
			left = spare(e, left)
		}
	case map[any]any:
		for k, e := range v {
			if left < 0 {
				break
			}
			left = spare(e, spare(k, left))
		}
	}
	return left
}

// tree decodes one valid JSON value, and notes the duplicate keys of its objects as mistakes.
func (c *checker) tree(dec *json.Decoder, place string) any {
	token, err := dec.Token()
	if err != nil {
		c.fault(place, "%v", err)
		return nil
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for dec.More() {
			key, err := dec.Token()
			name, ok := key.(string)
			if err != nil || !ok {
				c.fault(place, "the key %v is not a string: write it in quotes", key)
				return nil
			}
			inner := join(place, name)
			if _, twice := object[name]; twice {
				c.fault(inner, "the key occurs twice: remove one")
			}
			object[name] = c.tree(dec, inner)
		}
		_, _ = dec.Token() // the closing brace
		return object
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			list = append(list, c.tree(dec, fmt.Sprintf("%s[%d]", place, len(list))))
		}
		_, _ = dec.Token() // the closing bracket
		return list
	default:
		return token
	}
}

// shape notes the mistakes of v as a value of type t, unknown keys and wrong types. It removes those parts from the
// objects in v, and makes them null in its lists. It reports whether v itself is valid, apart from its parts.
// encoding/json would report only the first mistake, without an index.
func (c *checker) shape(place string, v any, t reflect.Type) bool {
	if v == nil {
		return true // null is the same as nothing
	}
	if t != toolType && t != hookType && t != probeType && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		b, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(b, reflect.New(t).Interface())
		}
		if err != nil {
			c.fault(place, "%v", err)
		}
		return err == nil
	}
	var ok bool
	var want string
	switch t.Kind() {
	case reflect.Pointer:
		return c.shape(place, v, t.Elem())
	case reflect.Struct:
		object, is := v.(map[string]any)
		if ok, want = is, "a mapping"; ok {
			c.keys(place, object, t)
		}
	case reflect.Map:
		object, is := v.(map[string]any)
		ok, want = is, "a mapping"
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if !c.shape(join(place, key), object[key], t.Elem()) {
				delete(object, key)
			}
		}
	case reflect.Slice:
		list, is := v.([]any)
		ok, want = is, "a list"
		for i, e := range list {
			if !c.shape(fmt.Sprintf("%s[%d]", place, i), e, t.Elem()) {
				list[i] = nil // the others keep their index
			}
		}
	case reflect.String:
		_, ok = v.(string)
		want = "a string (in quotes)"
	case reflect.Bool:
		_, ok = v.(bool)
		want = "true or false"
	case reflect.Interface:
		ok = true
	case reflect.Float32, reflect.Float64:
		_, ok = v.(json.Number)
		want = "a number"
	default:
		n, is := v.(json.Number)
		ok, want = is && json.Unmarshal([]byte(n), reflect.New(t).Interface()) == nil, "a whole number"
	}
	if !ok {
		c.fault(place, "%s is not valid here: write %s", described(v), want)
	}
	return ok
}

var toolType, hookType, probeType = reflect.TypeFor[Tool](), reflect.TypeFor[Hook](), reflect.TypeFor[tool.Probe]()

// family is the kinds of tools, of probes or of hooks, with the own settings of each.
type family struct {
	what      string // tools, probes or hooks
	otherwise string // the kind of a definition that names none
	settings  map[string]reflect.Type
}

// family returns the kinds of definitions of type t, or false if t has no kinds.
func (c *checker) family(t reflect.Type) (family, bool) {
	f := family{settings: map[string]reflect.Type{}}
	switch t {
	case toolType, probeType:
		f.what, f.otherwise = "tools", tool.DefaultKind
		if t == probeType {
			f.what = "probes"
		}
		for name, spec := range c.known.Tools {
			f.settings[name] = reflect.TypeOf(spec.Settings()).Elem()
		}
	case hookType:
		f.what = "hooks"
		for name, spec := range c.known.Hooks {
			f.settings[name] = reflect.TypeOf(spec.Settings()).Elem()
		}
	default:
		return f, false
	}
	return f, true
}

// with returns the kinds that have a key.
func (f family) with(key string) []string {
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(f.settings)) {
		if slices.Contains(keys.Of(f.settings[name]), key) {
			kinds = append(kinds, name)
		}
	}
	return kinds
}

func (c *checker) keys(place string, object map[string]any, t reflect.Type) {
	types, names := keys.Types(t), keys.Of(t)
	f, kinds := c.family(t)
	kind, _ := object["kind"].(string)
	if kind == "" {
		kind = f.otherwise
	}
	own, known := f.settings[kind]
	if known {
		types = maps.Clone(types)
		maps.Copy(types, keys.Types(own))
		names = slices.Concat(names, keys.Of(own))
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		inner, ok := types[key]
		if ok && c.shape(join(place, key), object[key], inner) {
			continue
		}
		delete(object, key)
		switch {
		case ok: // it has been said
		case kinds && !known: // it is the kind that is wrong
		case len(c.faults) >= maxFaults: // it would not be reported
			c.more++
		case len(f.with(key)) > 0:
			c.fault(join(place, key), "it is a key of %s of kind %s, and this one has the kind %s: remove it, or change the kind", f.what, strings.Join(f.with(key), ", "), kind)
		default:
			hint := meant(key, names)
			if t == reflect.TypeFor[Definition]() {
				hint = cmp.Or(sectionOf(key), hint)
			}
			c.fault(join(place, key), "unknown key: remove it, or use one of %s%s", strings.Join(names, ", "), hint)
		}
	}
}

// sectionOf returns the part of a message that suggests the section of a definition that has a key, or "" if none has.
func sectionOf(key string) string {
	for _, section := range []struct {
		name string
		t    reflect.Type
	}{{"limits", reflect.TypeFor[Limits]()}, {"loop", reflect.TypeFor[Loop]()}, {"model", reflect.TypeFor[Model]()}} {
		if slices.Contains(keys.Of(section.t), key) {
			return fmt.Sprintf("; did you mean %s.%s?", section.name, key)
		}
	}
	return ""
}

// meant returns the part of a message that suggests a name similar to a misspelt name, or "" if none is similar.
func meant(name string, names []string) string {
	if near := keys.Nearest(keys.Clip(name), names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// own decodes the own keys of a definition of type t into the settings of its kind.
func (c *checker) own(place string, t reflect.Type, kind string, own json.RawMessage, settings any) {
	if len(own) == 0 {
		return
	}
	before := c.count()
	dec := json.NewDecoder(bytes.NewReader(own))
	dec.UseNumber()
	object, ok := c.tree(dec, place).(map[string]any)
	if !ok {
		c.fault(place, "the settings of its kind are not a mapping: write keys and values")
		return
	}
	object["kind"] = kind
	c.keys(place, object, t)
	if c.count() > before {
		return
	}
	if err := json.Unmarshal(own, settings); err != nil {
		c.fault(place, "%v", err)
	}
}

func described(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a string"
	default:
		return keys.Clip(fmt.Sprintf("%v", v))
	}
}

func join(place, key string) string {
	key = keys.Clip(key)
	switch {
	case place == "":
		return key
	case len(place) > 2*keys.MaxClip:
		return place // long enough to find it, and not longer with each level
	default:
		return place + "." + key
	}
}
