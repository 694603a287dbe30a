package wire

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Reader reads JSON only in the form in which a Writer writes it, field by field in order. Anything
// else makes it fail, and the caller uses encoding/json instead. Field names include the characters
// before them.
type Reader struct {
	rest string // what is not read yet; empty after a failure
	odd  bool   // the text has another form

	// copied takes all strings if some have to be rewritten; those that need not
	// be are parts of the text otherwise.
	copied strings.Builder
	copies bool

	// said is the text of the time read last, and instant its value: many are the same.
	said    string
	instant time.Time
}

// Begin starts reading text. The strings read are parts of it, or of one copy without escapes.
func (r *Reader) Begin(text string) {
	r.rest = text
	if n := strings.Count(text, `\`); n > 0 {
		r.copies = true
		r.copied.Grow(len(text) - n + strings.Count(text, `\\`)) // each escape is longer than what it stands for
	}
}

// Done reports whether text was read to its end.
func (r *Reader) Done() bool { return !r.odd && r.rest == "" }

// Fail ends the reading: the text has another form.
func (r *Reader) Fail() { r.rest, r.odd = "", true }

// Key reads a field's name, or reports that another one stands there.
func (r *Reader) Key(name string) bool {
	if !strings.HasPrefix(r.rest, name) {
		return false
	}
	r.rest = r.rest[len(name):]
	return true
}

// At reports whether prefix stands next, and reads nothing.
func (r *Reader) At(prefix string) bool { return strings.HasPrefix(r.rest, prefix) }

// Must reads a mandatory name.
func (r *Reader) Must(name string) {
	if !r.Key(name) {
		r.Fail()
	}
}

// More reports whether a list continues after n elements, and reads the separator or the end of the
// list.
func (r *Reader) More(n int) bool {
	if r.odd || r.Key(`]`) {
		return false
	}
	if n > 0 {
		r.Must(`,`)
	}
	return !r.odd
}

// Num reads a whole number.
func (r *Reader) Num() int64 {
	s, n, i := r.rest, int64(0), 0
	minus := strings.HasPrefix(s, `-`)
	if minus {
		s = s[1:]
	}
	for ; i < len(s) && isDigit(s[i]); i++ {
		n = n*10 + int64(s[i]-'0')
	}
	var err error
	if i > 18 { // it may be too large
		n, err = strconv.ParseInt(r.rest[:len(r.rest)-len(s)+i], 10, 64)
	} else if minus {
		n = -n
	}
	if i == 0 || i > 1 && s[0] == '0' || err != nil {
		r.Fail()
		return 0
	}
	r.rest = s[i:]
	return n
}

// Millionths reads a decimal number as AppendMillionths writes it, below a trillion. For any other
// number, ok is false and raw is its text.
func (r *Reader) Millionths() (n int64, raw string, ok bool) {
	raw = r.Raw()
	whole, part, _ := strings.Cut(raw, ".")
	if len(whole) <= 12 && len(part) <= 6 {
		if n, err := strconv.ParseUint(whole+part+"000000"[len(part):], 10, 63); err == nil {
			return int64(n), raw, true //nolint:gosec // 63 bits
		}
	}
	return 0, raw, false
}

// NumOr reads a field that may be missing; so do the others of its kind.
func (r *Reader) NumOr(name string, v *int64) {
	if r.Key(name) {
		*v = r.Num()
	}
}

// Int reads a whole number that has to fit.
func (r *Reader) Int() int {
	n := r.Num()
	if strconv.IntSize < 64 && int64(int(n)) != n {
		r.Fail()
	}
	return int(n)
}

// IntOr is NumOr of an int.
func (r *Reader) IntOr(name string, v *int) {
	if r.Key(name) {
		*v = r.Int()
	}
}

// YesOr is NumOr of a boolean.
func (r *Reader) YesOr(name string, v *bool) {
	if r.Key(name) {
		if *v = r.Key(`true`); !*v {
			r.Must(`false`)
		}
	}
}

// TextOr is Reader.NumOr of a string.
func TextOr[T ~string](r *Reader, name string, v *T) {
	if r.Key(name) {
		*v = T(r.Text())
	}
}

// Time reads an instant in UTC with milliseconds, or null, which is the zero time.
func (r *Reader) Time() time.Time {
	const form = `"2006-01-02T15:04:05.000Z"`
	s := r.rest
	if len(s) < len(form) || s[5] != '-' || s[8] != '-' || s[11] != 'T' || s[14] != ':' || s[17] != ':' || s[20] != '.' || s[24:len(form)] != `Z"` {
		r.Must(`null`)
		return time.Time{}
	}
	if s[:len(form)] == r.said {
		r.rest = s[len(form):]
		return r.instant
	}
	year, month, day := r.number(s[1:5]), time.Month(r.number(s[6:8])), r.number(s[9:11])
	hour, minute, second, ms := r.number(s[12:14]), r.number(s[15:17]), r.number(s[18:20]), r.number(s[21:24])
	t := time.Date(year, month, day, hour, minute, second, ms*1e6, time.UTC)
	if r.odd || s[0] != '"' || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 ||
		day > 28 && t.Day() != day { // its month has no such day
		r.Fail()
		return time.Time{}
	}
	r.rest, r.said, r.instant = s[len(form):], s[:len(form)], t
	return r.instant
}

// TimeOr is NumOr of an instant.
func (r *Reader) TimeOr(name string, t *time.Time) {
	if r.Key(name) {
		*t = r.Time()
	}
}

// number returns what some digits say.
func (r *Reader) number(digits string) int {
	n := 0
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			r.Fail()
		}
		n = n*10 + int(digits[i]-'0')
	}
	return n
}

// AnyOr reads rare values with encoding/json.
func AnyOr[T any](r *Reader, name string, v *T) {
	if r.Key(name) {
		*v = Library[T](r, r.Raw())
	}
}

// Library decodes a value with encoding/json: not through a pointer into the decoded struct, which
// it would move to the heap.
func Library[T any](r *Reader, raw string) (v T) {
	if !r.odd && json.Unmarshal([]byte(raw), &v) != nil {
		r.Fail()
	}
	return v
}

// RawOr is NumOr of a value that is kept as it stands there.
func (r *Reader) RawOr(name string, v *json.RawMessage) {
	if r.Key(name) {
		*v = json.RawMessage(r.Raw())
	}
}

// Raw reads any value, as it stands there.
func (r *Reader) Raw() string {
	n := compactValue(r.rest, maxNested)
	if n <= 0 {
		r.Fail()
		return ""
	}
	raw := r.rest[:n]
	r.rest = r.rest[n:]
	return raw
}

// Owned reads any value like Raw. It is a copy if the other strings are parts of one.
func (r *Reader) Owned() string {
	raw := r.Raw()
	if r.copies {
		raw = strings.Clone(raw)
	}
	return raw
}

// Text reads a string.
func (r *Reader) Text() string {
	if r.rest == "" || r.rest[0] != '"' {
		r.Fail()
		return ""
	}
	s := r.rest[1:]
	start, written := r.copied.Len(), 0
	for i := 0; ; {
		i += plain(s[i:])
		if i == len(s) || s[i] < ' ' {
			break
		}
		switch s[i] {
		case '"':
			r.rest = s[i+1:]
			if !r.copies {
				return s[:i]
			}
			r.copied.WriteString(s[written:i])
			return r.copied.String()[start:]
		case '\\':
			r.copied.WriteString(s[written:i])
			n := r.unescape(s[i:])
			if n == 0 {
				r.Fail()
				return ""
			}
			i += n
			written = i
		default:
			c, size := utf8.DecodeRuneInString(s[i:])
			if c == utf8.RuneError && size == 1 {
				r.Fail()
				return ""
			}
			i += size
		}
	}
	r.Fail()
	return ""
}

// unescape copies what s, which begins with a backslash, stands for, and returns how much
// of s that is, or 0 if a Writer never writes it.
func (r *Reader) unescape(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\':
		r.copied.WriteByte(s[1])
	case 'b':
		r.copied.WriteByte('\b')
	case 'f':
		r.copied.WriteByte('\f')
	case 'n':
		r.copied.WriteByte('\n')
	case 'r':
		r.copied.WriteByte('\r')
	case 't':
		r.copied.WriteByte('\t')
	case 'u':
		if len(s) < 6 {
			return 0
		}
		n, err := strconv.ParseUint(s[2:6], 16, 16)
		if err != nil || !utf8.ValidRune(rune(n)) {
			return 0
		}
		r.copied.WriteRune(rune(n))
		return 6
	default:
		return 0
	}
	return 2
}
