package watch

import (
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// Plain returns a writer that passes on text, except for parts that could make a terminal do more than show text:
// control characters other than line feed and tab, invalid UTF-8, and most characters that change the direction of
// text or are invisible (see commands). It writes each of them as U+FFFD, but drops a carriage return before a line
// feed in the same Write. An incomplete character at the end of a Write waits for the next Write.
//
// The text comes from models, tools and callers: an escape sequence could move the cursor over the line that shows a
// call, or write to the clipboard.
func Plain(out io.Writer) io.Writer {
	return &plain{out: out, instead: func(text []byte, _ rune) []byte { return utf8.AppendRune(text, utf8.RuneError) }}
}

// EscapedJSON returns a writer that passes JSON on and writes the same characters as \u009b:
// the same JSON, without anything that a terminal would interpret as a command.
func EscapedJSON(out io.Writer) io.Writer {
	return &plain{out: out, instead: func(text []byte, r rune) []byte {
		for _, unit := range utf16.AppendRune(nil, r) {
			text = fmt.Appendf(text, `\u%04x`, unit)
		}
		return text
	}}
}

type plain struct {
	out     io.Writer
	instead func(text []byte, r rune) []byte // appends what is written in the place of r
	rest    []byte                           // the beginning of a character whose end has not come yet
}

// Write implements io.Writer.
func (p *plain) Write(b []byte) (int, error) {
	n := len(b)
	if len(p.rest) > 0 {
		b = append(p.rest, b...)
		p.rest = nil
	}
	text := make([]byte, 0, len(b))
	for len(b) > 0 {
		if !utf8.FullRune(b) {
			p.rest = append(p.rest, b...)
			break
		}
		if b[0] == '\r' && len(b) > 1 && b[1] == '\n' {
			b = b[1:]
		}
		r, size := utf8.DecodeRune(b)
		if commands(r) || r == utf8.RuneError && size == 1 {
			text = p.instead(text, r)
		} else {
			text = append(text, b[:size]...)
		}
		b = b[size:]
	}
	if _, err := p.out.Write(text); err != nil {
		return 0, err
	}
	return n, nil
}

// style writes a command of ours: how what follows looks.
func (p *plain) style(code string) { _, _ = io.WriteString(p.out, "\x1b["+code+"m") }

// commands reports whether a terminal may do something else with a character than show it.
func commands(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return true
	case r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x061c:
		return true // direction of text
	case r == 0x200b || r == 0x2028 || r == 0x2029 || r == 0xfeff || r >= 0xe0000 && r <= 0xe0fff || r >= 0xfff9 && r <= 0xfffb:
		return true // lines and characters that are invisible
	case r == 0x00ad || r == 0x034f || r == 0x115f || r == 0x1160 || r == 0x180e || r >= 0x2060 && r <= 0x2065 || r >= 0x206a && r <= 0x206f || r == 0x3164 || r == 0xffa0:
		return true // more of these
	default:
		return false
	}
}
