package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Wire is a provider's format of streams.
type Wire struct {
	// Named reports that the stream also sends an event's type before its data.
	Named bool

	// End is the data of a last event that recordings leave out.
	End string

	// First is the type of the event that begins a response.
	First string

	// Read reads the available part of a stream. It is a straightforward parser of the format, independent of
	// the provider's SDK and of the adapter.
	Read func(events []string) Outcome

	// Unknown is the data of events that a later version may add.
	Unknown []string

	// Errors are the data of error events and the class of each.
	Errors map[string]model.Class
}

// body is a stream on the wire.
func (w Wire) body(events []string) string {
	body := w.frames(events)
	if w.End != "" {
		body += w.frame(w.End)
	}
	return body
}

func (w Wire) frames(events []string) string {
	var b strings.Builder
	for _, data := range events {
		b.WriteString(w.frame(data))
	}
	return b.String()
}

func (w Wire) frame(data string) string {
	if name := kind(data); w.Named && name != "" {
		return "event: " + name + "\ndata: " + data + "\n\n"
	}
	return "data: " + data + "\n\n"
}

// split separates the responses in a recording.
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

// Recording is a stream as a provider sent it: the data of its events, in order.
type Recording struct {
	Name   string
	Events []string
}

// Recordings reads recorded streams of one format from .txt files with the data of one event on each line:
// those in testdata/LOCAL, and, if TURNPIKE_REAL_DATA names a directory, those in its wire/FOLDER for each
// folder of recorded. A directory without such files fails the test. A file that holds several responses
// gives several recordings.
func Recordings(t *testing.T, w Wire, local string, recorded ...string) []Recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", local, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no streams in testdata/%s: %v", local, err)
	}
	if dir := os.Getenv("TURNPIKE_REAL_DATA"); dir == "" {
		t.Log("TURNPIKE_REAL_DATA is not set: no recordings of real traffic are replayed")
	} else {
		for _, folder := range recorded {
			found, err := filepath.Glob(filepath.Join(dir, "wire", folder, "*.txt"))
			if err != nil || len(found) == 0 {
				t.Fatalf("no recordings in %s of TURNPIKE_REAL_DATA: %v", folder, err)
			}
			files = append(files, found...)
		}
	}
	var list []Recording
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		for line := range bytes.Lines(b) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				events = append(events, string(line))
			}
		}
		list = append(list, w.split(strings.TrimSuffix(filepath.Base(file), ".txt"), events)...)
	}
	return list
}

// kind is the type of an event.
func kind(data string) string {
	var e struct{ Type string }
	_ = json.Unmarshal([]byte(data), &e) // recordings contain events that are not JSON
	return e.Type
}

// arguments returns the arguments of a call: none is an empty object.
func arguments(s string) string {
	if strings.TrimSpace(s) == "" {
		return "{}"
	}
	return s
}
