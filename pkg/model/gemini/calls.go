package gemini

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// callPiece is a piece of a tool call as received. Most calls arrive whole. In
// streaming mode a server sends the name first, then values with their paths, and
// marks each piece that another follows.
type callPiece struct {
	ID           string
	Name         string
	Args         json.RawMessage
	PartialArgs  []partialArg
	WillContinue bool
}

// candidate is what the SDK loses of one: it drops why a call was malformed, and the
// numbers in arguments become floating point ones.
type candidate struct {
	FinishMessage string
	Content       struct {
		Parts []struct{ FunctionCall callPiece }
	}
}

// candidates reads an event as it stands there. It reports false for one that is not
// in the format.
func candidates(event []byte) ([]candidate, bool) {
	var e struct{ Candidates []candidate }
	ok := json.Unmarshal(event, &e) == nil
	return e.Candidates, ok
}

func (c candidate) call(part int) callPiece {
	if part >= len(c.Content.Parts) {
		return callPiece{}
	}
	return c.Content.Parts[part].FunctionCall
}

// toolCall is a tool call in flight, or whole.
type toolCall struct {
	id, name string
	slot     int
	args     string // once it is closed
	partial  node
	closed   bool
}

// calls puts the tool calls of a response together.
type calls struct {
	list   []*toolCall
	prefix string // of made-up ids
	broken bool   // a piece is missing, or there twice
}

// add takes a piece. It returns the call that begins with it, if one does, and what
// it adds.
func (s *calls) add(p callPiece) (*toolCall, model.Delta) {
	open := s.open()
	if p.Name == "" {
		switch {
		case open != nil:
			return nil, s.fill(open, p, model.Delta{Index: open.slot})
		case len(p.PartialArgs) > 0 || len(p.Args) > 0:
			s.broken = true // of a call that nobody began, or that is over
		}
		return nil, model.Delta{}
	}
	for _, c := range s.list {
		if p.ID != "" && c.id == p.ID && c.closed && c.name == p.Name {
			return nil, model.Delta{} // the same call once more
		}
	}
	if open != nil {
		s.broken = true
	}
	c := &toolCall{id: p.ID, name: p.Name, slot: len(s.list)}
	if c.id == "" {
		c.id = fmt.Sprintf("%s%d", s.prefix, c.slot)
	}
	s.list = append(s.list, c)
	return c, s.fill(c, p, model.Delta{Index: c.slot, CallID: c.id, Name: c.name})
}

// open returns the call that more is to come of.
func (s *calls) open() *toolCall {
	if n := len(s.list); n > 0 && !s.list[n-1].closed {
		return s.list[n-1]
	}
	return nil
}

// fill adds values to a call. It emits the arguments as one delta once they are
// complete: until then they do not grow as text.
func (s *calls) fill(c *toolCall, p callPiece, d model.Delta) model.Delta {
	if len(p.Args) > 0 && string(p.Args) != "null" {
		if c.args != "" || c.partial.kind != 0 {
			s.broken = true
		}
		c.args = string(p.Args)
	}
	for _, v := range p.PartialArgs {
		if c.args != "" || c.partial.set(v) != nil {
			s.broken = true
			return d
		}
	}
	if p.WillContinue {
		return d
	}
	if c.args == "" {
		c.args = c.partial.encode()
	}
	if _, ok := state.CompactObject(c.args); !ok || c.partial.unfinished() {
		s.broken = true
		return d
	}
	c.closed = true
	d.Arguments = c.args
	return d
}

// whole reports whether every call is whole; the last one need not be if the response
// was cut off.
func (s *calls) whole(cut bool) bool { return !s.broken && (cut || s.open() == nil) }

func (c *toolCall) part() state.Part {
	return state.Part{Type: state.PartToolCall, ID: c.id, Name: c.name, Arguments: c.args}
}
