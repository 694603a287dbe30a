package anthropic_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// body answers every request with itself.
type body []byte

func (b body) RoundTrip(*http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {"text/event-stream"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(b))}, nil
}

// Any server output is an answer or a classified error.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/streams/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no streams", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append([]byte("data: "), bytes.ReplaceAll(b, []byte("\n"), []byte("\n\ndata: "))...))
	}
	f.Add([]byte(": hello\n\nevent: message_start\ndata: " + start + "\n\nevent: message_stop\ndata: " + stop + "\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		streamed := false
		resp, err := anthropic.New(anthropic.Config{Client: &http.Client{Transport: body(stream)}}).Generate(t.Context(),
			model.Request{Model: "m", Messages: []state.Message{state.UserText("Hi")}}, func(model.Delta) { streamed = true })
		if err != nil {
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Class == "" || e.Message == "" || e.Streamed != streamed || len(resp.Parts) > 0 {
				t.Fatalf("%+v with %+v", err, resp)
			}
			return
		}
		if len(resp.Parts) == 0 || resp.Stop == "" || resp.Usage.InputTokens < 0 {
			t.Fatalf("%+v", resp)
		}
		for _, c := range (state.Message{Parts: resp.Parts}).Calls() {
			if c.ID == "" || c.Arguments == "" {
				t.Fatalf("call %+v of %+v", c, resp.Parts)
			}
		}
	})
}
