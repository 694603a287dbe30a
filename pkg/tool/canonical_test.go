package tool_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Text in canonical form is kept unchanged, and equals the library's output.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[true,false,null,0,"x"],"c":{}}`, `{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"":[],"a":[[]]}`, ` {"a": 1}`, `{"a":1.0}`, `{"a":-1}`, `{"a":1e9}`,
		`{"a":01}`, `{"a":"<&>"}`, `{"a":"é"}`, `{"a":"\u0041"}`, `"\`, `{"a":tru}`, `[1,]`, `{"a":1,}`, `nullx`, `[1 ]`, "\"\x7f\"", "\"\x01\"", `{"a"}`, `{a:1}`,
		"", `{`, `[`, `{"a"`, `{"a":`, `{"a":1`, `[1`, `[1,`, `"a`, `{"a":1,"`,
		strings.Repeat("[", 40) + strings.Repeat("]", 40),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := data
		if json.Valid(data) {
			dec := json.NewDecoder(bytes.NewReader(data))
			dec.UseNumber()
			var v any
			if err := dec.Decode(&v); err != nil {
				return
			}
			var err error
			if want, err = json.Marshal(v); err != nil {
				return
			}
		}
		if got := tool.Canonical(data); !bytes.Equal(got, want) {
			t.Errorf("Canonical(%q) = %q, want %q", data, got, want)
		}
	})
}

func BenchmarkCanonical(b *testing.B) {
	data := []byte(`{"limit":10,"q":"` + strings.Repeat("z", 300) + `"}`)
	b.ReportAllocs()
	for b.Loop() {
		tool.Canonical(data)
	}
}
