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
	"sync"
	"unicode/utf8"
)

// Bounds of a request: the maximum depth of nesting, and the maximum number of values. A value takes far more memory
// than its bytes, and 8 MiB can have four million values.
const (
	maxDepth  = 64
	maxValues = 1 << 18
)

// Decode decodes one JSON document into v, a pointer. The error names the place of unknown fields, duplicate fields and
// values of the wrong type; Decode also refuses an empty body, more than one document, more than 64 levels of nesting
// and more than about 262,144 values (see Values). Field names must match exactly: encoding/json would accept "Agent"
// for "agent", and use the last of two. Bytes that are not UTF-8 become U+FFFD.
func Decode(data []byte, v any) error {
	if !utf8.Valid(data) { // which copies nothing
		data = bytes.ToValidUTF8(data, []byte("\uFFFD")) // raw parts are stored and sent to readers
	}
	if err := checkBounds(data); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	w := walker{dec: dec}
	if err := w.walk(reflect.TypeOf(v).Elem()); err != nil {
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(data)) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more text after the JSON document: remove it, and send one document")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return explain(misread(reflect.TypeOf(v).Elem(), data, err))
	}
	return nil
}

// misread returns the error of decoding data into a t, with the name of the field whose UnmarshalJSON has failed:
// encoding/json names none for such errors.
func misread(t reflect.Type, data []byte, err error) error {
	if _, named := errors.AsType[*json.UnmarshalTypeError](err); named {
		return err
	}
	w := walker{}
	if w.misread(t, data) && len(w.place) > 0 {
		last := w.place[len(w.place)-1]
		w.place = w.place[:len(w.place)-1]
		if name := w.at(last.key); !strings.HasPrefix(err.Error(), name) {
			return fmt.Errorf("field %q: %w", name, err)
		}
	}
	return err
}

// misread walks to the value of data that does not decode into a t, and reports whether there is one. w.place is then
// the way to it.
func (w *walker) misread(t reflect.Type, data []byte) bool {
	if json.Unmarshal(data, reflect.New(t).Interface()) == nil {
		return false
	}
	known := fieldsOf(t)
	var members map[string]json.RawMessage
	if known.names == nil || json.Unmarshal(data, &members) != nil {
		return true
	}
	for _, name := range known.names {
		w.place = append(w.place, step{key: name})
		if value, ok := members[name]; ok && w.misread(known.types[name], value) {
			return true
		}
		w.place = w.place[:len(w.place)-1]
	}
	return true
}

// maxEcho is the maximum number of bytes of a request that an error repeats.
const maxEcho = 200

func clip(text string) string {
	if len(text) <= maxEcho {
		return text
	}
	return strings.ToValidUTF8(text[:maxEcho], "") + "…"
}

// walker reads a document and checks the names of its fields. Lists may have millions of elements, so it formats its
// place only for an error.
type walker struct {
	dec   *json.Decoder
	place []step
}

// step is one step on the way to a value: the name of a field, or an index of a list.
type step struct {
	key    string
	index  int
	inList bool
}

func (w *walker) at(key string) string {
	var b strings.Builder
	for _, s := range append(w.place, step{key: clip(key)}) {
		s.key = clip(s.key)
		if b.Len() > 2*maxEcho {
			return clip(b.String()) + "…" + clip(key)
		}
		switch {
		case s.inList:
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	return b.String()
}

// walk reads one value and checks the names of its fields against type t. A nil t allows all names.
func (w *walker) walk(t reflect.Type) error {
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		err = w.object(t)
	case json.Delim('['):
		err = w.list(elementOf(t))
	default:
		return nil
	}
	if err != nil {
		return err
	}
	_, err = w.dec.Token() // the closing brace or bracket
	return err
}

func (w *walker) object(t reflect.Type) error {
	known := fieldsOf(t)
	seen := map[string]bool{}
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string) // the decoder returns nothing else here
		inner, ok := known.types[key]
		switch {
		case seen[key]:
			return fmt.Errorf("field %q is given twice: remove one", w.at(key))
		case !ok && known.names != nil:
			return fmt.Errorf("unknown field %q: remove it, or use one of %s", w.at(key), strings.Join(known.names, ", "))
		}
		seen[key] = true
		w.place = append(w.place, step{key: key})
		if err := w.walk(inner); err != nil {
			return err
		}
		w.place = w.place[:len(w.place)-1]
	}
	return nil
}

func (w *walker) list(element reflect.Type) error {
	w.place = append(w.place, step{inList: true})
	for w.dec.More() {
		if err := w.walk(element); err != nil {
			return err
		}
		w.place[len(w.place)-1].index++
	}
	w.place = w.place[:len(w.place)-1]
	return nil
}

// concrete returns the type that t points to, or nil if its values implement json.Unmarshaler.
func concrete(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return t
}

// fields has the types of the fields of a struct by name, and their names in order. names is nil for a type that is not
// a struct: its values may have any fields.
type fields struct {
	types map[string]reflect.Type
	names []string
}

// structs has the fields of each struct that was decoded, by reflect.Type.
var structs sync.Map

func fieldsOf(t reflect.Type) fields {
	t = concrete(t)
	if t == nil || t.Kind() != reflect.Struct {
		return fields{}
	}
	if known, ok := structs.Load(t); ok {
		return known.(fields) //nolint:forcetypeassert // it holds nothing else
	}
	known := fields{map[string]reflect.Type{}, []string{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		known.types[name] = f.Type
		if !slices.Contains(known.names, name) {
			known.names = append(known.names, name)
		}
	}
	structs.Store(t, known)
	return known
}

func elementOf(t reflect.Type) reflect.Type {
	if t = concrete(t); t != nil && t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

func explain(err error) error {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the body is empty: send a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON is incomplete: send all of it")
	case errors.As(err, &typ) && typ.Field == "":
		return fmt.Errorf("the JSON must be %s, not %s: correct it", jsonName(typ.Type), clip(typ.Value))
	case errors.As(err, &typ):
		field := fieldOf(typ)
		if composite := typ.Value == "object" || typ.Value == "array"; composite && typ.Type.Kind() == reflect.String && isExpression(field) {
			return fmt.Errorf("field %q must be a string, not %s: write one CEL expression that returns the value, such as {'name': event.name}", clip(field), typ.Value)
		}
		return fmt.Errorf("field %q must be %s, not %s: correct it", clip(field), jsonName(typ.Type), clip(typ.Value))
	case errors.As(err, &syntax):
		return fmt.Errorf("this is not JSON at byte %d (%w): correct it", syntax.Offset, err)
	default:
		return errors.New(clip(strings.TrimPrefix(err.Error(), "json: ")))
	}
}

// fieldOf returns the path of a field without the names of embedded structs, which JSON does not have.
func fieldOf(err *json.UnmarshalTypeError) string {
	path := slices.DeleteFunc(strings.Split(err.Field, "."), func(name string) bool { return name != "" && name[0] >= 'A' && name[0] <= 'Z' })
	return strings.Join(path, ".")
}

// isExpression reports whether a field of type string is an expression of a hook or a trigger.
func isExpression(field string) bool {
	return slices.Contains([]string{"filter", "run.input", "run.key", "run.metadata", "run.variables", "signal.run", "signal.message", "signal.answer"}, field)
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

// Values returns the number of values of a JSON document, or slightly more. It stops where the document has more than
// 64 levels of nesting.
func Values(data []byte) int {
	values, _ := scan(data, len(data)+1)
	return values
}

func checkBounds(data []byte) error {
	values, depth := scan(data, maxValues)
	switch {
	case depth > maxDepth:
		return fmt.Errorf("the JSON is nested more than %d levels deep: flatten it", maxDepth)
	case values > maxValues:
		return fmt.Errorf("the JSON has more than %d values: send fewer", maxValues)
	}
	return nil
}

// scan returns the number of values of a document, as Values counts them, and its depth. It stops above maxDepth levels
// or most values.
func scan(data []byte, most int) (values, deepest int) {
	depth, inString, escaped := 0, false, false
	values = 1
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == ',':
			values++
		case c == '{' || c == '[':
			values++
			depth++
			if deepest = max(deepest, depth); deepest > maxDepth {
				return values, deepest
			}
		case c == '}' || c == ']':
			depth--
		}
		if values > most {
			return values, deepest
		}
	}
	return values, deepest
}
