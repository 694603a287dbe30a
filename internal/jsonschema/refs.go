package jsonschema

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/keys"
)

// Limits of schemas and of the values checked against them. Checking a value takes stack for each level of the value
// times the number of schemas in a chain that apply to the same value, and a stack overflow ends the process.
const (
	MaxDepth = 200  // levels of a schema, or of a value
	maxChain = 100  // schemas in a chain that apply to the same value, such as by allOf or $ref
	maxPlace = 1024 // bytes of the path to a part of a schema
)

// boundSchema returns the schemas in the document raw, or an error if checking a value against it might not end, or not
// within a bounded stack. A schema may refer to itself for a part of the value, as trees need, but not for the same
// value.
func boundSchema(raw json.RawMessage) (*references, error) {
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		return nil, err
	}
	r := references{root: root, anchors: map[string]string{}, heights: map[string]int{}}
	if err := r.find("", root); err != nil {
		return nil, err
	}
	for _, place := range r.places {
		if _, err := r.height(place, 0); err != nil {
			return nil, err
		}
	}
	return &r, nil
}

// references are the schemas in a document, by JSON pointer. They include every object of the document: one that is not
// a schema has no effect.
type references struct {
	root    any
	places  []string
	anchors map[string]string
	heights map[string]int // length of the chain that starts at a place; 0 while it is being computed
}

// find records every object and anchor at place and below.
func (r *references) find(place string, v any) error {
	switch v := v.(type) {
	case map[string]any:
		if len(place) > maxPlace {
			return fmt.Errorf("the path #%s to a part of the schema has %d bytes, at most %d are allowed: nest less deeply, or use shorter names", keys.Clip(place), len(place), maxPlace)
		}
		r.places = append(r.places, place)
		if _, ok := v["$id"].(string); ok && place != "" {
			return fmt.Errorf("the schema at #%s has an $id, which only the top level may have: remove it", keys.Clip(place))
		}
		for _, key := range []string{"$dynamicRef", "$recursiveRef"} {
			if _, ok := v[key].(string); ok {
				return fmt.Errorf("the schema at #%s has the keyword %s, which is not supported: remove it", keys.Clip(place), key)
			}
		}
		for _, key := range []string{"$anchor", "$dynamicAnchor"} {
			name, ok := v[key].(string)
			if _, twice := r.anchors[name]; ok && twice {
				return fmt.Errorf("the anchor %q occurs twice: rename one", keys.Clip(name))
			}
			if ok {
				r.anchors[name] = place
			}
		}
		for key, inner := range v {
			if err := r.find(below(place, key), inner); err != nil {
				return err
			}
		}
	case []any:
		for i, inner := range v {
			if err := r.find(below(place, strconv.Itoa(i)), inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// height returns the length of the longest chain that starts at place. above is the length of the chain that leads
// there.
func (r *references) height(place string, above int) (int, error) {
	switch h, seen := r.heights[place]; {
	case seen && h == 0:
		return 0, fmt.Errorf("the schema at #%s refers to itself without end: remove this $ref, or move it below properties or items", keys.Clip(place))
	case above+h > maxChain:
		return 0, fmt.Errorf("more than %d schemas in a chain of keywords such as allOf and $ref apply to one value: shorten the chain", maxChain)
	case seen:
		return h, nil
	}
	r.heights[place] = 0
	highest := 0
	next, err := r.next(place)
	if err != nil {
		return 0, err
	}
	for _, p := range next {
		h, err := r.height(p, above+1)
		if err != nil {
			return 0, err
		}
		highest = max(highest, h)
	}
	r.heights[place] = highest + 1
	return highest + 1, nil
}

// next returns the schemas that apply to the same value as the schema at place.
func (r *references) next(place string) ([]string, error) {
	v, _ := r.at(place)
	schema, ok := v.(map[string]any)
	if !ok {
		return nil, nil
	}
	var places []string
	if ref, ok := schema["$ref"].(string); ok {
		target, err := r.target(ref)
		if err != nil {
			return nil, err
		}
		places = append(places, target)
	}
	for _, key := range []string{"not", "if", "then", "else"} {
		if schema[key] != nil {
			places = append(places, below(place, key))
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := schema[key].([]any)
		for i := range list {
			places = append(places, below(below(place, key), strconv.Itoa(i)))
		}
	}
	for _, key := range []string{"dependentSchemas", "dependencies"} {
		object, _ := schema[key].(map[string]any)
		for name := range object {
			places = append(places, below(below(place, key), name))
		}
	}
	return places, nil
}

// target returns the place to which a reference refers.
func (r *references) target(ref string) (string, error) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return "", fmt.Errorf("$ref %q does not begin with #, and only references within the schema are supported: copy what it refers to into $defs, and write #/$defs/NAME", keys.Clip(ref))
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return "", fmt.Errorf("$ref %q is not a valid reference: write one such as #/$defs/name", keys.Clip(ref))
	}
	place, known := fragment, true
	if fragment != "" && fragment[0] != '/' {
		place, known = r.anchors[fragment]
	}
	if _, there := r.at(place); !known || !there {
		return "", fmt.Errorf("$ref %q: there is no such place in the schema: correct the reference", keys.Clip(ref))
	}
	return place, nil
}

// at returns the value at a place.
func (r *references) at(place string) (any, bool) {
	v := r.root
	if place == "" {
		return v, true
	}
	for _, token := range strings.Split(place[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch in := v.(type) {
		case map[string]any:
			inner, ok := in[token]
			if !ok {
				return nil, false
			}
			v = inner
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(in) || token != strconv.Itoa(i) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func below(place, token string) string {
	return place + "/" + strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

// TooDeep reports whether JSON is nested more than MaxDepth levels deep.
func TooDeep(data []byte) bool {
	depth, text, escaped := 0, false, false
	for _, b := range data {
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case text:
		case b == '{' || b == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return false
}
