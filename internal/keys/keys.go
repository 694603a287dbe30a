package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Of returns the keys of a struct, in order. The caller must not change them.
func Of(t reflect.Type) []string { return of(t).names }

// Types returns the keys of a struct with the types of their values. The caller must not change them.
func Types(t reflect.Type) map[string]reflect.Type { return of(t).types }

// fields are the keys of one struct.
type fields struct {
	names []string
	types map[string]reflect.Type
}

// known has the fields of each type that was looked up: finding them takes far longer than looking them up, and
// untrusted documents have many objects.
var known sync.Map

func of(t reflect.Type) *fields {
	if f, ok := known.Load(t); ok {
		return f.(*fields)
	}
	made := &fields{types: map[string]reflect.Type{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() || name == "" && f.Anonymous {
			continue
		}
		if name == "" {
			name = f.Name
		}
		made.names = append(made.names, name)
		made.types[name] = f.Type
	}
	made.names = slices.Clip(made.names)
	known.Store(t, made)
	return made
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
