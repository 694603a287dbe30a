package wire

// plain returns the number of bytes at the beginning of s that stand for themselves in a JSON
// string: ASCII without quotes, backslashes and control characters.
func plain(s string) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(s); i += 8 {
		b := s[i : i+8]
		x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		// A byte below n borrows from its high bit, if that was not set before; so does one that
		// equals the byte it is compared with.
		quote, back := x^'"'*ones, x^'\\'*ones
		if ((x-' '*ones)|(quote-ones)|(back-ones)|x)&highs != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x80 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// maxNested is the maximum depth of a value that compactValue accepts. encoding/json reads ten times as
// many levels, so an entry around the value still fits.
const maxNested = 1000

// compactValue returns the length of the JSON value at the beginning of s, or -1 if there is none,
// or one with white space in it, or more than depth levels of lists and objects.
func compactValue(s string, depth int) int {
	if s == "" {
		return -1
	}
	switch c := s[0]; c {
	case '{', '[':
		return compactList(s, depth)
	case '"':
		return compactString(s)
	case 't':
		return prefix(s, "true")
	case 'f':
		return prefix(s, "false")
	case 'n':
		return prefix(s, "null")
	default:
		return number(s)
	}
}

// compactList is compactValue of a list or an object.
func compactList(s string, depth int) int {
	if depth == 0 {
		return -1
	}
	object, end := s[0] == '{', byte(']')
	if object {
		end = '}'
	}
	if len(s) > 1 && s[1] == end {
		return 2
	}
	for i := 1; ; i++ {
		if object {
			n := compactString(s[i:])
			if n < 0 || i+n >= len(s) || s[i+n] != ':' {
				return -1
			}
			i += n + 1
		}
		n := compactValue(s[i:], depth-1)
		if n < 0 || i+n >= len(s) {
			return -1
		}
		switch i += n; s[i] {
		case end:
			return i + 1
		case ',':
		default:
			return -1
		}
	}
}

func compactString(s string) int {
	if s == "" || s[0] != '"' {
		return -1
	}
	for i := 1; ; {
		i += plain(s[i:])
		if i == len(s) || s[i] < ' ' {
			return -1
		}
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			n := escape(s[i:])
			if n < 0 {
				return -1
			}
			i += n
		default: // not ASCII; the library takes it as it is
			i++
		}
	}
}

// escape returns the length of an escape sequence, or -1.
func escape(s string) int {
	if len(s) < 2 {
		return -1
	}
	switch s[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		for i := 2; i < 6; i++ {
			if i == len(s) || !isHex(s[i]) {
				return -1
			}
		}
		return 6
	default:
		return -1
	}
}

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func prefix(s, literal string) int {
	if len(s) < len(literal) || s[:len(literal)] != literal {
		return -1
	}
	return len(literal)
}

// number returns the length of the JSON number at the beginning of s, or -1.
func number(s string) int {
	i := 0
	digits := func() bool {
		from := i
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		return i > from
	}
	if s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(s) && s[i] == '.' {
		i++
		if !digits() {
			return -1
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// Compact returns the length of the JSON value without white space at the beginning of s, or -1 if
// s does not begin with one, or one that is nested too deep.
func Compact(s string) int { return compactValue(s, maxNested) }

// CompactObject reports whether text is an object that survives encoding/json byte for
// byte, which strips white space.
func CompactObject(text string) bool {
	return text != "" && text[0] == '{' && Compact(text) == len(text)
}
