package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Fault is one mistake of a definition.
type Fault struct {
	At   string // as in tools[0].name; "" means the whole definition
	Text string // the mistake and the remedy

	// Line and Column in the document, from 1. Locate sets them; 0 means unknown.
	Line, Column int
}

// Error returns the place and the mistake, without line and column.
func (f *Fault) Error() string {
	if f.At == "" {
		return f.Text
	}
	return f.At + ": " + f.Text
}

// Faults returns the mistakes that err joins, in order. An error that is not a Fault, such as one of the YAML parser,
// becomes a Fault without a place.
func Faults(err error) []*Fault {
	var joined interface{ Unwrap() []error }
	switch f, is := errors.AsType[*Fault](err); {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		var all []*Fault
		for _, e := range joined.Unwrap() {
			all = append(all, Faults(e)...)
		}
		return all
	case is:
		return []*Fault{f}
	default:
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without the words about what was read
		}
		return []*Fault{{Text: err.Error()}}
	}
}

// yamlLine finds the line number in the first error of the YAML parser, which precedes the
// message.
var yamlLine = regexp.MustCompile(`(?s)^yaml: (?:unmarshal errors:\s+)?line ([0-9]{1,9}): (.*)$`)

// yamlAnywhere is an error of the YAML parser without a line.
var yamlAnywhere = regexp.MustCompile(`(?s)^yaml: (.*)$`)

// yamlGrammar are the errors of the parser proper, which counts lines from 0. Its scanner counts from 1.
var yamlGrammar = regexp.MustCompile(`^(did not find expected (<|node content|',' or|key|'-' indicator)|found (duplicate %|incompatible YAML|undefined tag))`)

// yamlAnchor is the error about an alias without an anchor, which has no line in any document.
var yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

// syntaxLine returns the line of an error of the YAML parser, given the line that it names, or 0 if it
// names none: then the error is on the first line.
func syntaxLine(data []byte, line int, text string) int {
	if name := yamlAnchor.FindStringSubmatch(text); name != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+name[1]))
		return 1 + bytes.Count(before, []byte("\n"))
	}
	if yamlGrammar.MatchString(text) {
		line++
	}
	last := 1 + bytes.Count(bytes.TrimSpace(data), []byte("\n")) // the end of the document is reported behind it
	return min(max(line, 1), last)
}

// Locate returns copies of the faults with their lines and columns in data, the document. A missing value gets the
// position of the value that should contain it. An error of the YAML parser gets a line, which its Text then lacks, and
// no column. Other faults have no position if data cannot be parsed or exceeds a bound of Parse.
func Locate(data []byte, faults []*Fault) []*Fault {
	found := find(data, faults)
	located := make([]*Fault, len(faults))
	for i, f := range faults {
		at := *f
		if line := yamlLine.FindStringSubmatch(at.Text); line != nil {
			at.Line, _ = strconv.Atoi(line[1]) // digits
			at.Text = line[2]
			at.Line = syntaxLine(data, at.Line, at.Text)
		} else if at.At != "" || at.Line == 0 || at.Column != 0 { // a line alone is of the parser
			p := found[""]
			for name := range namesTo(f.At) {
				if deeper, ok := found[name]; ok {
					p = deeper
					break
				}
			}
			at.Line, at.Column = p.line, p.column
			if text := yamlAnywhere.FindStringSubmatch(at.Text); text != nil && at.Line == 0 {
				at.Text = text[1]
				at.Line = syntaxLine(data, 0, at.Text)
			}
		}
		located[i] = &at
	}
	return located
}

// InFile returns err with each mistake on its own line, sorted by position, as in
// "agents/hello.yaml:3:5: tools[0].name: …". data is the content of the file.
func InFile(path string, data []byte, err error) error {
	var lines []error
	located := Locate(data, Faults(err))
	slices.SortStableFunc(located, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	for _, f := range located {
		lines = append(lines, InFileAt(path, f))
	}
	return errors.Join(lines...)
}

// InFileAt returns a fault that Locate has located in the file at path, as in
// "agents/hello.yaml:3:5: tools[0].name: …".
func InFileAt(path string, f *Fault) error {
	switch {
	case f.Column > 0:
		return fmt.Errorf("%s:%d:%d: %w", path, f.Line, f.Column, f)
	case f.Line > 0:
		return fmt.Errorf("%s:%d: %w", path, f.Line, f)
	default:
		return fmt.Errorf("%s: %w", path, f)
	}
}

// namesTo yields a place and the places that contain it, from the inside out.
func namesTo(place string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for place != "" && yield(place) {
			place = place[:max(0, strings.LastIndexAny(place, ".["))]
		}
	}
}

// within reports whether place is whole or a part of it.
func within(place, whole string) bool {
	rest, ok := strings.CutPrefix(place, whole)
	return ok && (whole == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// position is a position in a document, from 1.
type position struct{ line, column int }

// finder finds the positions of some names in a document. It skips values that cannot contain one of them, so its cost
// grows with the size of the document, however deeply it is nested.
type finder struct {
	wanted map[string]bool
	found  map[string]position

	data         []byte // of JSON
	at           int    // number of bytes that were read
	line, column int    // position at that byte
}

// find returns the positions of faults in the document, and those of the values that contain
// them, as far as the document has them. A document that is neither YAML nor JSON, or exceeds a
// bound of Parse, has no positions.
func find(data []byte, faults []*Fault) map[string]position {
	f := finder{wanted: map[string]bool{"": true}, found: map[string]position{}, data: data, line: 1, column: 1}
	for _, fault := range faults {
		for name := range namesTo(fault.At) {
			f.wanted[name] = true
		}
	}
	var doc yamlv3.Node
	switch {
	case len(data) > MaxDefinition:
	case json.Valid(data):
		if bound(data) == nil {
			dec := json.NewDecoder(bytes.NewReader(data))
			f.inJSON(dec, "")
		}
	case readable(data) == nil && yamlv3.Unmarshal(data, &doc) == nil && len(doc.Content) == 1:
		f.inYAML(doc.Content[0], "")
	}
	return f.found
}

// note records the position of a name, unless it has the position of the name's key.
func (f *finder) note(name string, at position) {
	if _, known := f.found[name]; !known {
		f.found[name] = at
	}
}

func (f *finder) inYAML(n *yamlv3.Node, name string) {
	if !f.wanted[name] {
		return
	}
	f.note(name, position{n.Line, n.Column})
	for i, e := range n.Content {
		switch {
		case n.Kind == yamlv3.SequenceNode:
			f.inYAML(e, fmt.Sprintf("%s[%d]", name, i))
		case n.Kind == yamlv3.MappingNode && i%2 == 0:
			if in := join(name, e.Value); f.wanted[in] {
				f.note(in, position{e.Line, e.Column})
				f.inYAML(n.Content[i+1], in)
			}
		}
	}
}

// inJSON reads one value of a valid document.
func (f *finder) inJSON(dec *json.Decoder, name string) {
	if !f.wanted[name] {
		var passed json.RawMessage
		_ = dec.Decode(&passed) // it is valid
		return
	}
	f.note(name, f.next(dec))
	token, err := dec.Token()
	list := token == json.Delim('[')
	if err != nil || !list && token != json.Delim('{') {
		return
	}
	for i := 0; dec.More(); i++ {
		if list {
			f.inJSON(dec, fmt.Sprintf("%s[%d]", name, i))
			continue
		}
		at := f.next(dec)
		key, err := dec.Token()
		if err != nil {
			return
		}
		in := join(name, fmt.Sprint(key))
		if f.wanted[in] {
			f.note(in, at)
		}
		f.inJSON(dec, in)
	}
	_, _ = dec.Token() // the closing one
}

// next returns the position of the next token.
func (f *finder) next(dec *json.Decoder) position {
	for end := int(dec.InputOffset()); f.at < len(f.data) && (f.at < end || strings.IndexByte(" \t\r\n,:", f.data[f.at]) >= 0); f.at++ {
		if f.data[f.at] == '\n' {
			f.line, f.column = f.line+1, 0
		}
		f.column++
	}
	return position{f.line, f.column}
}
