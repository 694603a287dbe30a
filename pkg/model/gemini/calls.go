package gemini

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// callPiece is a piece of a tool call as it was received. Most calls arrive in one piece. In streaming mode a server
// sends the name first, then values with their paths, and marks each piece that another one follows.
type callPiece struct {
	ID           string
	Name         string
	Args         json.RawMessage
	PartialArgs  []partialArg
	WillContinue bool
}

// candidate has data that the SDK loses: it drops the reason why a call was malformed, and converts numbers in
// arguments to floating point.
type candidate struct {
	FinishMessage string
	Content       struct {
		Parts []struct{ FunctionCall callPiece }
	}
}

// candidates parses an event in its original form. It reports false for an event in
// another format.
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

// toolCall is a tool call, complete if it is closed.
type toolCall struct {
	id, name string
	slot     int
	args     string // set when the call is closed
	partial  node
	closed   bool
}

// calls assembles the tool calls of a response.
type calls struct {
	list   []*toolCall
	prefix string // of generated ids
	broken bool   // a piece is missing or arrived twice
}

// add adds a piece. It returns the call that the piece begins, or nil, and the piece as a delta.
func (s *calls) add(p callPiece) (*toolCall, model.Delta) {
	open := s.open()
	if p.Name == "" {
		switch {
		case open != nil:
			return nil, s.fill(open, p, model.Delta{Index: open.slot})
		case len(p.PartialArgs) > 0 || len(p.Args) > 0:
			s.broken = true // no call is open
		}
		return nil, model.Delta{}
	}
	for _, c := range s.list {
		if p.ID != "" && c.id == p.ID && c.closed && c.name == p.Name {
			return nil, model.Delta{} // a repetition of the call
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

// open returns the incomplete call, or nil.
func (s *calls) open() *toolCall {
	if n := len(s.list); n > 0 && !s.list[n-1].closed {
		return s.list[n-1]
	}
	return nil
}

// fill adds values to a call. It returns the arguments in one delta once they are complete: before that their JSON does
// not grow at its end.
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

// whole reports whether every call is complete. If the response was cut off, the last call need not be.
func (s *calls) whole(cut bool) bool { return !s.broken && (cut || s.open() == nil) }

func (c *toolCall) part() state.Part {
	return state.Part{Type: state.PartToolCall, ID: c.id, Name: c.name, Arguments: c.args}
}
