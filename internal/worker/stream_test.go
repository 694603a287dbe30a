//go:build !nosdk

package worker_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// floods are streams of model servers that send as much as they can: their beginnings, and what they repeat. A %d is the
// number of the repetition.
func floods() map[string][2]string {
	text := strings.Repeat("x", 4000)
	event := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	begin := event("message_start", `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":1,"output_tokens":1}}}`) +
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	return map[string][2]string{
		"openai/text":         {"", `data: {"choices":[{"index":0,"delta":{"content":"` + text + `"}}]}` + "\n\n"},
		"openai/calls":        {"", `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"function":{"name":"f","arguments":""}}]}}]}` + "\n\n"},
		"openai/event":        {`data: {"choices":[{"index":0,"delta":{"content":"`, text},
		"openai/responses":    {"", event("response.output_item.done", `{"type":"response.output_item.done","output_index":%d,"item":{"type":"message","content":[]}}`)},
		"anthropic/text":      {begin, event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+text+`"}}`)},
		"anthropic/blocks":    {begin, event("content_block_start", `{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}`)},
		"gemini/text":         {"", `data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"` + text + `"}]}}]}` + "\n\n"},
		"gemini/alternations": {"", `data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"a","thought":true},{"text":"b"}]}}]}` + "\n\n"},
	}
}

// A model server that streams without end costs a worker a bounded part of its memory, and its run ends.
func TestFloodOfAModel(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	cfg.Providers["anthropic"], cfg.Providers["openai"], cfg.Providers["gemini"] = anthropic.New(anthropic.Config{Client: client}), openai.New(openai.Config{Client: client}), gemini.New(gemini.Config{Client: client})
	s.work(cfg)
	for name, flood := range floods() {
		var sent atomic.Int64
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, err := io.WriteString(w, flood[0])
			for n := 1; err == nil && sent.Load() < 100<<20; n++ {
				piece := flood[1]
				if strings.Contains(piece, "%d") {
					piece = fmt.Sprintf(piece, n)
				}
				var wrote int
				wrote, err = io.WriteString(w, piece)
				sent.Add(int64(wrote))
			}
		}))
		provider, what, _ := strings.Cut(name, "/")
		m := agent.Model{Provider: provider, Name: "m", BaseURL: h.URL}
		if provider == "openai" {
			m.BaseURL += "/v1"
		}
		if what == "responses" {
			m.API = "responses"
		}
		st := s.awaitReason(s.submitTo(agent.Definition{Name: provider + "-" + what, Model: m}), state.EndModelError)
		if st.Error == nil || !strings.Contains(st.Error.Message, "24 MiB") {
			t.Errorf("%s: the run ended with %+v", name, st.Error)
		}
		if sent.Load() > 40<<20 {
			t.Errorf("%s: the worker read %d bytes", name, sent.Load())
		}
		h.Close()
	}
}
