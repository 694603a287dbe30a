package provenance

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Bounds of a comparison. Beyond them the answer is yes.
const (
	maxText    = 1 << 20  // bytes of untrusted text, as it came and folded
	maxArgs    = 64 << 10 // bytes of arguments
	maxFolded  = 4 * maxArgs
	maxNeedles = 64 // values between word and window bytes
)

const (
	word   = 4  // below so many bytes a value must be a whole word
	window = 12 // of a value with so many bytes or more any part of this length counts
	digits = 6  // so many digits in a row are a value of their own
	joint  = 6  // texts of an array that have fewer bytes together are not joined
)

// Seen reports whether the history contains anything untrusted.
func Seen(log []state.Entry) bool {
	return !each(log, func(*state.Part) bool { return false })
}

// Farthest returns the least trusted origin in the history; "" if it contains nothing untrusted.
func Farthest(log []state.Entry) state.Origin {
	var farthest state.Origin
	each(log, func(p *state.Part) bool {
		farthest = farthest.Farther(p.Source())
		return farthest != state.OriginWeb
	})
	return farthest
}

// FromUntrusted reports whether a text or number in a call's arguments, a JSON object, or a part of a long one, also
// occurs in something untrusted in the history. Case, spaces, punctuation and the spelling of numbers and of Unicode do
// not count. If the history contains nothing untrusted, FromUntrusted returns false.
//
// In doubt it returns true: if the arguments are not JSON, if there is too much to compare, and, for arguments with a
// text or number, if the history has untrusted content that FromUntrusted cannot read. Such content is an image, a
// file, a use of a provider's tool, or text from before a checkpoint that is not in the view any more.
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
		// A provider shows the model more of a result than it returns.
		if len(p.Images)+len(p.Files) > 0 || p.Type == state.PartImage || p.Type == state.PartFile || p.Type == state.PartProviderTool || len(text) > left {
			return false
		}
		folded, ok := fold(text, left)
		left -= max(len(text), len(folded))
		return ok && !n.in(folded)
	})
}

// each calls f for the untrusted parts of a history until it returns false, and reports
// whether it never did.
func each(log []state.Entry, f func(*state.Part) bool) bool {
	if c := state.CheckpointOf(log); c != nil {
		for m := range c.Messages {
			if !all(&c.Messages[m], f) {
				return false
			}
		}
		// What else the history had cannot be read any more, like a file.
		if c.Untrusted != "" && !f(&state.Part{Type: state.PartFile, Origin: c.Untrusted}) {
			return false
		}
	}
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
	for i := range m.Parts {
		p := &m.Parts[i]
		// Parts that Turnpike has written are trusted, except text that a model made of
		// untrusted content.
		if m.Synthetic && p.Type != state.PartText {
			continue
		}
		if p.Untrusted() && !f(p) {
			return false
		}
	}
	return true
}

// needles are the values to find, folded.
type needles struct {
	words   map[string]bool // whole words
	values  [][]byte        // anywhere
	windows map[[window]byte]struct{}
	numbers map[string]bool // as canonical writes them
	runs    map[string]bool // of digits, anywhere
	long    lengths         // of runs
	left    int             // bytes that may still be folded
	whole   bool            // nothing was left out
}

func (n *needles) empty() bool {
	return len(n.words)+len(n.values)+len(n.windows)+len(n.numbers)+len(n.runs) == 0
}

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
	n := newNeedles(maxFolded)
	n.walk(args)
	return n, n.whole && len(n.values) <= maxNeedles
}

func newNeedles(left int) *needles {
	return &needles{
		words: map[string]bool{}, windows: map[[window]byte]struct{}{}, numbers: map[string]bool{}, runs: map[string]bool{},
		left: left, whole: true,
	}
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
		n.joined(v)
	case string:
		n.text(v)
	case json.Number:
		n.number(v.String())
	}
}

// fold folds a part of the arguments. It records if a part exceeds the limit and is left out.
func (n *needles) fold(text string) string {
	folded, ok := fold(text, n.left)
	n.left -= len(folded)
	n.whole = n.whole && ok
	return folded
}

func (n *needles) text(text string) {
	folded := n.fold(text)
	n.add(squash(folded))
	n.digitRuns(folded)
	// "900.00" is 900; but "1.0" names a version as well as a number.
	if c, ok := canonical(strings.TrimSpace(folded)); ok && strings.ContainsAny(folded, ".,") && len(squash(c)) >= 3 {
		n.value(c)
	}
}

func (n *needles) number(spelled string) {
	c, ok := canonical(strings.ToLower(spelled))
	if !ok {
		n.add(squash(spelled))
		return
	}
	n.value(c)
}

// value adds a number that canonical has written.
func (n *needles) value(c string) {
	n.numbers[c] = true
	n.add(squash(c))
}

// joined adds the texts of an array as one: a value may have come in pieces. Fewer bytes
// stand in too many texts by chance.
func (n *needles) joined(array []any) {
	var pieces []string
	for _, inner := range array {
		if s, ok := inner.(string); ok {
			pieces = append(pieces, s)
		}
	}
	if len(pieces) < 2 {
		return
	}
	if b := squash(n.fold(strings.Join(pieces, ""))); len(b) >= joint {
		n.add(b)
	}
}

func (n *needles) add(b []byte) {
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
			n.windows[[window]byte(b[i:])] = struct{}{}
		}
	}
}

// digitRuns adds the long numbers within a text, also those in groups with single spaces.
func (n *needles) digitRuns(text string) {
	for run := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != ' ' && !digit(r) }) {
		for group := range strings.SplitSeq(run, "  ") {
			n.run(strings.ReplaceAll(group, " ", ""))
			for one := range strings.SplitSeq(group, " ") {
				n.run(one)
			}
		}
	}
}

func (n *needles) run(run string) {
	switch {
	case len(run) < digits:
	case len(run) < window:
		n.runs[run], n.long[len(run)] = true, true
	default:
		n.add([]byte(run))
	}
}

// in reports whether a value of n occurs in a folded text.
func (n *needles) in(text string) bool {
	if n.hasWord(text) || n.hasNumber(text) {
		return true
	}
	if len(n.values)+len(n.windows)+len(n.runs) == 0 {
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
			if _, ok := n.windows[[window]byte(b[i:])]; ok {
				return true
			}
		}
	}
	return n.hasRun(b)
}

func (n *needles) hasWord(text string) bool {
	if len(n.words) == 0 {
		return false
	}
	for w := range shortWords(text) {
		if n.words[w] {
			return true
		}
	}
	return false
}

func (n *needles) hasNumber(text string) bool {
	if len(n.numbers) == 0 {
		return false
	}
	for c := range decimals(text) {
		if n.numbers[c] {
			return true
		}
	}
	return false
}

func (n *needles) hasRun(b []byte) bool {
	if len(n.runs) == 0 {
		return false
	}
	for run := range n.long.in(b) {
		if n.runs[string(run)] {
			return true
		}
	}
	return false
}

// lengths are the lengths of the runs of digits to look for.
type lengths [window]bool

// in returns all runs of digits of these lengths in a squashed text.
func (l *lengths) in(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		inRow := 0
		for i, c := range b {
			if inRow++; !digit(rune(c)) {
				inRow = 0
			}
			for long := digits; long <= min(inRow, window-1); long++ {
				if l[long] && !yield(b[i+1-long:i+1]) {
					return
				}
			}
		}
	}
}
