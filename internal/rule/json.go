package rule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
)

// toJSON returns a value as JSON, and spends the cost of that. A value that CEL shares takes its place each time.
func (e *Evaluation) toJSON(v ref.Val) (json.RawMessage, error) {
	most := 2 * e.budget.left
	w := weight(v, most)
	if w > most {
		e.budget.left = 0
		return nil, errCost
	}
	e.budget.left -= w / 2
	var b bytes.Buffer
	if err := writeJSON(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeJSON writes a value in the form that the conversion of CEL has, in a tenth of its time.
func writeJSON(b *bytes.Buffer, v ref.Val) error {
	switch v := v.(type) {
	case traits.Lister:
		b.WriteByte('[')
		for it, first := v.Iterator(), true; it.HasNext() == types.True; first = false {
			if !first {
				b.WriteByte(',')
			}
			if err := writeJSON(b, it.Next()); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case traits.Mapper:
		return writeObject(b, v)
	case types.String:
		return writeText(b, string(v))
	case types.Int:
		if v < 1<<53 && v > -1<<53 {
			b.Write(strconv.AppendInt(b.AvailableBuffer(), int64(v), 10))
			return nil
		}
	}
	native, err := v.ConvertToNative(types.JSONValueType)
	if err != nil {
		return err
	}
	value, ok := native.(*structpb.Value)
	if !ok {
		return fmt.Errorf("JSON cannot represent a %v: return a text, a number, a boolean, null, a list or a map", v.Type())
	}
	text, err := value.MarshalJSON()
	b.Write(text)
	return err
}

func writeObject(b *bytes.Buffer, v traits.Mapper) error {
	var names []string
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return fmt.Errorf("a key of an object has the type %v, and only strings are allowed: convert it with string(…)", key.Type())
		}
		names = append(names, string(name))
	}
	slices.Sort(names)
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeText(b, name); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeJSON(b, v.Get(types.String(name))); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeText(b *bytes.Buffer, text string) error {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the line break
	return nil
}
