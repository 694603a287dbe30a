package model_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// endless is a body that never ends.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x' // not the lines that an earlier reader left in the buffer
	}
	e.read += int64(len(p))
	return len(p), nil
}

func (e *endless) Close() error { return nil }

// A server that streams without end is cut off.
func TestEndlessStream(t *testing.T) {
	t.Parallel()
	body := &endless{}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}
	if err := model.CheckHTTP("openai", "", resp); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, resp.Body)
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.InvalidRequest || e.Class.Retryable() || !strings.Contains(e.Message, "64 MiB") {
		t.Errorf("reading ended with %v", err)
	}
	if body.read < 64<<20 || body.read > 65<<20 {
		t.Errorf("%d bytes were read", body.read)
	}
}

// A server that streams tiny events is cut off: each costs a worker more than its bytes. The events of the longest
// response of a current model are not.
func TestTinyEvents(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		strings.Repeat("data: {}\n\n", 6<<20):                                      true,
		strings.Repeat("\n", 2<<20):                                                true,
		strings.Repeat("event: content_block_delta\nid: 1\ndata: {}\n\n", 128_000): false,
	} {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(text))}
		if err := model.CheckHTTP("openai", "", resp); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		var e *model.Error
		if refused := errors.As(err, &e) && e.Class == model.InvalidRequest && strings.Contains(e.Message, "1048576 lines"); refused != want || !want && err != nil {
			t.Errorf("%.40q: reading ended after %d of %d bytes with %v", text, n, len(text), err)
		}
	}
}
