package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// maxDepth bounds how deep a request may nest.
const maxDepth = 64

// Decode reads one JSON document into v, a pointer. Unknown fields, fields given
// twice, other types, more than one document and excessive depth are errors that
// name what is wrong. A field is known by its exact name: encoding/json would take
// "Agent" for "agent" and the last of two.
func Decode(data []byte, v any) error {
	if err := checkDepth(data); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := walk(dec, "", reflect.TypeOf(v).Elem()); err != nil {
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(data)) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body holds more than one JSON document")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return explain(err)
	}
	return nil
}

// walk reads one value and checks the names of its fields against type t; nil
// stands for a value that may have any.
func walk(dec *json.Decoder, place string, t reflect.Type) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		fields, names := fieldsOf(t)
		seen := map[string]bool{}
		for dec.More() {
			token, err := dec.Token()
			if err != nil {
				return err
			}
			key, ok := token.(string)
			if !ok {
				return fmt.Errorf("a field of %q has no name", place)
			}
			inner, known := fields[key]
			switch {
			case seen[key]:
				return fmt.Errorf("field %q is given twice", join(place, key))
			case !known && names != nil:
				return fmt.Errorf("unknown field %q; the fields here are %s", join(place, key), strings.Join(names, ", "))
			}
			seen[key] = true
			if err := walk(dec, join(place, key), inner); err != nil {
				return err
			}
		}
	case json.Delim('['):
		inner := elementOf(t)
		for i := 0; dec.More(); i++ {
			if err := walk(dec, fmt.Sprintf("%s[%d]", place, i), inner); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = dec.Token() // the closing brace or bracket
	return err
}

// concrete returns the type that t points to, or nil if its values read
// themselves.
func concrete(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return t
}

// fieldsOf returns the types of the fields of t by name, and their names in order;
// nil if t is no struct.
func fieldsOf(t reflect.Type) (fields map[string]reflect.Type, names []string) {
	t = concrete(t)
	if t == nil || t.Kind() != reflect.Struct {
		return nil, nil
	}
	fields, names = map[string]reflect.Type{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		fields[name] = f.Type
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fields, names
}

func elementOf(t reflect.Type) reflect.Type {
	if t = concrete(t); t != nil && t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

func join(place, key string) string {
	if place == "" {
		return key
	}
	return place + "." + key
}

func explain(err error) error {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the body is empty, it must be a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON ends too early")
	case errors.As(err, &typ) && typ.Field == "":
		return fmt.Errorf("the JSON must be %s, not %s", jsonName(typ.Type), typ.Value)
	case errors.As(err, &typ):
		return fmt.Errorf("field %q must be %s, not %s", typ.Field, jsonName(typ.Type), typ.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d: %w", syntax.Offset, err)
	default:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
}

func jsonName(t reflect.Type) string {
	switch k := t.Kind(); {
	case k >= reflect.Int && k <= reflect.Uintptr:
		return "a whole number"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.String:
		return "a string"
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

func checkDepth(data []byte) error {
	depth, inString, escaped := 0, false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("the JSON nests deeper than %d levels", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
