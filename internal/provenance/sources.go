package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxSources is the maximum number of arguments that Sources names.
const maxSources = 8

// Sources finds the untrusted texts of the history that contain values of the arguments of a call, a JSON object. It
// returns the first such text for each argument, for at most 8 arguments; a value in an object or an array counts as an
// argument of its own, such as items[0].id. In the cases of doubt in which [FromUntrusted] returns true, it may return
// none or too few.
func Sources(log []state.Entry, arguments string) []state.ArgumentSource {
	if len(arguments) > maxArgs || !Seen(log) {
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(arguments))
	dec.UseNumber()
	var args map[string]any
	if dec.Decode(&args) != nil {
		return nil
	}
	t := &traced{
		words: map[string][]string{}, windows: map[[window]byte][]string{}, numbers: map[string][]string{}, runs: map[string][]string{},
		left: maxFolded, whole: true,
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		t.walk(name, args[name])
	}
	if !t.whole {
		return nil
	}
	var out []state.ArgumentSource
	found := map[string]bool{}
	left := maxText
	names := map[string]string{} // of the tools of calls, by their ids, as of the last response
	read := func(m *state.Message, e *state.Entry) bool {
		for i := range m.Parts {
			p := &m.Parts[i]
			if p.Type == state.PartToolCall {
				names[p.ID] = p.Name
			}
			if !p.Untrusted() || m.Synthetic && p.Type != state.PartText { // as in all
				continue
			}
			text := p.Text + p.Content
			if len(text) > left {
				return false
			}
			folded, ok := fold(text, left)
			if left -= max(len(text), len(folded)); !ok {
				return false
			}
			origin := p.Origin
			if origin == "" {
				origin = state.OriginTool
			}
			for _, name := range t.find(folded, found) {
				s := state.ArgumentSource{Argument: clip(name), Origin: origin, Turn: m.Turn, CallID: p.CallID, Tool: names[p.CallID]}
				if p.Type == state.PartProviderTool {
					s.CallID, s.Tool = p.ID, p.Name
				}
				if e.CallID != "" && e.CallID == p.CallID && e.Name != "" {
					s.Tool = e.Name
				}
				if out = append(out, s); len(out) == maxSources {
					return false
				}
			}
		}
		return true
	}
	if c := state.CheckpointOf(log); c != nil {
		for m := range c.Messages {
			if !read(&c.Messages[m], &log[0]) {
				return out
			}
		}
	}
	for i := range log {
		e := &log[i]
		if e.Message != nil && !read(e.Message, e) {
			return out
		}
		for m := range e.Messages {
			if !read(&e.Messages[m], e) {
				return out
			}
		}
	}
	return out
}

// clip cuts the name of an argument short: the model has chosen it.
func clip(name string) string {
	const most = 100
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

// traced are needles with the names of their arguments.
type traced struct {
	words   map[string][]string
	values  []tracedValue
	windows map[[window]byte][]string
	numbers map[string][]string
	runs    map[string][]string
	long    lengths
	left    int  // as of needles
	whole   bool // as of needles
}

type tracedValue struct {
	text []byte
	name string
}

func (t *traced) walk(name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			t.walk(name+"."+key, v[key])
		}
	case []any:
		for i, inner := range v {
			t.walk(fmt.Sprintf("%s[%d]", name, i), inner)
		}
		t.add(name, func(n *needles) { n.joined(v) })
	default:
		t.add(name, func(n *needles) { n.walk(v) })
	}
}

// add adds the values that fill puts into needles, for the argument name.
func (t *traced) add(name string, fill func(*needles)) {
	n := newNeedles(t.left)
	fill(n)
	t.left, t.whole = n.left, t.whole && n.whole
	for w := range n.words {
		add(t.words, w, name)
	}
	for w := range n.windows {
		add(t.windows, w, name)
	}
	for c := range n.numbers {
		add(t.numbers, c, name)
	}
	for run := range n.runs {
		add(t.runs, run, name)
		t.long[len(run)] = true
	}
	for _, text := range n.values {
		if len(t.values) < maxNeedles {
			t.values = append(t.values, tracedValue{text, name})
		}
	}
}

func add[K comparable](to map[K][]string, key K, name string) {
	if len(to[key]) < maxSources {
		to[key] = append(to[key], name)
	}
}

// find returns the arguments with a value in a folded text that were not found before.
func (t *traced) find(text string, found map[string]bool) []string {
	var fresh []string
	hit := func(names ...string) {
		for _, name := range names {
			if !found[name] {
				found[name] = true
				fresh = append(fresh, name)
			}
		}
	}
	if len(t.words) > 0 {
		for w := range shortWords(text) {
			take(t.words, w, hit)
		}
	}
	if len(t.numbers) > 0 {
		for c := range decimals(text) {
			take(t.numbers, c, hit)
		}
	}
	b := squash(text)
	for _, v := range t.values {
		if bytes.Contains(b, v.text) {
			hit(v.name)
		}
	}
	if len(t.windows) > 0 {
		for i := range max(0, len(b)-window+1) {
			take(t.windows, [window]byte(b[i:]), hit)
		}
	}
	if len(t.runs) > 0 {
		for run := range t.long.in(b) {
			if _, ok := t.runs[string(run)]; ok { // most are not, and cost no string
				take(t.runs, string(run), hit)
			}
		}
	}
	return fresh
}

// take reports the arguments that a key names, and removes the key: it cannot name others.
func take[K comparable](from map[K][]string, key K, hit func(...string)) {
	if names, ok := from[key]; ok {
		hit(names...)
		delete(from, key)
	}
}
