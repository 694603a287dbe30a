package mockmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// recording is a file of recorded traffic: the body of a response.
type recording struct {
	name  string // name of the file without extensions
	media string
	body  []byte
}

// loadRecordings reads a recording, or those in a folder, by name.
func loadRecordings(path string) ([]recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w: name a file or folder that this user can read", err)
	}
	files := []string{path}
	switch {
	case info.Mode().IsRegular():
	case !info.IsDir():
		return nil, fmt.Errorf("read recording: %s is neither a file nor a folder: name one of them", path)
	default:
		files = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("read recordings: %w: name a folder that this user can read", err)
		}
		for _, e := range entries {
			if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("read recordings: no files in %s (links, folders and names that begin with a dot do not count): add a recording, or name another folder", path)
		}
	}
	list := make([]recording, 0, len(files))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read recording: %w: name a file or folder that this user can read", err)
		}
		list = append(list, newRecording(filepath.Base(file), b))
	}
	return list, nil
}

// newRecording returns the recording of a body: a document if the file name ends in .json, else a stream. A file of
// JSON lines has the data of a stream's events, which newRecording frames as the providers do.
func newRecording(file string, b []byte) recording {
	r := recording{name: strings.TrimSuffix(strings.TrimSuffix(file, filepath.Ext(file)), ".chunks"), media: "text/event-stream; charset=utf-8", body: b}
	switch {
	case filepath.Ext(file) == ".json":
		r.media = "application/json"
	case bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")):
		r.body = frame(b)
	}
	return r
}

// frame returns the event stream for lines of JSON. In formats with named events, the data has the name; a stream of
// chat completions ends with its own marker.
func frame(lines []byte) []byte {
	var out bytes.Buffer
	chat := false
	for line := range bytes.Lines(lines) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		var e struct{ Type, Object string }
		_ = json.Unmarshal(line, &e) // a recording may have broken events
		if e.Type != "" {
			fmt.Fprintf(&out, "event: %s\n", e.Type)
		}
		fmt.Fprintf(&out, "data: %s\n\n", line)
		chat = chat || e.Object == "chat.completion.chunk"
	}
	if chat {
		out.WriteString("data: [DONE]\n\n")
	}
	return out.Bytes()
}

// played returns the recording for a request: the one with the name of the model, else the one with the number of the
// response. A single recording is the response to every request.
func (s *Server) played(q query) (recording, *problem) {
	if len(s.plays) == 1 {
		return s.plays[0], nil
	}
	name := q.model[strings.LastIndexByte(q.model, '/')+1:]
	for _, r := range s.plays {
		if r.name == name {
			return r, nil
		}
	}
	if q.assistants >= len(s.plays) {
		return recording{}, &problem{400, "script_exhausted", fmt.Sprintf(
			"there are %d recordings and none with the name %s, and the request needs the one after %d assistant messages: add a recording", len(s.plays), name, q.assistants)}
	}
	return s.plays[q.assistants], nil
}

// play sends a recording, event by event if there is a pace.
func play(ctx context.Context, w http.ResponseWriter, r recording, pace time.Duration) {
	w.Header().Set("Content-Type", r.media)
	if pace <= 0 {
		_, _ = w.Write(r.body)
		return
	}
	for i, piece := range bytes.SplitAfter(r.body, []byte("\n\n")) {
		if i > 0 && pause(ctx, pace) != nil {
			return
		}
		if _, err := w.Write(piece); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}

// checkPlay returns an error if a response with a recording sets other fields that the recording excludes.
func (r Response) checkPlay() error {
	if r.Play != "" && (r.Text != "" || r.Thinking != "" || len(r.ToolCalls) > 0 || len(r.ProviderTools) > 0 || r.Error != "" || r.Stop != "" || r.Cut || r.Usage != nil) {
		return errors.New("play replaces the whole answer, so only delay, pace and cut_after may accompany it: remove the other fields")
	}
	return nil
}
