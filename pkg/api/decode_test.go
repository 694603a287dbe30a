package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Decode replaces bytes that are not UTF-8, in texts and in raw parts of a request, and nothing else.
func TestDecodeReplacesBytes(t *testing.T) {
	t.Parallel()
	var r api.SubmitRequest
	body := "{\"agent\":\"a\xff\xfe\",\"input\":\"é\xc3\",\"variables\":{\"k\x80\":\"é\"},\"output_schema\":{\"const\":\"\xed\xa0\x80\"}}"
	if err := api.Decode([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	for field, got := range map[string][2]string{
		"agent":         {r.Agent, "a\uFFFD"},
		"input":         {string(r.Input), "\"é\uFFFD\""},
		"variables":     {string(r.Variables), "{\"k\uFFFD\":\"é\"}"},
		"output_schema": {string(r.OutputSchema), "{\"const\":\"\uFFFD\"}"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %q, want %q", field, got[0], got[1])
		}
	}
	if err := api.Decode([]byte("{\"agent\":\"a\"}\xff"), &r); err == nil {
		t.Error("Decode accepts a byte that is not UTF-8 after the document")
	}
}

// Decode accepts documents with as many levels and values as it documents, and no more. Brackets, commas and quotation
// marks within texts count for nothing.
func TestDecodeBounds(t *testing.T) {
	t.Parallel()
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	list := func(values int) string { return "[" + strings.Repeat("1,", values-2) + "1]" } // with the list
	marks := strings.Repeat(",", 1<<18) + strings.Repeat("[{", 64)
	for name, c := range map[string]struct{ text, want string }{
		"64 levels":         {nested(64), ""},
		"65 levels":         {nested(65), "nested more than 64 levels deep"},
		"lists in sequence": {"[" + strings.Repeat(nested(63)+",", 2) + nested(63) + "]", ""},
		"the most values":   {list(1 << 18), ""},
		"one value more":    {list(1<<18 + 1), "more than 262144 values"},
		"a text":            {`"` + marks + `"`, ""},
		"a quotation mark":  {`"\"` + marks + `"`, ""},
		"a backslash":       {`["\\",` + nested(64) + `]`, "nested more than 64 levels deep"},
	} {
		var v json.RawMessage
		err := api.Decode([]byte(c.text), &v)
		if c.want == "" && (err != nil || string(v) != c.text) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("Decode of %s: %v, want an error with %q", name, err, c.want)
		}
	}
	for text, want := range map[string]int{`1`: 1, `[]`: 2, `{"a":[1,2],"b":"[,"}`: 5, nested(70): 66} {
		if got := api.Values([]byte(text)); got != want {
			t.Errorf("Values(%s) = %d, want %d", text, got, want)
		}
	}
}
