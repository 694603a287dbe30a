package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Of returns the keys of a struct, in order.
func Of(t reflect.Type) []string {
	var names []string
	for name := range fields(t) {
		names = append(names, name)
	}
	return names
}

// Types returns the keys of a struct with the types of their values.
func Types(t reflect.Type) map[string]reflect.Type { return maps.Collect(fields(t)) }

func fields(t reflect.Type) iter.Seq2[string, reflect.Type] {
	return func(yield func(string, reflect.Type) bool) {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() || name == "" && f.Anonymous {
				continue
			}
			if name == "" {
				name = f.Name
			}
			if !yield(name, f.Type) {
				return
			}
		}
	}
}

// Rest returns an object with the keys of data, an object, that are not in known, sorted; nil if it
// has no others. Digits of numbers stay as they are.
func Rest(data []byte, known []string) (json.RawMessage, error) {
	var all map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&all); err != nil {
		return nil, err
	}
	for _, key := range known {
		delete(all, key)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

// Join returns the object with the keys of data and then those of rest, which may be
// empty.
func Join(data []byte, rest json.RawMessage) ([]byte, error) {
	rest = bytes.TrimSpace(rest)
	if len(rest) == 0 {
		return data, nil
	}
	if rest[0] != '{' || !json.Valid(rest) {
		return nil, errors.New("the settings of a kind are not a JSON object: give the kind a struct or a map as its settings")
	}
	if rest = bytes.TrimSpace(rest[1:]); rest[0] == '}' {
		return data, nil
	}
	joined := slices.Clone(data[:len(data)-1])
	if len(joined) > 1 {
		joined = append(joined, ',')
	}
	return append(joined, rest...), nil
}
