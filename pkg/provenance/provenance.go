package provenance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Bounds of a comparison. Beyond them the answer is yes.
const (
	maxText    = 1 << 20  // bytes of untrusted text
	maxArgs    = 64 << 10 // bytes of arguments
	maxNeedles = 64       // values between word and window bytes
)

const (
	word   = 4  // below so many bytes a value must be a whole word
	window = 12 // of a value with so many bytes or more any part of this length counts
)

// Seen reports whether anything untrusted stands in the history at all.
func Seen(log []state.Entry) bool {
	return !each(log, func(*state.Part) bool { return false })
}

// FromUntrusted reports whether a value of a call's arguments, a JSON object, also stands in
// something untrusted in the history. Case, spaces and punctuation do not count. It errs on
// the side of yes: where there is more than it compares, where the arguments are no JSON,
// and after an image, which it cannot read.
func FromUntrusted(log []state.Entry, arguments string) bool {
	if !Seen(log) {
		return false
	}
	n, ok := needlesOf(arguments)
	if !ok {
		return true
	}
	if n.empty() {
		return false
	}
	left := maxText
	return !each(log, func(p *state.Part) bool {
		text := p.Text + p.Content
		left -= len(text)
		return left >= 0 && len(p.Images) == 0 && p.Type != state.PartImage && !n.in(text)
	})
}

// each calls f for the untrusted parts of a history until it returns false, and reports
// whether it never did.
func each(log []state.Entry, f func(*state.Part) bool) bool {
	for i := range log {
		e := &log[i]
		if e.Message != nil && !all(e.Message, f) {
			return false
		}
		for m := range e.Messages {
			if !all(&e.Messages[m], f) {
				return false
			}
		}
	}
	return true
}

func all(m *state.Message, f func(*state.Part) bool) bool {
	if m.Synthetic {
		return true
	}
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Untrusted() && !f(p) {
			return false
		}
	}
	return true
}

// needles are what is looked for.
type needles struct {
	words   map[string]bool // whole words
	values  [][]byte        // anywhere
	windows map[string]bool // of window bytes each, anywhere
}

func (n *needles) empty() bool { return len(n.words)+len(n.values)+len(n.windows) == 0 }

func needlesOf(arguments string) (*needles, bool) {
	if len(arguments) > maxArgs {
		return nil, false
	}
	dec := json.NewDecoder(strings.NewReader(arguments))
	dec.UseNumber()
	var args any
	if dec.Decode(&args) != nil {
		return nil, false
	}
	n := &needles{words: map[string]bool{}, windows: map[string]bool{}}
	n.walk(args)
	return n, len(n.values) <= maxNeedles
}

// walk adds the texts and numbers of a value, and not the names of its fields.
func (n *needles) walk(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			n.walk(inner)
		}
	case []any:
		for _, inner := range v {
			n.walk(inner)
		}
	case string:
		n.add(v)
	case json.Number:
		n.add(v.String())
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), "eE") {
			n.add(strconv.FormatFloat(f, 'f', -1, 64))
		}
	}
}

func (n *needles) add(text string) {
	b := squash(text)
	switch {
	case len(b) == 0:
	case len(b) < word:
		n.words[string(b)] = true
	case len(b) < window:
		if !slices.ContainsFunc(n.values, func(have []byte) bool { return bytes.Equal(have, b) }) && len(n.values) <= maxNeedles {
			n.values = append(n.values, b)
		}
	default:
		for i := range len(b) - window + 1 {
			n.windows[string(b[i:i+window])] = true
		}
	}
}

// in reports whether one of n stands in a text.
func (n *needles) in(text string) bool {
	if len(n.words) > 0 {
		for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return !counts(r) }) {
			if len(w) < word*utf8.UTFMax && n.words[string(squash(w))] {
				return true
			}
		}
	}
	if len(n.values)+len(n.windows) == 0 {
		return false
	}
	b := squash(text)
	for _, v := range n.values {
		if bytes.Contains(b, v) {
			return true
		}
	}
	if len(n.windows) > 0 {
		for i := range max(0, len(b)-window+1) {
			if n.windows[string(b[i:i+window])] {
				return true
			}
		}
	}
	return false
}

func counts(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// squash returns the letters and digits of a text, in lower case.
func squash(text string) []byte {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if counts(r) {
			b = utf8.AppendRune(b, unicode.ToLower(r))
		}
	}
	return b
}
