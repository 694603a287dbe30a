package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Writer writes JSON, and uses no reflection except in Any. It escapes texts as encoding/json does with
// SetEscapeHTML(false). B is the output: callers append braces and brackets to it themselves, the first one before the
// first field.
type Writer struct {
	B   []byte
	Err error // about the last value that has no form
}

// Bytes returns the output, or Err.
func (w *Writer) Bytes() ([]byte, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	return w.B, nil
}

// Comma writes a comma unless the output, which must not be empty, ends with an opening bracket or brace.
func (w *Writer) Comma() {
	if last := w.B[len(w.B)-1]; last != '{' && last != '[' {
		w.B = append(w.B, ',')
	}
}

// Key begins a field; name includes its quotes and colon.
func (w *Writer) Key(name string) {
	w.Comma()
	w.B = append(w.B, name...)
}

// Num writes a field with a whole number.
func (w *Writer) Num(name string, n int64) {
	w.Key(name)
	w.B = strconv.AppendInt(w.B, n, 10)
}

// NumOr writes a number unless it is 0; the other methods ending in Or also omit empty values.
func (w *Writer) NumOr(name string, n int64) {
	if n != 0 {
		w.Num(name, n)
	}
}

// YesOr is NumOr of a boolean.
func (w *Writer) YesOr(name string, yes bool) {
	if yes {
		w.Key(name)
		w.B = append(w.B, "true"...)
	}
}

// Text writes a field with a string.
func (w *Writer) Text(name, s string) {
	w.Key(name)
	w.B = appendString(w.B, s)
}

// TextOr is NumOr of a string.
func (w *Writer) TextOr(name, s string) {
	if s != "" {
		w.Text(name, s)
	}
}

// Time writes a field with an instant: RFC 3339 in UTC with milliseconds, or null for the
// zero time.
func (w *Writer) Time(name string, t time.Time) {
	w.Key(name)
	var err error
	if w.B, err = AppendTime(w.B, t); err != nil {
		w.Err = err
	}
}

// Yes writes a field with a boolean, also if it is false.
func (w *Writer) Yes(name string, yes bool) {
	w.Key(name)
	w.B = strconv.AppendBool(w.B, yes)
}

// Raw writes a field whose value is JSON already.
func (w *Writer) Raw(name, value string) {
	w.Key(name)
	w.B = append(w.B, value...)
}

// Any writes rare values with encoding/json.
func (w *Writer) Any(name string, v any, there bool) {
	if !there {
		return
	}
	w.Key(name)
	b, err := Marshal(v)
	if err != nil {
		w.Err = err
	}
	w.B = append(w.B, b...)
}

// Marshal is encoding/json without escaping HTML, so text costs its own length.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Writable reports whether RFC 3339 can write t in UTC: it has four digits for the year.
func Writable(t time.Time) bool {
	y := t.UTC().Year()
	return y >= 0 && y <= 9999
}

// AppendTime appends an instant as Writer.Time writes it, in JSON quotes. The error is for a time that is
// not Writable.
func AppendTime(b []byte, t time.Time) ([]byte, error) {
	if t.IsZero() {
		return append(b, "null"...), nil
	}
	if !Writable(t) {
		return b, fmt.Errorf("a time is in the year %d, which RFC 3339 cannot write: use a time in the years 0 to 9999", t.UTC().Year())
	}
	u := t.UTC()
	year, month, day := u.Date()
	hour, minute, second := u.Clock()
	b = append(b, '"')
	b = digits(b, year, 4)
	b = digits(append(b, '-'), int(month), 2)
	b = digits(append(b, '-'), day, 2)
	b = digits(append(b, 'T'), hour, 2)
	b = digits(append(b, ':'), minute, 2)
	b = digits(append(b, ':'), second, 2)
	b = digits(append(b, '.'), u.Nanosecond()/1e6, 3)
	return append(b, 'Z', '"'), nil
}

// AppendMillionths appends v millionths as a decimal number, exactly.
func AppendMillionths(b []byte, v int64) []byte {
	n := uint64(v)
	if v < 0 {
		b, n = append(b, '-'), -n
	}
	b = strconv.AppendUint(b, n/1_000_000, 10)
	if n %= 1_000_000; n > 0 {
		b = bytes.TrimRight(digits(append(b, '.'), int(n), 6), "0") //nolint:gosec // below a million
	}
	return b
}

// digits appends n with as many digits as there are places.
func digits(b []byte, n, places int) []byte {
	for range places {
		b = append(b, '0')
	}
	for i := len(b) - 1; n > 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendString writes a string as encoding/json does without escaping HTML, so text
// costs its own length.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; ; {
		i += plain(s[i:])
		if i == len(s) {
			break
		}
		if c := s[i]; c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\b':
				b = append(b, '\\', 'b')
			case '\f':
				b = append(b, '\\', 'f')
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(append(b, s[start:i]...), `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			b = append(append(b, s[start:i]...), '\\', 'u', '2', '0', '2', hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	return append(append(b, s[start:]...), '"')
}
