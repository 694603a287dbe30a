package watch_test

import (
	"bytes"
	"fmt"
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
		"\x00\x08\x7f":                      "\ufffd\ufffd\ufffd",
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
