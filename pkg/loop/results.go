package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// bytesPerToken estimates the tokens of a text. Providers count between 3 and 5 bytes of English.
	bytesPerToken = 4

	// leastCut is the minimum size of a batch of results, in tokens: a replaced message ends the prefix that
	// the provider has in its cache, so the model reads all that follows again.
	leastCut = 10_000

	// shortResult is the size, in bytes, up to which a result stays: a stub is hardly shorter.
	shortResult = 1000

	// readAtOnce is the maximum size, in bytes, of a piece of a result that the model reads again.
	readAtOnce = 16 << 10
)

// reader returns the name of the tool that reads removed results again, or "" if the agent has none.
func (t *Turn) reader() string {
	for _, name := range t.agent.ToolNames() {
		if t.tool(name).By == tool.ByHistory {
			return name
		}
	}
	return ""
}

// cutResults replaces the results that are longer than shortResult or have files, and are
// not among the latest messages, by stubs, each in its place. It reports false, and changes
// nothing, if that frees less than leastCut or the agent cannot read a result again.
func (t *Turn) cutResults() bool {
	name := t.reader()
	if name == "" {
		return false
	}
	e := state.Entry{Type: state.EntryCompacted}
	freed := 0
	for _, m := range t.plan().cut {
		if m.Role != state.RoleTool || m.Synthetic || len(m.Parts) != 1 || len(m.Parts[0].Content) <= shortResult && len(m.Parts[0].Files) == 0 {
			continue
		}
		p := m.Parts[0]
		size := len(p.Content)
		with := ""
		if n := len(p.Files); n > 0 {
			with = fmt.Sprintf(" and %d files", n)
		}
		freed += size + bytesOfFiles(p.Files)
		p.Content, p.Images, p.Files = fmt.Sprintf(`[A result of %d bytes%s was removed to fit the context. Call %s with {"result": %q} to read it.]`, size, with, name, m.ID), nil, nil
		freed -= len(p.Content)
		stub := state.Message{Role: state.RoleTool, Parts: []state.Part{p}, Synthetic: true}
		turn := m.Turn
		t.stamp(&stub, len(e.Messages))
		stub.Turn = turn
		e.MessageIDs, e.Messages = append(e.MessageIDs, m.ID), append(e.Messages, stub)
	}
	if freed < leastCut*bytesPerToken {
		return false
	}
	t.append(&e)
	return true
}

// bytesOfFiles estimates the bytes of a text that takes as many tokens as files: a page of a PDF has some 50
// KB, and takes as many as a text of 10 KB.
func bytesOfFiles(files []state.Part) (n int) {
	for _, f := range files {
		n += max(int(f.Bytes)/5, 4<<10)
	}
	return n
}

// readResults answers the open calls that read results again.
func (t *Turn) readResults() {
	for _, o := range t.s.Open {
		spec := t.tool(o.Name)
		if o.Needs != "" || spec == nil || spec.By != tool.ByHistory {
			continue
		}
		found, err := ReadResult(t.s.Log, o.Arguments, spec.MaxResult)
		if _, earlier := errors.AsType[*EarlierError](err); earlier {
			continue // a worker reads it in the store
		}
		if err != nil {
			t.refuse(o, "%v", err)
			continue
		}
		found.CallID, found.Name = o.ID, o.Name
		t.result(found, false)
	}
}

// EarlierError reports that the entry number Seq of the log, which is before the checkpoint, may have a result.
type EarlierError struct{ Seq int64 }

func (e *EarlierError) Error() string {
	return fmt.Sprintf("entry %d is before the checkpoint of the log: read it in the store", e.Seq)
}

// ReadResult returns the piece of a result in a log that a call with these arguments reads again, with the origin of
// the result. A piece has at most 16 KiB (readAtOnce) of the text, or limit bytes if that is less and not 0. Behind it
// there is a note with the offset of the next piece, unless it is the last one. The first piece also has the images and
// files. The error is an *EarlierError, or has a text for the model.
func ReadResult(log []state.Entry, arguments string, limit int) (ToolResult, error) {
	var args struct {
		Result string `json:"result"`
		Offset int    `json:"offset"`
	}
	if err := json.Unmarshal([]byte(arguments), &args); err != nil {
		return ToolResult{}, errors.New("the arguments are not valid: pass an object with result, the id in the note, and offset, a number of bytes")
	}
	p := resultOf(log, args.Result)
	size := 0
	if p != nil {
		size = len(p.Content)
	} else if seq := entryOf(args.Result); seq > 0 && state.CheckpointOf(log) != nil && seq < log[0].Seq {
		return ToolResult{}, &EarlierError{seq}
	}
	switch {
	case p == nil:
		return ToolResult{}, fmt.Errorf("the run has no result %.80q: give the id in a note that stands for a result", args.Result)
	case args.Offset < 0 || args.Offset > size:
		return ToolResult{}, fmt.Errorf("offset %d is outside of the result, which ends at byte %d: pass an offset from 0 to %d", args.Offset, size, size)
	}
	if limit <= 0 || limit > readAtOnce {
		limit = readAtOnce
	}
	end := min(size, args.Offset+limit)
	for end < size && end > args.Offset+utf8.UTFMax && !utf8.RuneStart(p.Content[end]) {
		end--
	}
	content := strings.ToValidUTF8(p.Content[args.Offset:end], "")
	r := ToolResult{Content: content, Origin: p.Origin}
	if args.Offset == 0 {
		r.Images, r.Files = p.Images, p.Files
	}
	if end < size {
		r.Content += fmt.Sprintf("\n[Bytes %d to %d of %d. Call again with offset %d for more.]", args.Offset, end, size, end)
	}
	return r, nil
}

// entryOf returns the number of the log entry whose message has an id of Turn.stamp, or 0.
func entryOf(id string) int64 {
	text, _, _ := strings.Cut(strings.TrimPrefix(id, "msg_"), "_")
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return seq
}

// resultOf returns the result with the id of its message, or nil. A stub has an id of its own and leads to
// no other.
func resultOf(log []state.Entry, id string) *state.Part {
	of := func(m *state.Message) *state.Part {
		if m.ID != id || m.Role != state.RoleTool || len(m.Parts) == 0 {
			return nil
		}
		return &m.Parts[0]
	}
	if c := state.CheckpointOf(log); c != nil {
		for i := range c.Messages {
			if p := of(&c.Messages[i]); p != nil {
				return p
			}
		}
	}
	for i := range log {
		e := &log[i]
		if e.Type == state.EntryTombstoned {
			continue
		}
		if e.Message != nil {
			if p := of(e.Message); p != nil {
				return p
			}
		}
		for j := range e.Messages {
			if p := of(&e.Messages[j]); p != nil {
				return p
			}
		}
	}
	return nil
}
