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

// recording is a file of recorded traffic: the body of an answer.
type recording struct {
	name  string // of the file, without .txt and the like
	media string
	body  []byte
}

// loadRecordings reads a recording, or those of a folder in the order of their
// names.
func loadRecordings(path string) ([]recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	files := []string{path}
	switch {
	case info.Mode().IsRegular():
	case !info.IsDir():
		return nil, fmt.Errorf("read recording: %s is neither a file nor a folder", path)
	default:
		files = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("read recordings: %w", err)
		}
		for _, e := range entries {
			if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("read recordings: no files in %s", path)
		}
	}
	list := make([]recording, 0, len(files))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		list = append(list, newRecording(filepath.Base(file), b))
	}
	return list, nil
}

// newRecording takes a body as it was: a document if the file is called .json, else
// a stream. A file of JSON lines holds the data of a stream's events, which are
// framed as the providers do.
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

// frame makes a stream of events. Formats with named events have the name in the
// data; chat completions end with a marker of their own.
func frame(lines []byte) []byte {
	var out bytes.Buffer
	chat := false
	for line := range bytes.Lines(lines) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		var e struct{ Type, Object string }
		_ = json.Unmarshal(line, &e) // recordings hold broken events too
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

// played finds the recording for a request: that which the model is named after,
// else the one in the place of the answer. A single one answers every request.
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

// checkPlay returns an error if a response asks for more than a recording.
func (r Response) checkPlay() error {
	if r.Play != "" && (r.Text != "" || r.Thinking != "" || len(r.ToolCalls) > 0 || len(r.ProviderTools) > 0 || r.Error != "" || r.Stop != "" || r.Cut || r.Usage != nil) {
		return errors.New("play replaces the whole answer, so only delay, pace and cut_after may accompany it: remove the other fields")
	}
	return nil
}
