package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
)

// Encode encodes the body of a request as JSON. If a json.RawMessage in it is not JSON, the error is ErrInvalid and
// names the field.
func Encode(request any) ([]byte, error) {
	b, err := json.Marshal(request)
	if e, ok := errors.AsType[*json.MarshalerError](err); ok && e.Type == reflect.TypeFor[json.RawMessage]() {
		return nil, &Problem{
			Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest, Code: CodeInvalidRequest,
			Detail: fmt.Sprintf("field %q of the request is not JSON (%v): correct it, or convert plain text with api.Text", rawField("", reflect.ValueOf(request)), e.Err),
		}
	}
	return b, err
}

// rawField returns the path of the first json.RawMessage in v that is not JSON, such as runs[1].output_schema, or "". at
// is the path of v.
func rawField(at string, v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return rawField(at, v.Elem())
		}
	case reflect.Slice:
		if raw, ok := reflect.TypeAssert[json.RawMessage](v); ok {
			if raw == nil || json.Valid(raw) {
				return ""
			}
			return at
		}
		for i := range v.Len() {
			if found := rawField(fmt.Sprintf("%s[%d]", at, i), v.Index(i)); found != "" {
				return found
			}
		}
	case reflect.Struct:
		for f, value := range v.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || options == "omitempty" && value.Kind() == reflect.Slice && value.Len() == 0 {
				continue
			}
			inner := at
			if name != "" { // not embedded
				inner = strings.TrimPrefix(at+"."+name, ".")
			}
			if found := rawField(inner, value); found != "" {
				return found
			}
		}
	default: // it contains no raw JSON
	}
	return ""
}
