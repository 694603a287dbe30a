package openai_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
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
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no streams", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(filepath.Base(filepath.Dir(file)) == "responses", append([]byte("data: "), bytes.ReplaceAll(b, []byte("\n"), []byte("\n\ndata: "))...))
	}
	item := `data: {"type":"response.output_item.done","item":{"type":"function_call","id":"%","call_id":"c","name":"f","arguments":"{}"}}` + "\n\n"
	f.Add(true, []byte(strings.ReplaceAll(item, "%", "1")+strings.ReplaceAll(item, "%", "2")+"data: "+completed+"\n\n"))
	f.Fuzz(func(t *testing.T, responses bool, stream []byte) {
		r := model.Request{Model: "m", API: model.APIChat, Messages: []state.Message{state.UserText("Hi")}}
		if responses {
			r.API = model.APIResponses
		}
		streamed := false
		resp, err := openai.New(openai.Config{Client: &http.Client{Transport: body(stream)}}).Generate(t.Context(), r, func(model.Delta) { streamed = true })
		if err != nil {
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Class == "" || e.Message == "" || e.Streamed != streamed || len(resp.Parts) > 0 {
				t.Fatalf("%+v with %+v", err, resp)
			}
			return
		}
		if len(resp.Parts) == 0 || resp.Stop == "" || resp.Usage.InputTokens < 0 {
			t.Fatalf("%+v", resp)
		}
		ids := map[string]bool{}
		for _, c := range (state.Message{Parts: resp.Parts}).Calls() {
			if c.ID == "" || c.Name == "" || c.Arguments == "" || responses && ids[c.ID] {
				t.Fatalf("call %+v of %+v", c, resp.Parts)
			}
			ids[c.ID] = true
		}
	})
}
