package modeltest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Wire is a provider's format of streams.
type Wire struct {
	// Named says that the type of an event stands before its data, too.
	Named bool

	// End is the data of a last event that recordings leave out.
	End string

	// First is the type of the event that begins a response.
	First string

	// Read reads as much of a stream as there is. It is a plain reading of the
	// format, made without the provider's SDK and without the adapter.
	Read func(events []string) Outcome

	// Unknown is the data of events that a later version may bring.
	Unknown []string

	// Errors are the data of error events and the class of each.
	Errors map[string]model.Class
}

// body is a stream on the wire.
func (w Wire) body(events []string) string {
	var b strings.Builder
	for _, data := range events {
		b.WriteString(w.frame(data))
	}
	if w.End != "" {
		b.WriteString(w.frame(w.End))
	}
	return b.String()
}

func (w Wire) frame(data string) string {
	if name := kind(data); w.Named && name != "" {
		return "event: " + name + "\ndata: " + data + "\n\n"
	}
	return "data: " + data + "\n\n"
}

// split tells the responses in a recording apart.
func (w Wire) split(name string, events []string) []Recording {
	var list []Recording
	from := 0
	for i := range events {
		if i > from && w.First != "" && kind(events[i]) == w.First && w.Read(events[from:i]).Whole {
			list = append(list, Recording{fmt.Sprintf("%s#%d", name, len(list)+1), events[from:i]})
			from = i
		}
	}
	if len(list) > 0 {
		name = fmt.Sprintf("%s#%d", name, len(list)+1)
	}
	return append(list, Recording{name, events[from:]})
}

// kind is the type of an event.
func kind(data string) string {
	var e struct{ Type string }
	_ = json.Unmarshal([]byte(data), &e) // recordings hold events that are not JSON
	return e.Type
}

// arguments of a call: none is an empty object.
func arguments(s string) string {
	if strings.TrimSpace(s) == "" {
		return "{}"
	}
	return s
}
