package state

import "strings"

// View returns what the model sees of a log: the messages of the checkpoint that the log begins with, if any, and
// those of its entries. It omits messages that were tombstoned or that an input hook refused, and has the replacements
// of compacted and replaced ones. Every tool result is directly after the message with its call, in the order of the
// calls, wherever the log has the result before the next model response (A14, I5).
func View(log []Entry) []Message { return view(log, false) }

// FullView returns all messages of a log, and marks those that the model no longer sees: as Compacted if a
// compaction replaced them, else as Tombstoned, also if a check or a handoff replaced them. If the log
// begins with a checkpoint, it has only those earlier messages that the model saw then.
func FullView(log []Entry) []Message { return view(log, true) }

func view(log []Entry, full bool) []Message {
	if !full {
		if out, ok := plainView(log); ok {
			return out
		}
	}
	refs := refsOf(len(log), func(i int) *Entry { return &log[i] }, full)
	out := make([]Message, len(refs))
	for i, r := range refs {
		out[i] = r.Message(&log[r.Entry])
	}
	return out
}

// plainView returns the view of a log in which no entry hides a message, as of most runs. Every turn builds the view of
// the whole log, so a long run pays for each step here in each of its turns.
func plainView(log []Entry) (out []Message, ok bool) {
	n := 0
	for i := range log {
		e := &log[i]
		if len(e.MessageIDs) > 0 {
			return nil, false
		}
		if n += len(e.Messages); e.Message != nil {
			n++
		}
	}
	if len(log) > 0 {
		n += log[0].checkpoint()
	}
	out = make([]Message, 0, n)
	for i := range log {
		e := &log[i]
		if i == 0 && e.Checkpoint != nil {
			out = append(out, e.Checkpoint.Messages...)
		}
		if len(e.Messages) > 0 && !e.replaces() {
			out = append(out, e.Messages...)
		}
		if e.Type != EntryModel || e.Message == nil {
			continue
		}
		out = append(out, *e.Message)
		for p := range e.Message.Parts {
			if id, ok := e.call(p); ok {
				out = appendResults(out, log[i+1:], id)
			}
		}
	}
	return out, true
}

// appendResults appends the results of a call that are in a log before its first model response: see addResults.
func appendResults(out []Message, log []Entry, call string) []Message {
	for i := range log {
		e := &log[i]
		if e.Type == EntryModel {
			break
		}
		if e.CallID == call && e.Message != nil && e.Message.Role == RoleTool {
			out = append(out, *e.Message)
		}
	}
	return out
}

// viewed is an entry, or its outline, as far as the order of a view depends on it.
type viewed interface {
	number(i int) int // its index in the log, given its index in the list of those viewed
	kind() EntryType
	replaces() bool // its messages stand for those that it hides
	hides() []string
	checkpoint() int // the number of messages of its checkpoint
	checkpointID(i int) string
	messages() int // the number of Entry.Messages
	messageID(i int) string
	message() (id string, ok bool)  // Entry.Message
	answer() (call string, ok bool) // the call whose result Entry.Message is
	parts() int                     // the number of parts that call can return
	call(i int) (id string, ok bool)
}

func (e *Entry) number(i int) int { return i }
func (e *Entry) kind() EntryType  { return e.Type }
func (e *Entry) hides() []string  { return e.MessageIDs }

func (e *Entry) checkpoint() int {
	if e.Checkpoint == nil {
		return 0
	}
	return len(e.Checkpoint.Messages)
}

func (e *Entry) checkpointID(i int) string { return e.Checkpoint.Messages[i].ID }
func (e *Entry) messages() int             { return len(e.Messages) }
func (e *Entry) messageID(i int) string    { return e.Messages[i].ID }

func (e *Entry) message() (id string, ok bool) {
	if e.Message == nil {
		return "", false
	}
	return e.Message.ID, true
}

func (e *Entry) answer() (call string, ok bool) {
	return e.CallID, e.Message != nil && e.Message.Role == RoleTool
}

func (e *Entry) parts() int { return len(e.Message.Parts) }

func (e *Entry) call(i int) (id string, ok bool) {
	p := &e.Message.Parts[i]
	return p.ID, p.Type == PartToolCall
}

// Outline is what the order of the messages in a view depends on: the log without its contents. With it, a reader of
// a log that is too large for its memory knows the order of the messages of a view before it reads them. The zero
// value is the outline of an empty log.
type Outline struct {
	lines []line
	n     int // entries added
}

// line is the outline of an entry that has messages, or hides some.
type line struct {
	entry    int // its index in the log
	typ      EntryType
	instead  bool     // see viewed.replaces
	hidden   []string // ids of the messages that it hides
	before   []string // ids of the messages of its checkpoint
	added    []string // ids of Entry.Messages
	said     bool     // it has Entry.Message, with this id
	id       string
	answers  bool // Entry.Message is the result of a call, with this id
	answered string
	calls    []string // ids of the calls of a response
}

func (l *line) number(int) int                  { return l.entry }
func (l *line) kind() EntryType                 { return l.typ }
func (l *line) replaces() bool                  { return l.instead }
func (l *line) hides() []string                 { return l.hidden }
func (l *line) checkpoint() int                 { return len(l.before) }
func (l *line) checkpointID(i int) string       { return l.before[i] }
func (l *line) messages() int                   { return len(l.added) }
func (l *line) messageID(i int) string          { return l.added[i] }
func (l *line) message() (id string, ok bool)   { return l.id, l.said }
func (l *line) answer() (call string, ok bool)  { return l.answered, l.answers }
func (l *line) parts() int                      { return len(l.calls) }
func (l *line) call(i int) (id string, ok bool) { return l.calls[i], true }

// Add adds the next entry of a log. The outline keeps nothing of e in memory.
func (o *Outline) Add(e Entry) {
	l := line{entry: o.n, typ: EntryType(strings.Clone(string(e.Type))), instead: e.replaces()}
	if o.n == 0 {
		l.before = clones(e.checkpoint(), e.checkpointID)
	}
	o.n++
	l.hidden = clones(len(e.MessageIDs), func(i int) string { return e.MessageIDs[i] })
	l.added = clones(len(e.Messages), e.messageID)
	l.id, l.said = e.message()
	if l.answered, l.answers = e.answer(); !l.answers {
		l.answered = ""
	}
	l.id, l.answered = strings.Clone(l.id), strings.Clone(l.answered)
	if l.said && e.Type == EntryModel {
		calls := e.Message.Calls()
		l.calls = clones(len(calls), func(i int) string { return calls[i].ID })
	}
	if l.said || l.typ == EntryModel || len(l.hidden)+len(l.before)+len(l.added) > 0 {
		o.lines = append(o.lines, l)
	}
}

// clones returns n texts that share no memory with those of text.
func clones(n int, text func(i int) string) []string {
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = strings.Clone(text(i))
	}
	return list
}

// MessageRef refers to a message of a view in the log.
type MessageRef struct {
	Entry       int  // index of its entry in the log
	Replacement bool // the entry is that of the compaction, the check or the handoff that replaced others

	Tombstoned, Compacted bool // see Message

	list  refList
	index int
}

// refList is the list of an entry that has a message.
type refList uint8

const (
	refMessages refList = iota
	refMessage
	refCheckpoint
)

// Message returns the message, given its entry.
func (r MessageRef) Message(e *Entry) Message {
	var m Message
	switch r.list {
	case refMessage:
		m = *e.Message
	case refCheckpoint:
		m = e.Checkpoint.Messages[r.index]
	default:
		m = e.Messages[r.index]
	}
	if r.Tombstoned || r.Compacted {
		m.Tombstoned, m.Compacted = r.Tombstoned, r.Compacted
	}
	return m
}

// removal is the removal of the message hides()[at] of an entry.
type removal struct {
	by, at int // by: the index of the entry in the list of those viewed
}

// ordering finds the messages of a view.
type ordering[V viewed] struct {
	n     int
	entry func(i int) V
	full  bool
	gone  map[string]removal // by the id of each message that is not in the view
	shown map[int]bool       // entries whose replacement is in out
	out   []MessageRef
}

// Refs returns references to the messages of View, or of FullView if full is set, in their order.
func (o *Outline) Refs(full bool) []MessageRef {
	return refsOf(len(o.lines), func(i int) *line { return &o.lines[i] }, full)
}

func refsOf[V viewed](entries int, entry func(i int) V, full bool) []MessageRef {
	v := ordering[V]{n: entries, entry: entry, full: full, gone: map[string]removal{}, shown: map[int]bool{}}
	n := 0
	for i := range entries {
		e := entry(i)
		for at, id := range e.hides() {
			v.gone[id] = removal{i, at}
		}
		n += e.messages()
		if i == 0 {
			n += e.checkpoint()
		}
		if _, said := e.message(); said {
			n++
		}
	}
	v.out = make([]MessageRef, 0, n)
	for i := range entries {
		e := entry(i)
		if i == 0 && e.checkpoint() > 0 {
			v.addAll(e.checkpoint(), e.checkpointID, MessageRef{Entry: e.number(i), list: refCheckpoint})
		}
		if e.messages() > 0 && (full || !e.replaces()) {
			v.addAll(e.messages(), e.messageID, MessageRef{Entry: e.number(i)})
		}
		id, said := e.message()
		if !said || e.kind() != EntryModel && (e.kind() != EntryTombstoned || !full) {
			continue
		}
		v.add(id, MessageRef{Entry: e.number(i), list: refMessage})
		if r, hides := v.gone[id]; e.kind() != EntryModel || hides && entry(r.by).kind() == EntryTombstoned && !full {
			continue
		}
		// Providers repeat call ids in later turns of a run, so a result belongs to the last
		// response before it.
		for p := range e.parts() {
			if call, ok := e.call(p); ok {
				v.addResults(i+1, call)
			}
		}
	}
	return v.out
}

func (v *ordering[V]) addAll(n int, id func(i int) string, p MessageRef) {
	for i := range n {
		p.index = i
		v.add(id(i), p)
	}
}

// add adds the message with an id, or what stands for it.
func (v *ordering[V]) add(id string, p MessageRef) {
	r, hides := v.gone[id]
	if !hides {
		v.out = append(v.out, p)
		return
	}
	by := v.entry(r.by)
	if v.full {
		p.Tombstoned, p.Compacted = by.kind() != EntryCompacted, by.kind() == EntryCompacted
		v.out = append(v.out, p)
		return
	}
	instead := MessageRef{Entry: by.number(r.by), Replacement: true}
	switch {
	case !by.replaces():
	case by.messages() == len(by.hides()): // each in the place of its own
		instead.index = r.at
		v.add(by.messageID(r.at), instead)
	case !v.shown[r.by]:
		v.shown[r.by] = true
		v.addAll(by.messages(), by.messageID, instead)
	}
}

// addResults adds the results of a call before the next model response. If there are several, all
// but the last were withdrawn.
func (v *ordering[V]) addResults(from int, call string) {
	for i := from; i < v.n; i++ {
		e := v.entry(i)
		if e.kind() == EntryModel {
			return
		}
		if of, ok := e.answer(); ok && of == call {
			id, _ := e.message()
			v.add(id, MessageRef{Entry: e.number(i), list: refMessage})
		}
	}
}
