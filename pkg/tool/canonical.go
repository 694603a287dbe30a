package tool

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Canonical returns JSON with sorted keys and without white space between tokens; numbers keep
// their digits. It returns anything that is not JSON unchanged.
func Canonical(data json.RawMessage) []byte {
	if rest, ok := plain(data, maxPlain); ok && len(rest) == 0 || !json.Valid(data) {
		return data
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return data
	}
	b, err := json.Marshal(v)
	if err != nil {
		return data
	}
	return b
}

// maxPlain is the maximum depth that plain examines.
const maxPlain = 32

// plain reports whether data begins with a value in canonical form, and returns the rest. It reports false where the
// check would be expensive: most arguments are short ASCII text and whole numbers, and arrive in canonical form.
func plain(data []byte, depth int) (rest []byte, ok bool) {
	if len(data) == 0 || depth == 0 {
		return nil, false
	}
	switch c := data[0]; {
	case c == '"':
		return plainString(data)
	case c == '{':
		return plainList(data, '}', depth)
	case c == '[':
		return plainList(data, ']', depth)
	case c >= '1' && c <= '9':
		n := 1
		for n < len(data) && data[n] >= '0' && data[n] <= '9' {
			n++
		}
		if n < len(data) && strings.IndexByte(",]}", data[n]) < 0 {
			return nil, false // a fraction or an exponent
		}
		return data[n:], true
	}
	for _, word := range []string{"true", "false", "null", "0"} {
		if rest, ok := bytes.CutPrefix(data, []byte(word)); ok {
			return rest, len(rest) == 0 || strings.IndexByte(",]}", rest[0]) >= 0
		}
	}
	return nil, false
}

func plainString(data []byte) (rest []byte, ok bool) {
	for i := 1; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			return data[i+1:], true
		case c < ' ' || c >= 0x80 || c == '\\' || c == '<' || c == '>' || c == '&':
			return nil, false
		}
	}
	return nil, false
}

// plainList reads an array, or an object whose keys are sorted.
func plainList(data []byte, end byte, depth int) (rest []byte, ok bool) {
	rest = data[1:]
	if len(rest) > 0 && rest[0] == end {
		return rest[1:], true
	}
	var last []byte
	for {
		if end == '}' {
			if len(rest) == 0 || rest[0] != '"' {
				return nil, false
			}
			key := rest
			if rest, ok = plainString(rest); !ok || len(rest) == 0 || rest[0] != ':' {
				return nil, false
			}
			key = key[1 : len(key)-len(rest)-1]
			if last != nil && bytes.Compare(last, key) >= 0 {
				return nil, false
			}
			last, rest = key, rest[1:]
		}
		if rest, ok = plain(rest, depth-1); !ok || len(rest) == 0 {
			return nil, false
		}
		switch rest[0] {
		case end:
			return rest[1:], true
		case ',':
			rest = rest[1:]
		default:
			return nil, false
		}
	}
}
