package state

import "unsafe"

// around estimates the size of an entry's text apart from its long parts. A decoded entry keeps
// that text in memory.
const around = 256

// Weight estimates the memory, in bytes, that an entry takes. Its long parts are in its messages.
func (e *Entry) Weight() int64 {
	n := int(unsafe.Sizeof(*e)) + around
	if e.Message != nil {
		n += weigh(e.Message)
	}
	for i := range e.Messages {
		n += weigh(&e.Messages[i])
	}
	if e.Checkpoint != nil {
		for i := range e.Checkpoint.Messages {
			n += weigh(&e.Checkpoint.Messages[i])
		}
	}
	return int64(n)
}

// Weight estimates the memory in bytes that messages take.
func Weight(messages []Message) (n int64) {
	for i := range messages {
		n += int64(weigh(&messages[i]))
	}
	return n
}

// Weight estimates the memory, in bytes, that the contents of a signal take.
func (s *Signal) Weight() int64 {
	n := int(unsafe.Sizeof(*s))
	if s.Message != nil {
		n += weigh(s.Message)
	}
	if s.Answer != nil {
		n += len(*s.Answer)
	}
	if s.Child != nil {
		n += len(s.Child.Content)
	}
	for _, r := range s.ToolResults {
		n += len(r.Content) + weighParts(r.Files)
		for _, i := range r.Images {
			n += len(i.Data)
		}
	}
	for _, a := range s.Approvals {
		n += len(a.Arguments)
	}
	return int64(n)
}

func weigh(m *Message) int {
	return int(unsafe.Sizeof(*m)) + weighParts(m.Parts)
}

func weighParts(parts []Part) (n int) {
	for k := range parts {
		p := &parts[k] // a part is large
		n += int(unsafe.Sizeof(*p)) + len(p.Text) + len(p.Arguments) + len(p.Content) + len(p.Data) + len(p.Opaque) + weighParts(p.Files)
		for _, i := range p.Images {
			n += int(unsafe.Sizeof(i)) + len(i.Data)
		}
	}
	return n
}
