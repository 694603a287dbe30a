package gemini_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// body answers every request with a stream.
type body []byte

func (b body) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(b))}, nil
}

// Any server output is an answer or a classified error, and no call is incomplete (A4).
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
	for _, s := range []string{
		stream(`{"candidates":[null]}`), stream(`{"candidates":[{"citationMetadata":[]}]}`), stream(piece(`{"functionCall":{"name":"f","args":[]}}`, stop)),
		stream(piece(`{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$[0]","numberValue":1}]}}`, stop)),
		stream(piece(`{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$","stringValue":"x"}]}}`, stop)),
		": c\r\n\r\nevent: x\r\nid: 1\r\ndata:" + piece(`{"text":"a"}`, stop) + "\r\n\r\n", `{"error":{"code":400}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		p := gemini.New(gemini.Config{Client: &http.Client{Transport: body(stream)}})
		streamed := false
		resp, err := p.Generate(t.Context(), model.Request{Model: "m", Messages: []state.Message{state.UserText("hi")}}, func(model.Delta) { streamed = true })
		if err != nil {
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Class == "" || e.Message == "" || e.Streamed != streamed || len(resp.Parts) > 0 {
				t.Fatalf("%+v with %+v", err, resp)
			}
			return
		}
		ids := map[string]bool{}
		for _, c := range (state.Message{Parts: resp.Parts}).Calls() {
			if _, ok := state.CompactObject(c.Arguments); !ok || c.Name == "" || c.ID == "" || ids[c.ID] {
				t.Fatalf("call %+v in %+v", c, resp.Parts)
			}
			ids[c.ID] = true
		}
		if len(resp.Parts) == 0 || resp.Stop == "" || resp.Usage.InputTokens < 0 || resp.Usage.OutputTokens < 0 {
			t.Fatalf("%+v", resp)
		}
	})
}
