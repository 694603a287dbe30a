// Package mockmodel is a model server whose responses are written down in advance. It uses the wire formats of
// the real providers over real HTTP: OpenAI's Responses at /v1/responses, its chat completions at
// /v1/chat/completions, Anthropic's messages at /v1/messages and Gemini's generateContent at
// /v1beta/models/NAME:…, each streamed or not, with the providers' own error bodies. It can delay, fail and
// break off its responses. `turnpike mock-model` runs it, and the tests of the model adapters use it.
//
// A configuration is a YAML or JSON file, or a [Config]:
//
//	scripts:
//	  - model: ^gpt-               # regular expression for the name of the model
//	    match: (?i)refund          # and one for lines "role: text"
//	    responses:
//	      - tool_calls: [{name: refund, arguments: {amount: 20}}]
//	      - {error: rate_limited, retry_after: 1s}
//	      - text: Done.
//	conversation_files: [recorded.jsonl]
//
// Responses have the fields of a scripted model (text, thinking, tool_calls, stop, usage, delay, error,
// retry_after) and pace, chunk, cut, cut_after and play. The server selects a response by the number of assistant
// messages in the request, so it may be restarted at any time; only failing responses, [CountCalls] and the prompt
// cache depend on earlier requests. docs/reference/mock-model.md has the whole format.
package mockmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// longestRequest is the maximum size of a request body, in bytes.
const longestRequest = 64 << 20

// Server answers requests. It is an http.Handler, safe for concurrent use.
type Server struct {
	mux           *http.ServeMux
	apiKey        string
	scripts       []compiled
	conversations map[ID]Conversation
	plays         []recording
	files         map[string]recording // recordings in scripts, by file name
	memory        memory
	cache         *promptCache
}

// New returns a server, or an error for an invalid configuration or a recording that cannot be read.
func New(c Config) (*Server, error) {
	scripts, err := c.compile()
	if err != nil {
		return nil, fmt.Errorf("configure mock model: %w", err)
	}
	s := &Server{
		mux: http.NewServeMux(), apiKey: c.APIKey, scripts: scripts,
		conversations: make(map[ID]Conversation, len(c.Conversations)), memory: memory{byKey: map[string]*counters{}},
		files: map[string]recording{}, cache: newPromptCache(time.Duration(c.CacheMinute)),
	}
	if err := s.load(c); err != nil {
		return nil, fmt.Errorf("configure mock model: %w", err)
	}
	for _, conv := range c.Conversations {
		if _, double := s.conversations[conv.ID]; double {
			return nil, fmt.Errorf("configure mock model: two conversations have the id %q: rename one", conv.ID)
		}
		s.conversations[conv.ID] = conv
	}
	for _, path := range []string{"/v1/chat/completions", "/chat/completions"} {
		s.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, openAI{}) })
	}
	for _, path := range []string{"/v1/responses", "/responses"} {
		s.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, responsesAPI{}) })
	}
	s.mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, anthropic{}) })
	s.mux.HandleFunc("POST /{version}/models/{call...}", s.serveGemini)
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return s, nil
}

// load reads the recordings that a configuration names.
func (s *Server) load(c Config) (err error) {
	if c.Play != "" {
		if s.plays, err = loadRecordings(c.Play); err != nil {
			return err
		}
	}
	for i, script := range c.Scripts {
		for j, r := range script.Responses {
			if r.Play == "" {
				continue
			}
			list, err := loadRecordings(r.Play)
			if err != nil {
				return fmt.Errorf("scripts[%d].responses[%d]: %w", i, j, err)
			}
			s.files[r.Play] = list[0]
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// format is one provider's wire format.
type format interface {
	key(h http.Header) string // the API key in a request
	parse(body []byte) (query, error)
	prompt(body []byte, q query) prompt
	fail(w http.ResponseWriter, class model.Class, retryAfter time.Duration)
	refuse(w http.ResponseWriter, p problem)
	whole(r reply, q query) any                  // the body of a response that is not streamed
	events(r reply, q query) (body, end []event) // the events of a stream, and those that end it
}

// event is one server-sent event.
type event struct {
	name string // empty: no name
	data any    // encoded as JSON, unless it is a string
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, f format) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestRequest))
	if err != nil {
		f.refuse(w, problem{http.StatusRequestEntityTooLarge, "request_too_large", "Request exceeds the maximum size"})
		return
	}
	if s.apiKey != "" && f.key(r.Header) != s.apiKey {
		f.fail(w, model.Auth, 0)
		return
	}
	q, err := f.parse(body)
	if err != nil {
		f.refuse(w, problem{http.StatusBadRequest, "invalid_request_error", "We could not parse the JSON body of your request: " + err.Error()})
		return
	}
	// A run's id, which Turnpike sends, distinguishes conversations with equal beginnings.
	if run, _, ok := strings.Cut(r.Header.Get("X-Client-Request-Id"), "/"); ok {
		q.key = run
	}
	answer, p := s.pick(q)
	if p != nil {
		f.refuse(w, *p)
		return
	}
	if answer.Usage == nil && answer.recorded == nil && answer.Error == "" {
		answer.cached(s.cache.use(f.prompt(body, q)))
	}
	if answer.Show == model.ShowSettings {
		answer.text = settings(body)
	}
	if pause(r.Context(), time.Duration(answer.Delay)) != nil {
		return
	}
	out := w
	if answer.CutAfter > 0 {
		out = &cutWriter{ResponseWriter: w, left: answer.CutAfter}
	}
	switch {
	case answer.recorded != nil:
		play(r.Context(), out, *answer.recorded, time.Duration(answer.Pace))
	case answer.Error == model.Transport:
		panic(http.ErrAbortHandler) // closes the connection without a response
	case answer.Error != "":
		f.fail(out, answer.Error, time.Duration(answer.RetryAfter))
	case q.stream:
		stream(r.Context(), out, f, answer, q)
	default:
		writeJSON(out, http.StatusOK, f.whole(answer, q))
	}
	if cut, ok := out.(*cutWriter); ok {
		cut.abort() // the body was shorter than CutAfter
	}
}

// settings returns the body of a request without its messages and tools.
func settings(body []byte) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // the body was decoded before
	for _, said := range []string{"messages", "input", "contents", "system", "systemInstruction", "instructions", "tools"} {
		delete(fields, said)
	}
	return encode(fields)
}

func stream(ctx context.Context, w http.ResponseWriter, f format, r reply, q query) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	body, end := f.events(r, q)
	if !r.Cut {
		body = append(body, end...)
	}
	for i, e := range body {
		if i > 0 && pause(ctx, time.Duration(r.Pace)) != nil {
			return
		}
		// One Write per event: some clients lose an event that arrives in two pieces.
		if _, err := io.WriteString(w, e.encode()); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}

func (e event) encode() string {
	data, ok := e.data.(string)
	if !ok {
		data = encode(e.data)
	}
	if e.name == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + e.name + "\ndata: " + data + "\n\n"
}

// encode returns JSON without escaping HTML, as the providers do. v must be of maps, slices, strings and numbers only,
// which always encode.
func encode(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) //nolint:errchkjson // the client may be gone
	return strings.TrimSuffix(b.String(), "\n")
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, encode(v))
}

// setRetryAfter sets the headers with a delay as the providers do: in whole seconds, and in milliseconds.
func setRetryAfter(h http.Header, d time.Duration) {
	if d > 0 {
		h.Set("Retry-After", fmt.Sprint(int64((d+time.Second-1)/time.Second)))
		h.Set("Retry-After-Ms", fmt.Sprint(d.Milliseconds()))
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cutWriter breaks the connection after left bytes.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(b []byte) (int, error) {
	if int64(len(b)) < w.left {
		w.left -= int64(len(b))
		return w.ResponseWriter.Write(b)
	}
	_, _ = w.ResponseWriter.Write(b[:w.left])
	w.abort()
	return 0, errors.New("cut")
}

// abort flushes what was written and closes the connection: net/http does that for a handler that panics with this
// value.
func (w *cutWriter) abort() {
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// hashKey returns a key of a conversation from its beginning.
func hashKey(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = io.WriteString(h, p+"\x00")
	}
	return fmt.Sprintf("%x", h.Sum64())
}

// content is the content of a message: a string, or parts.
type content struct {
	text string
}

// UnmarshalJSON decodes the content of a message in any format.
func (c *content) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		return nil // the result of a provider's tool
	}
	if string(b) == "null" || json.Unmarshal(b, &c.text) == nil {
		return nil
	}
	var parts []struct {
		Type    string          `json:"type"`
		Text    string          `json:"text"`
		Name    string          `json:"name"`
		Input   json.RawMessage `json:"input"`
		Content *content        `json:"content"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return errors.New("content is neither a text nor a list of parts: send one of them")
	}
	var texts []string
	for _, p := range parts {
		switch {
		case p.Type == "tool_use":
			texts = append(texts, p.Name+string(p.Input))
		case p.Content != nil:
			texts = append(texts, p.Content.text)
		case p.Text != "":
			texts = append(texts, p.Text)
		}
	}
	c.text = strings.Join(texts, "\n")
	return nil
}
