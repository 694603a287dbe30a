package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// piece is one delta of a tool call as a server sent it.
type piece struct {
	index    int64
	hasIndex bool // compatible servers may omit the index
	id       string
	name     string
	args     string
	extra    string // JSON that the server requires back with the call
}

// call is a tool call in flight.
type call struct {
	id    string
	name  string
	args  strings.Builder
	extra string
}

// complete reports whether the arguments are one whole JSON object.
func (c *call) complete() bool {
	_, ok := state.CompactObject(c.args.String())
	return ok
}

// calls assembles tool calls from their pieces. OpenAI numbers the calls and sends id and name first. Compatible
// servers omit the number or the id, number every call 0, change the id in between, or send the name in pieces or with
// each piece.
type calls struct {
	list    []*call
	byIndex map[int64]int // number of the server -> index in list
	last    int           // index of the call with the latest piece
	prefix  string        // of generated ids
	seal    string        // OpaqueBy of the JSON that the server requires back
}

func newCalls(modelCall int, seal string) *calls {
	return &calls{byIndex: map[int64]int{}, prefix: fmt.Sprintf("call_%d_", modelCall), seal: seal}
}

// add adds a piece and returns it as a delta.
func (s *calls) add(p piece) model.Delta {
	slot, found := s.find(p)
	if !found {
		slot = len(s.list)
		c := &call{id: p.id}
		if c.id == "" {
			c.id = fmt.Sprintf("%s%d", s.prefix, slot)
		}
		s.list = append(s.list, c)
	}
	if p.hasIndex {
		s.byIndex[p.index] = slot
	}
	s.last = slot
	c := s.list[slot]
	d := model.Delta{Index: slot, Arguments: p.args}
	if !found {
		d.CallID = c.id
	}
	if c.args.Len() == 0 && p.name != c.name {
		c.name += p.name
		d.Name = p.name
	}
	c.args.WriteString(p.args)
	if p.extra != "" && p.extra != "null" {
		c.extra = p.extra
	}
	return d
}

func (s *calls) find(p piece) (slot int, found bool) {
	if p.hasIndex {
		slot, found = s.byIndex[p.index]
		return slot, found && !begins(s.list[slot], p)
	}
	if len(s.list) == 0 {
		return 0, false
	}
	if p.id != "" {
		slot = slices.IndexFunc(s.list, func(c *call) bool { return c.id == p.id })
		return slot, slot >= 0
	}
	return s.last, p.name == "" || !s.list[s.last].complete()
}

// begins reports whether a piece with the number of c begins another call: some servers number all calls 0. A new id
// alone does not, because some servers change the id of a call.
func begins(c *call, p piece) bool {
	if p.id == "" || p.id == c.id || p.name == "" || c.name == "" {
		return false
	}
	return c.complete() || c.args.Len() == 0 && p.name != c.name
}

// parts returns the calls of a finished response that have a name. If the output limit or a filter ended the response,
// parts omits the call with the latest piece unless that call is complete: a partial call must not run.
func (s *calls) parts(stop model.Stop) []state.Part {
	cut := stop == model.StopMaxOutputTokens || stop == model.StopContentFilter
	var parts []state.Part
	for i, c := range s.list {
		if c.name == "" || cut && i == s.last && !c.complete() {
			continue
		}
		parts = append(parts, s.part(c))
	}
	return parts
}

// known returns the calls that are complete although the response is not: those before the call with the latest piece.
func (s *calls) known() []state.Part {
	var parts []state.Part
	for i, c := range s.list {
		if i != s.last && c.name != "" && c.complete() {
			parts = append(parts, s.part(c))
		}
	}
	return parts
}

func (s *calls) part(c *call) state.Part {
	args := c.args.String()
	if strings.TrimSpace(args) == "" {
		args = "{}"
	}
	p := state.Part{Type: state.PartToolCall, ID: c.id, Name: c.name, Arguments: args}
	if c.extra != "" {
		p.Opaque, p.OpaqueBy = json.RawMessage(c.extra), s.seal
	}
	return p
}
