package provenance

import (
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// fold returns the form of a text that is compared: NFKC, which replaces composed, wide, raised or joined
// characters by plain ones, and in lower case. It returns false, and a shortened text, if the result exceeds
// limit bytes: a character of 3 bytes may become 33.
func fold(text string, limit int) (string, bool) {
	b := make([]byte, 0, min(len(text), limit))
	if norm.NFKC.IsNormalString(text) {
		for _, r := range text {
			b = appendFolded(b, r)
		}
		return string(b[:min(len(b), limit)]), len(b) <= limit
	}
	var it norm.Iter
	for it.InitString(norm.NFKC, text); !it.Done(); {
		for part := it.Next(); len(part) > 0; {
			r, size := utf8.DecodeRune(part)
			b, part = appendFolded(b, r), part[size:]
		}
		if len(b) > limit {
			return string(b[:limit]), false
		}
	}
	return string(b), true
}

func appendFolded(b []byte, r rune) []byte {
	switch {
	case r < utf8.RuneSelf:
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return append(b, byte(r))
	case r == '\u00df' || r == '\u1e9e': // the one letter of use whose capitals are two
		return append(b, "ss"...)
	default:
		return utf8.AppendRune(b, unicode.ToLower(unicode.ToUpper(r))) // both sigmas are one
	}
}

func counts(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

func digit(r rune) bool { return '0' <= r && r <= '9' }

// squash returns the letters and digits of a folded text.
func squash(text string) []byte {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if counts(r) {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// shortWords returns the words of a folded text that are too short to count as values.
func shortWords(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return !counts(r) }) {
			if len(w) < word && !yield(w) {
				return
			}
		}
	}
}

// decimals returns the numbers of a folded text that have a point, a comma or an exponent, in the form of
// canonical. It omits words with letters or further points on either side.
func decimals(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		apart := func(r rune) bool {
			return !digit(r) && r != '.' && r != ',' && r != 'e' && r != '+' && r != '-' && !counts(r)
		}
		for w := range strings.FieldsFuncSeq(text, apart) {
			w = strings.Trim(w, ".,+-")
			if len(w) > maxDecimal || !strings.ContainsAny(w, ".,e") {
				continue
			}
			if c, ok := canonical(w); ok && !yield(c) {
				return
			}
		}
	}
}

// Bounds of numbers that are compared by value: bytes, and digits on either side of the point.
const (
	maxDecimal = 80
	maxScale   = 64
)

// canonical writes a decimal number, folded, without sign in its one form: 900.0, 9e2 and
// 900,00 are 900. It knows no groups of digits.
func canonical(s string) (string, bool) {
	if len(s) > maxDecimal {
		return "", false
	}
	mantissa, exponent, has := strings.Cut(strings.TrimLeft(s, "+-"), "e")
	exp := 0
	if has {
		var err error
		if exp, err = strconv.Atoi(exponent); err != nil || max(exp, -exp) > maxScale {
			return "", false
		}
	}
	whole, fraction, _ := strings.Cut(strings.Replace(mantissa, ",", ".", 1), ".")
	all := whole + fraction
	if whole == "" || strings.ContainsFunc(all, func(r rune) bool { return !digit(r) }) {
		return "", false
	}
	point := len(whole) + exp
	trimmed := strings.TrimLeft(all, "0")
	point -= len(all) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, "0")
	switch {
	case trimmed == "":
		return "0", true
	case point > 2*maxScale || point < -2*maxScale:
		return "", false
	case point <= 0:
		return "0." + strings.Repeat("0", -point) + trimmed, true
	case point >= len(trimmed):
		return trimmed + strings.Repeat("0", point-len(trimmed)), true
	default:
		return trimmed[:point] + "." + trimmed[point:], true
	}
}
