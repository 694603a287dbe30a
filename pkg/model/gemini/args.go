package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// partialArg is a value of a tool call, or a piece of one, with its path. Names in camel case match without tags.
type partialArg struct {
	JSONPath     string
	StringValue  *string
	NumberValue  json.Number
	BoolValue    *bool
	NullValue    json.RawMessage // if present, the value is null
	WillContinue bool
}

type nodeKind int

// The kinds of a node. The zero value is a node without a value.
const (
	isObject nodeKind = iota + 1
	isArray
	isText
	isOther
)

// node is a JSON value in flight.
type node struct {
	kind   nodeKind
	names  []string // of an object, in the order in which they arrived
	fields map[string]*node
	items  []*node
	text   strings.Builder // of a text
	other  string          // a number, true, false or null
	open   bool            // the text continues
}

// deepest bounds the depth of arguments.
const deepest = 200

var (
	errPath  = errors.New("the provider sent an argument of a tool call with an invalid path: retry, or use another model")
	errDeep  = fmt.Errorf("the provider sent an argument of a tool call that is nested more than %d levels deep: retry, or use another model", deepest)
	errTaken = errors.New("the provider sent the same argument of a tool call twice: retry, or use another model")
)

// set stores a value, or the next piece of a text, at its path under n.
func (n *node) set(v partialArg) error {
	steps, err := parsePath(v.JSONPath)
	if err != nil {
		return err
	}
	at := n
	for _, s := range steps {
		if at, err = at.step(s); err != nil {
			return err
		}
	}
	switch {
	case v.StringValue != nil && (at.kind == 0 || at.open):
		at.kind, at.open = isText, v.WillContinue
		at.text.WriteString(*v.StringValue)
	case at.open && v.empty():
		at.open = v.WillContinue // the piece is empty, and its value omitted
	case at.kind != 0:
		return errTaken
	case v.NumberValue != "":
		at.kind, at.other = isOther, v.NumberValue.String()
	case v.BoolValue != nil:
		at.kind, at.other = isOther, strconv.FormatBool(*v.BoolValue)
	case len(v.NullValue) > 0:
		at.kind, at.other = isOther, "null"
	case v.WillContinue:
		at.kind, at.open = isText, true
	default:
		at.kind = isText // an empty text, whose value is omitted
	}
	return nil
}

func (v partialArg) empty() bool {
	return v.NumberValue == "" && v.BoolValue == nil && len(v.NullValue) == 0
}

// pathStep is a name or, if name is nil, an index.
type pathStep struct {
	name  *string
	index int
}

// step returns the child of n at s, and creates a missing one. Items must arrive in order.
func (n *node) step(s pathStep) (*node, error) {
	switch {
	case s.name != nil && (n.kind == 0 || n.kind == isObject):
		n.kind = isObject
		if n.fields == nil {
			n.fields = map[string]*node{}
		}
		if n.fields[*s.name] == nil {
			n.names, n.fields[*s.name] = append(n.names, *s.name), &node{}
		}
		return n.fields[*s.name], nil
	case s.name == nil && (n.kind == 0 || n.kind == isArray) && s.index <= len(n.items):
		n.kind = isArray
		if s.index == len(n.items) {
			n.items = append(n.items, &node{})
		}
		return n.items[s.index], nil
	default:
		return nil, errTaken
	}
}

// unfinished reports whether a text below n is incomplete.
func (n *node) unfinished() bool {
	if n.open {
		return true
	}
	for _, f := range n.fields {
		if f.unfinished() {
			return true
		}
	}
	for _, i := range n.items {
		if i.unfinished() {
			return true
		}
	}
	return false
}

// encode returns n as JSON. A node without a value is an empty object.
func (n *node) encode() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

func (n *node) write(b *strings.Builder) {
	switch n.kind {
	case isArray:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b)
		}
		b.WriteByte(']')
	case isText:
		b.WriteString(quote(n.text.String()))
	case isOther:
		b.WriteString(n.other)
	default:
		b.WriteByte('{')
		for i, name := range n.names {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(name) + ":")
			n.fields[name].write(b)
		}
		b.WriteByte('}')
	}
}

// quote writes a text as JSON without escaping <, > and &.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) //nolint:errchkjson // a text cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// parsePath reads the part of JSONPath (RFC 9535) that names one place:
// $.recipe.steps[0]['in the oven'].
func parsePath(path string) ([]pathStep, error) {
	rest, ok := strings.CutPrefix(path, "$")
	if !ok {
		return nil, errPath
	}
	var steps []pathStep
	for rest != "" {
		var s pathStep
		var err error
		switch {
		case strings.HasPrefix(rest, "."):
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			name := rest[1 : 1+end]
			if name == "" {
				return nil, errPath
			}
			s, rest = pathStep{name: &name}, rest[1+end:]
		case strings.HasPrefix(rest, "['"), strings.HasPrefix(rest, `["`):
			s, rest, err = quotedStep(rest)
		case strings.HasPrefix(rest, "["):
			digits, after, ok := strings.Cut(rest[1:], "]")
			index, e := strconv.Atoi(digits)
			if !ok || e != nil || index < 0 {
				return nil, errPath
			}
			s, rest = pathStep{index: index}, after
		default:
			return nil, errPath
		}
		if err != nil {
			return nil, err
		}
		if steps = append(steps, s); len(steps) > deepest {
			return nil, errDeep
		}
	}
	return steps, nil
}

// quotedStep parses ['name'] or ["name"]. A backslash escapes a quote, and otherwise
// has its meaning in JSON.
func quotedStep(rest string) (pathStep, string, error) {
	mark := rest[1]
	var text strings.Builder // the name as the inside of a JSON text
	for i := 2; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\' && i+1 < len(rest):
			i++
			if rest[i] != '\'' {
				text.WriteByte('\\')
			}
			text.WriteByte(rest[i])
		case c == mark:
			var name string
			after, ok := strings.CutPrefix(rest[i+1:], "]")
			if !ok || json.Unmarshal([]byte(`"`+text.String()+`"`), &name) != nil {
				return pathStep{}, "", errPath
			}
			return pathStep{name: &name}, after, nil
		case c == '"':
			text.WriteString(`\"`)
		default:
			text.WriteByte(c)
		}
	}
	return pathStep{}, "", errPath
}
