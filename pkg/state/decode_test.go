package state_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type failer interface {
	Fatal(...any)
	Errorf(string, ...any)
}

// agree reports an error if text is not decoded as encoding/json does it, and returns
// whether that was not asked.
func agree[T any](t failer, text string, fast func(string) (T, bool), slow func(string) (T, error)) bool {
	got, ok := fast(text)
	if !ok {
		return false
	}
	if want, err := slow(text); err != nil {
		t.Errorf("%q is taken, the library says %v", text, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as\n%+v\nwant\n%+v", text, got, want)
	}
	return true
}

func agreeEntry(t failer, text string) bool {
	return agree(t, text, state.EntryFast, func(text string) (e state.Entry, err error) { return e, json.Unmarshal([]byte(text), &e) })
}

func agreeState(t failer, text string) bool { return agree(t, text, state.StateFast, state.StateSlow) }

// agreeHeader is agreeState of a header in two parts, with a line between them.
func agreeHeader(t failer, text string) bool {
	fixed, changing, _ := strings.Cut(text, "\n")
	return agree(t, fixed+"\n"+changing,
		func(string) (state.State, bool) { return state.HeaderFast(fixed, changing) },
		func(string) (state.State, error) { return state.HeaderSlow(fixed, changing) })
}

// The decoder takes whatever the encoder writes, and reads it as encoding/json does.
func TestDecodesWhatIsEncoded(t *testing.T) {
	t.Parallel()
	entry := func(t failer, e state.Entry) {
		b, err := state.EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		if !agreeEntry(t, string(b)) {
			t.Errorf("%s is not taken", b)
		}
	}
	header := func(t failer, s state.State) {
		for format := range state.Format + 1 {
			s.Format = format
			b, err := state.EncodeState(s)
			if err != nil {
				t.Fatal(err)
			}
			if !agreeState(t, string(b)) {
				t.Errorf("%s is not taken", b)
			}
			fixed, changing, err := state.EncodeHeader(s)
			if err != nil {
				t.Fatal(err)
			}
			if !agreeHeader(t, string(fixed)+"\n"+string(changing)) {
				t.Errorf("%s and %s are not taken", fixed, changing)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) { entry(t, drawEntry(t)) })
	rapid.Check(t, func(t *rapid.T) { header(t, drawState(t)) })
	for _, s := range []string{"", "\x00\x1f\x7f\"\\/\b\f\n\r\t", "<&>", "\u2028\u2029é😀", "\xff\xc3(\xed\xa0\x80", "x\xffy"} {
		entry(t, state.Entry{Detail: s, Output: &s, Messages: []state.Message{state.UserText(s), {}}})
	}
	var e state.Entry
	fill(reflect.ValueOf(&e).Elem())
	for _, typ := range []state.PartType{state.PartText, state.PartThinking, state.PartToolCall, state.PartToolResult, state.PartImage} {
		e.Message.Parts[0].Type = typ
		entry(t, e)
	}
	var s state.State
	fill(reflect.ValueOf(&s).Elem())
	header(t, s)
	header(t, state.State{})
}

// Nor is there a text near those of the encoder about which they differ.
func TestDecodesWhatWasTouched(t *testing.T) {
	t.Parallel()
	pieces := rapid.SampledFrom([]string{"", " ", ",", ":", `"`, `\`, "{", "}", "[", "]", "0", "-", "1.5", "e3", "null", "true", "\x00", "\x7f", "\xff", "é", `\u00e9`, `\n`, `"a":1,`})
	rapid.Check(t, func(t *rapid.T) {
		e, s := sample(), state.State{}
		if rapid.Bool().Draw(t, "any") {
			e, s = drawEntry(t), drawState(t)
		}
		entry, err := state.EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		s.Format = rapid.IntRange(1, state.Format).Draw(t, "format")
		header, err := state.EncodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			text := string(entry)
			if i%2 == 1 {
				text = string(header)
			}
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			text = text[:at] + pieces.Draw(t, "piece") + text[at+rapid.IntRange(0, min(3, len(text)-at)).Draw(t, "gone"):]
			agreeEntry(t, text)
			agreeState(t, text)
			checkCompact(t, text[at:])
		}
	})
}

// checkCompact holds what is taken for the text of a value to encoding/json.
func checkCompact(t failer, text string) {
	n := wire.Compact(text)
	if n >= 0 && !json.Valid([]byte(text[:n])) {
		t.Errorf("%q is taken for a value", text[:n])
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err == nil && b.String() == text && n != len(text) && strings.Count(text, "[")+strings.Count(text, "{") < 1000 {
		t.Errorf("%q is not taken for a value", text)
	}
}

// What is not quite as the encoder writes it is left to the library, or read as it does.
func TestDecodesAsTheLibraryDoes(t *testing.T) {
	t.Parallel()
	b, err := state.EncodeEntry(sample())
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	taken := func(old, by string) bool {
		t.Helper()
		odd := strings.Replace(text, old, by, 1)
		if odd == text {
			t.Fatalf("no %s in %s", old, text)
		}
		return agreeEntry(t, odd)
	}
	for old, by := range map[string]string{
		`"seq":17`: `"seq": 17`, `"turn":6`: `"turn":6,"turn":7`, `{"seq":17,`: `{`, `"attempt":1`: `"Attempt":1`, `"type":`: `"new":1,"type":`,
		`15:04:05.678Z`: `15:04:05Z`, `2026-11-20`: `2026-02-29`, `T15:`: `T24:`, `04:05.678Z`: `04:60.678Z`, `"role":"tool"`: `"role":null`,
		`"content":"`: "\"content\":\"\n", `"is_error":false`: `"is_error":0`, `xx`: `\/`, `xxx`: "\xff", `xxxx`: `\ud83d\ude00`, `xxxxx`: `\x`,
		`}`: `},`, `]`: `,]`, `"parts":[`: `"parts":[,`,
	} {
		if taken(old, by) {
			t.Errorf("it is taken with %s instead of %s", by, old)
		}
	}
	for old, by := range map[string]string{
		`"attempt":1`: `"attempt":-0`, `2026-11-20`: `2024-02-29`, `xx`: `\\\"`, `xxx`: `\u000a\uFFFD`, `"is_error":false`: `"is_error":true`, `"at":"2026-11-20T15:04:05.678Z"`: `"at":null`,
	} {
		if !taken(old, by) {
			t.Errorf("it is not taken with %s instead of %s", by, old)
		}
	}
	for i := range text { // D5: nothing that was cut short
		if _, ok := state.EntryFast(text[:i]); ok {
			t.Errorf("%s is taken", text[:i])
		}
	}
}

// Numbers, amounts and nested values at their bounds.
func TestDecodesBounds(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"9223372036854775807", "-9223372036854775808", "9223372036854775808", "99999999999999999999", "00", "-", "1.0", "1e3", "01", "-01"} {
		agreeEntry(t, `{"seq":`+n+`,"type":"","turn":0,"at":null}`)
	}
	for _, n := range []string{"0", "0.5", "0.000001", "-0.5", "-0", "1e3", "1.0000005", "999999999999.999999", "1000000000000", "9223372036855", "00", "0.", `"1"`, "1e99"} {
		text := `{"seq":1,"type":"","turn":0,"at":null,"usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,` +
			`"model_calls":0,"tool_calls":0,"cost_usd":` + n + `}}`
		agreeEntry(t, text)
	}
	for _, n := range []int{1, 1000, 1001, 20_000} {
		deep := strings.Repeat("[", n) + strings.Repeat("]", n)
		if ok := agreeEntry(t, `{"seq":1,"type":"","turn":0,"at":null,"structured_output":`+deep+`}`); ok != (n <= 1000) {
			t.Errorf("a value that is nested %d times: %v", n, ok)
		}
	}
}

// The strings of an entry are in its text, or in one copy.
func TestDecodeAllocations(t *testing.T) { //nolint:paralleltest // counts allocations
	for content, most := range map[string]float64{strings.Repeat("x", 400): 2, strings.Repeat("x\n", 200): 3, strings.Repeat(`\`, 401): 3, strings.Repeat("\\\n\"", 200): 3} {
		e := sample()
		e.Message.Parts[0].Content = content
		b, err := state.EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if got := testing.AllocsPerRun(100, func() {
			if _, err := state.DecodeEntry(text); err != nil {
				t.Fatal(err)
			}
		}); got > most {
			t.Errorf("an entry takes %v allocations, want %v at most", got, most)
		}
	}
}

// FuzzAgree holds the decoder to encoding/json: what it takes, it reads as that does.
func FuzzAgree(f *testing.F) {
	var e state.Entry
	var s state.State
	fill(reflect.ValueOf(&e).Elem())
	fill(reflect.ValueOf(&s).Elem())
	entry, err := state.EncodeEntry(e)
	if err != nil {
		f.Fatal(err)
	}
	header, err := state.EncodeState(s)
	if err != nil {
		f.Fatal(err)
	}
	common, err := state.EncodeEntry(sample())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{
		entry, header, common, bytes.ReplaceAll(common, []byte("xx"), []byte(`\n`)), bytes.ReplaceAll(common, []byte("xx"), []byte("é")),
		bytes.ReplaceAll(common, []byte("xx"), []byte(`\u00e9`)), bytes.ReplaceAll(common, []byte(":"), []byte(": ")),
	} {
		f.Add(string(seed))
	}
	f.Fuzz(func(t *testing.T, text string) {
		agreeEntry(t, text)
		agreeState(t, text)
		checkCompact(t, text)
	})
}
