package gemini

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// longestEvent bounds an event of a stream, in bytes.
const longestEvent = 64 << 20

// events reads the body of a stream and passes the events to the SDK one by one in a uniform format: other fields,
// comments and line ends make the SDK's own reader fail. It omits JSON that is not an object, and ends the stream at an
// error event. It keeps an unchanged copy of each event until pop, because the SDK converts numbers to floating point,
// and it keeps the error that ended the stream, because the SDK only logs it.
type events struct {
	body  io.Closer
	lines *bufio.Scanner
	out   []byte   // rest of the current event, for the SDK
	queue [][]byte // events that the SDK has received and pop has not returned

	err   error  // error that ended the stream; nil after an orderly end
	fault []byte // an error event, which also ends the stream
	stray []byte // lines that are no field, for example an error of a proxy
}

func newEvents(body io.ReadCloser) *events {
	e := &events{body: body, lines: bufio.NewScanner(body)}
	e.lines.Buffer(nil, longestEvent)
	return e
}

// Read implements io.Reader, for the SDK.
func (e *events) Read(p []byte) (int, error) {
	for len(e.out) == 0 {
		if e.err != nil || e.fault != nil {
			return 0, io.EOF
		}
		data, err := e.next()
		if err != nil {
			if err != io.EOF { //nolint:errorlint // its own
				e.err = err
			}
			return 0, io.EOF
		}
		if err := e.accept(data); err != nil {
			e.err = err
			return 0, io.EOF
		}
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

// Close closes the connection's body.
func (e *events) Close() error { return e.body.Close() }

// pop returns the event of the latest piece that the SDK has returned.
func (e *events) pop() []byte {
	if e == nil || len(e.queue) == 0 {
		return nil
	}
	first := e.queue[0]
	e.queue = e.queue[1:]
	return first
}

// accept queues an event for the SDK, unless it is an error.
func (e *events) accept(data []byte) error {
	var line bytes.Buffer
	line.WriteString("data: ")
	if err := json.Compact(&line, data); err != nil {
		return errShape
	}
	line.WriteString("\n\n")
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil // JSON, but not an object
	}
	if fault, ok := fields["error"]; ok && string(fault) != "null" {
		e.fault = data
		return nil
	}
	e.queue, e.out = append(e.queue, data), line.Bytes()
	return nil
}

var (
	errTooLong = errors.New("the provider's stream has an event of more than 64 MiB: lower max_output_tokens, or check base_url")
	byteMark   = []byte("\xef\xbb\xbf")
	done       = []byte("[DONE]") // of compatible servers
)

// next returns the data of the next event, or io.EOF.
func (e *events) next() ([]byte, error) {
	var data []byte
	begun := false
	for e.lines.Scan() {
		line := bytes.TrimPrefix(e.lines.Bytes(), byteMark)
		if len(line) == 0 {
			if begun && !bytes.Equal(data, done) {
				return data, nil
			}
			data, begun = nil, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		switch string(field) {
		case "data":
			if begun {
				data = append(data, '\n')
			}
			data, begun = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
		case "", "event", "id", "retry":
		default:
			if len(e.stray) < 64<<10 {
				e.stray = append(append(e.stray, line...), '\n')
			}
		}
		if len(data) > longestEvent {
			return nil, errTooLong
		}
	}
	switch err := e.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, errTooLong
	case err != nil:
		return nil, err
	case begun && !bytes.Equal(data, done):
		return data, nil // only the empty line behind it is missing
	default:
		return nil, io.EOF
	}
}

// said returns the stream's own error message, or nil.
func (e *events) said() []byte {
	var fields map[string]json.RawMessage
	switch {
	case e == nil:
		return nil
	case e.fault != nil:
		return e.fault
	case json.Unmarshal(bytes.Trim(bytes.TrimSpace(e.stray), "[],"), &fields) == nil && fields["error"] != nil:
		return e.stray
	default:
		return nil
	}
}
