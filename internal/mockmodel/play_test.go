package mockmodel_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A recording reaches the client byte for byte, at every endpoint.
func TestPlayRaw(t *testing.T) {
	t.Parallel()
	const stream = ": hello\r\n\r\nevent: novelty\r\ndata: {\"x\": 1}\r\n\r\ndata: broken"
	for name, test := range map[string]struct{ body, media string }{
		"a.txt":  {stream, "text/event-stream; charset=utf-8"},
		"a.sse":  {"data: {}\n\n", "text/event-stream; charset=utf-8"},
		"a.json": {"{\n \"error\": {}}\n", "application/json"},
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(test.body), 0o600); err != nil {
			t.Fatal(err)
		}
		url := start(t, mockmodel.Config{Play: file})
		for _, path := range []string{"/v1/responses", "/v1/chat/completions", "/v1/messages", "/v1beta/models/m:streamGenerateContent?alt=sse"} {
			status, header, body := post(t, url+path, `{"model":"m","stream":true}`)
			if status != http.StatusOK || header.Get("Content-Type") != test.media || body != test.body {
				t.Errorf("%s at %s: %d %s\n%q", name, path, status, header.Get("Content-Type"), body)
			}
		}
	}
}

// Recordings stored as JSON lines are framed as the providers do.
func TestPlayLines(t *testing.T) {
	t.Parallel()
	ask := func(p model.Provider, r model.Request, history ...state.Message) (model.Response, error) {
		r.Messages = append([]state.Message{state.UserText("Hi")}, history...)
		return p.Generate(t.Context(), r, nil)
	}
	said := state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: "Hello"}}}
	root := filepath.Join("..", "..", "pkg", "model")
	for name, test := range map[string]struct {
		dir      string
		provider model.Provider
		request  model.Request
		base     string
	}{
		"anthropic": {filepath.Join(root, "anthropic", "testdata", "streams"), anthropic.New(anthropic.Config{}), model.Request{}, ""},
		"chat":      {filepath.Join(root, "openai", "testdata", "chat"), openai.New(openai.Config{}), model.Request{}, "/v1"},
		"responses": {filepath.Join(root, "openai", "testdata", "responses"), openai.New(openai.Config{}), model.Request{API: model.APIResponses}, "/v1"},
		"gemini":    {filepath.Join(root, "gemini", "testdata", "streams"), gemini.New(gemini.Config{}), model.Request{}, ""},
	} {
		url := start(t, mockmodel.Config{Play: test.dir})
		r := test.request
		r.BaseURL = url + test.base
		r.Model = "any/limit"
		resp, err := ask(test.provider, r, said)
		if err != nil || resp.Stop != model.StopMaxOutputTokens {
			t.Errorf("%s by name: %+v, %v", name, resp, err)
		}
		r.Model = "other"
		if resp, err = ask(test.provider, r); err != nil || len((state.Message{Parts: resp.Parts}).Calls()) != 2 || resp.Usage.OutputTokens == 0 {
			t.Errorf("%s by position: %+v, %v", name, resp, err)
		}
		history := []state.Message{}
		for range 9 {
			history = append(history, said, state.UserText("And?"))
		}
		_, err = ask(test.provider, r, history...)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.Exhausted {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
}

func TestPlayInScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"c.yaml":   "scripts: [{responses: [{text: one}, {play: two.txt}, {play: two.txt, cut_after: 9}]}]",
		"two.txt":  `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"two"},"finish_reason":"stop"}]}`,
		"bad.yaml": "scripts: [{responses: [{text: one, play: two.txt}]}]", "lost.yaml": "scripts: [{responses: [{play: nothing.txt}]}]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := mockmodel.Load(filepath.Join(dir, "c.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, cfg)
	_, _, body := post(t, url+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"assistant","content":"one"}]}`)
	if want := "\n\ndata: [DONE]\n\n"; !strings.HasPrefix(body, `data: {"object"`) || !strings.HasSuffix(body, want) {
		t.Errorf("played %q", body)
	}
	if _, err := mockmodel.Load(filepath.Join(dir, "bad.yaml")); err == nil || !strings.Contains(err.Error(), "play replaces the whole answer") {
		t.Errorf("play next to text: %v", err)
	}
	lost, err := mockmodel.Load(filepath.Join(dir, "lost.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mockmodel.New(lost); err == nil || !strings.Contains(err.Error(), "scripts[0].responses[0]") {
		t.Errorf("a missing file: %v", err)
	}
}
