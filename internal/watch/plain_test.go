package watch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/watch"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"a line\n\tind\u00e9nt \U0001F469\u200d\U0001F52C \u05e9\u200f": "a line\n\tind\u00e9nt \U0001F469\u200d\U0001F52C \u05e9\u200f",
		"\x1b]52;c;cm0gLXJm\x07":            "\ufffd]52;c;cm0gLXJm\ufffd",
		"\x1b[1A\x1b[2Kapproved":            "\ufffd[1A\ufffd[2Kapproved",
		"\u009b2J\u009d0;title\u009c":       "\ufffd2J\ufffd0;title\ufffd",
		"x\rover":                           "x\ufffdover",
		"dos\r\n":                           "dos\n",
		"\x9b2J":                            "\ufffd2J",
		"pay \u202e001\u202c \u2066x\u2069": "pay \ufffd001\ufffd \ufffdx\ufffd",
		"a\u200bpprove\u061cd":              "a\ufffdpprove\ufffdd",
		"a\u2060b\u00adc\u3164d\U000e0100":  "a\ufffdb\ufffdc\ufffdd\ufffd",
		"\x00\x08\x7f":                      "\ufffd\ufffd\ufffd",
		"\u202a\u2069\u2028\u2029\ufeff\U000e0000\U000e0fff\ufff9\ufffb": strings.Repeat("\ufffd", 9),
		"\u034f\u115f\u1160\u180e\u2060\u2065\u206a\u206f\uffa0":         strings.Repeat("\ufffd", 9),
		"\u2029|\u202f \ufff8\ufffc\u115e\u1161\u180d\u180f~\u00a0":      "\ufffd|\u202f \ufff8\ufffc\u115e\u1161\u180d\u180f~\u00a0",
	} {
		var whole, bytewise bytes.Buffer
		fmt.Fprint(watch.Plain(&whole), in)
		w := watch.Plain(&bytewise)
		for i := range len(in) {
			_, _ = w.Write([]byte{in[i]})
		}
		if whole.String() != want {
			t.Errorf("%q became %q, want %q", in, whole.String(), want)
		}
		if in != "dos\r\n" && bytewise.String() != want {
			t.Errorf("%q in single bytes became %q, want %q", in, bytewise.String(), want)
		}
	}
}

// JSON on a terminal is the same JSON, without control sequences.
func TestEscapedJSON(t *testing.T) {
	in := "{\n\t\"text\": \"\u009b31m \u009d0;title\u009c \x7f \u202eevil \u2066x \u061c \u200b \U000e0041 \u00e9 \\u001b[1m\"\n}\n"
	want := "{\n\t\"text\": \"" + `\u009b31m \u009d0;title\u009c \u007f \u202eevil \u2066x \u061c \u200b \udb40\udc41` + " \u00e9 \\u001b[1m\"\n}\n"
	var out bytes.Buffer
	w := watch.EscapedJSON(&out)
	for i := range len(in) {
		_, _ = w.Write([]byte{in[i]})
	}
	if out.String() != want {
		t.Errorf("%q became\n%q, want\n%q", in, out.String(), want)
	}
	var before, after any
	if err := errors.Join(json.Unmarshal([]byte(in), &before), json.Unmarshal(out.Bytes(), &after)); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("%v became %v, %v", before, after, err)
	}
}
