package anthropic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// longestEvent bounds a line of a stream without event names, in bytes.
const longestEvent = 32 << 20

// named is the body of a stream. If the first event has no name, named inserts a name before the data of each event:
// the type in the data. The SDK drops an event without a name, and some compatible servers send only the data.
type named struct {
	io.Closer
	body  *bufio.Reader
	lines *bufio.Scanner // of a stream without event names
	out   []byte
	plain bool // the stream has event names
}

func withNames(body io.ReadCloser) *named { return &named{Closer: body, body: bufio.NewReader(body)} }

// Read implements io.Reader, for the SDK.
func (n *named) Read(p []byte) (int, error) {
	for len(n.out) == 0 {
		var err error
		switch {
		case n.plain:
			return n.body.Read(p)
		case n.lines == nil:
			err = n.look()
		case !n.lines.Scan():
			if err = n.lines.Err(); err == nil {
				err = io.EOF
			}
		default:
			n.line(n.lines.Bytes())
		}
		if err != nil {
			return 0, err
		}
	}
	k := copy(p, n.out)
	n.out = n.out[k:]
	return k, nil
}

// look passes the lines before the first event through, and determines whether that event has a name.
func (n *named) look() error {
	head, err := n.body.Peek(len("data"))
	switch {
	case string(head) == "data":
		n.lines = bufio.NewScanner(n.body)
		n.lines.Buffer(nil, longestEvent)
		return nil
	case err != nil || string(head) == "even":
		n.plain = true
		return nil
	}
	n.out, err = n.body.ReadSlice('\n')
	if len(n.out) > 0 {
		n.out = bytes.Clone(n.out)
		return nil
	}
	return err
}

func (n *named) line(line []byte) {
	n.out = n.out[:0]
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		var e struct{ Type string }
		if json.Unmarshal(data, &e) == nil && e.Type != "" {
			n.out = append(append(append(n.out, "event: "...), e.Type...), '\n')
		}
	}
	n.out = append(append(n.out, line...), '\n')
}
