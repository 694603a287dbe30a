package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine bounds a line of a stream, in bytes.
const MaxLine = 32 << 20

// ErrTooLong reports a line, or an event, above MaxLine. The rest of the stream cannot be read.
var ErrTooLong = fmt.Errorf("a line or an event of the stream has more than %d MiB, the maximum of this client: request the run with GET /v1/runs/ID, or the runs with GET /v1/runs, instead of the stream", MaxLine>>20)

// Event is one event of a stream. As the format has it, a line that ends in a
// carriage return does not keep it, so Data has none.
type Event struct {
	ID   string // of this event; empty if it has none
	Type string // empty is "message"
	Data []byte
}

// Append appends e to dst as one frame. Line breaks in ID and Type would end their
// lines, and a NUL makes readers ignore an id, so these are left out.
func Append(dst []byte, e Event) []byte {
	if e.ID != "" {
		dst = append(append(append(dst, "id: "...), oneLine(e.ID)...), '\n')
	}
	if e.Type != "" {
		dst = append(append(append(dst, "event: "...), oneLine(e.Type)...), '\n')
	}
	for line := range bytes.SplitSeq(e.Data, []byte("\n")) {
		if bytes.IndexByte(line, '\r') >= 0 {
			line = bytes.ReplaceAll(line, []byte("\r"), nil)
		}
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}

// AppendComment appends a frame that readers skip: it keeps a connection alive.
func AppendComment(dst []byte, text string) []byte {
	return append(append(append(dst, ": "...), oneLine(text)...), "\n\n"...)
}

func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n\x00") {
		return s
	}
	return strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(s)
}

// Reader reads events from a stream.
type Reader struct {
	lines *bufio.Reader
	begun bool
	cr    bool // the last line ended in CR: an LF that follows belongs to it
}

// NewReader returns a reader of the stream r.
func NewReader(r io.Reader) *Reader { return &Reader{lines: bufio.NewReader(r)} }

// Next returns the next event that has data; Data is the caller's. At the end of
// the stream it returns io.EOF, and io.ErrUnexpectedEOF if the stream ends within
// a line or an event, which is lost. After ErrTooLong and errors of the stream nothing
// can be read. Comments, unknown fields and retry are skipped.
func (r *Reader) Next() (Event, error) {
	var e Event
	lines, size := 0, 0
	for {
		line, err := r.line()
		if err != nil {
			if errors.Is(err, io.EOF) && (lines > 0 || e.Type != "" || e.ID != "") {
				err = io.ErrUnexpectedEOF
			}
			return Event{}, err
		}
		if len(line) == 0 {
			if lines > 0 {
				return e, nil
			}
			e = Event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			if !bytes.ContainsRune(value, 0) {
				e.ID = string(value)
			}
		case "event":
			e.Type = string(value)
		case "data":
			if size += len(value) + 1; size > MaxLine {
				return Event{}, ErrTooLong
			}
			if lines++; lines > 1 {
				e.Data = append(e.Data, '\n')
			}
			e.Data = append(e.Data, value...)
		}
	}
}

// line returns the next line without its end, which is CR LF, LF or CR. The slice
// is the caller's. A line that the end of the stream cuts off is io.ErrUnexpectedEOF.
func (r *Reader) line() ([]byte, error) {
	var line []byte
	for {
		c, err := r.lines.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) {
				if len(line) > 0 {
					return nil, io.ErrUnexpectedEOF
				}
				return nil, io.EOF
			}
			return nil, fmt.Errorf("read event stream: %w", err)
		}
		// Looking ahead for the LF would wait for the next event.
		after := r.cr
		r.cr = c == '\r'
		if c == '\n' && after {
			continue
		}
		if c == '\n' || c == '\r' {
			break
		}
		if len(line) == MaxLine {
			return nil, ErrTooLong
		}
		line = append(line, c)
	}
	if !r.begun {
		r.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	return line, nil
}
