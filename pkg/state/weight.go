package state

import "unsafe"

// around is about what an entry's text has besides what is long in it. An entry that was
// decoded keeps it.
const around = 256

// Weight is about how much memory an entry takes: what is long in it is in its messages.
func (e *Entry) Weight() int64 {
	n := int(unsafe.Sizeof(*e)) + around
	if e.Message != nil {
		n += weigh(*e.Message)
	}
	for _, m := range e.Messages {
		n += weigh(m)
	}
	return int64(n)
}

func weigh(m Message) int {
	n := int(unsafe.Sizeof(m))
	for _, p := range m.Parts {
		n += int(unsafe.Sizeof(p)) + len(p.Text) + len(p.Arguments) + len(p.Content) + len(p.Data) + len(p.Opaque)
		for _, i := range p.Images {
			n += int(unsafe.Sizeof(i)) + len(i.Data)
		}
	}
	return n
}
