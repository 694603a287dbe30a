package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/sse"
)

// traffic checks API responses against the OpenAPI document: the status and the media type must be documented, and
// JSON must match its schema and have no member that the schema does not name.
type traffic struct {
	mux     *http.ServeMux                          // finds the route of a request
	answers map[string]map[string]map[string]schema // by pattern, status and media type
}

// schema compiles a schema at its first use.
type schema func() (*jsonschema.Resolved, error)

// documented returns the traffic check for the document that gateways serve.
var documented = sync.OnceValues(func() (*traffic, error) {
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema json.RawMessage `json:"schema"`
				} `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	local := strings.ReplaceAll(string(gateway.OpenAPIDocument), `"#/components/schemas/`, `"#/$defs/`)
	if err := json.Unmarshal([]byte(local), &doc); err != nil {
		return nil, err
	}
	t := &traffic{http.NewServeMux(), map[string]map[string]map[string]schema{}}
	for path, operations := range doc.Paths {
		for method, o := range operations {
			pattern := strings.ToUpper(method) + " " + path
			t.mux.Handle(pattern, http.NotFoundHandler())
			t.answers[pattern] = map[string]map[string]schema{}
			for status, r := range o.Responses {
				t.answers[pattern][status] = map[string]schema{}
				for kind, c := range r.Content {
					t.answers[pattern][status][kind] = sync.OnceValues(func() (*jsonschema.Resolved, error) {
						return compile(c.Schema, doc.Components.Schemas)
					})
				}
			}
		}
	}
	return t, nil
})

var reference = regexp.MustCompile(`"#/\$defs/([^"]+)"`)

// compile compiles a schema with the definitions it refers to. Compiling the whole document took twelve seconds
// per test process with the race detector.
func compile(text json.RawMessage, all map[string]json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	s.Defs = map[string]*jsonschema.Schema{}
	for texts := []json.RawMessage{text}; len(texts) > 0; texts = texts[1:] {
		for _, match := range reference.FindAllSubmatch(texts[0], -1) {
			name := string(match[1])
			if s.Defs[name] != nil {
				continue
			}
			var def jsonschema.Schema
			if err := json.Unmarshal(all[name], &def); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			s.Defs[name] = &def
			texts = append(texts, all[name])
		}
	}
	closeObjects(&s)
	for _, def := range s.Defs {
		for _, part := range def.AllOf { // the other parts name further members
			if name, ok := strings.CutPrefix(part.Ref, "#/$defs/"); ok {
				s.Defs[name].AdditionalProperties = nil
			}
		}
	}
	return s.Resolve(nil)
}

// closeObjects makes every object schema that names its members refuse others.
func closeObjects(s *jsonschema.Schema) {
	if len(s.Properties) > 0 && s.AdditionalProperties == nil && len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) == 0 {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, m := range []map[string]*jsonschema.Schema{s.Properties, s.Defs, s.PatternProperties} {
		for _, sub := range m {
			closeObjects(sub)
		}
	}
	for _, sub := range append([]*jsonschema.Schema{s.Items}, append(s.AnyOf, s.OneOf...)...) {
		if sub != nil {
			closeObjects(sub)
		}
	}
}

// bodiless are the responses that may have no body although the document has schemas for them.
var bodiless = map[string]bool{
	"POST /v1/hooks/{name} 200":          true, // to Slack
	"POST /v1/hooks/{tenant}/{name} 200": true,
}

// check returns an error if a response does not match the document.
func (t *traffic) check(req *http.Request, resp *http.Response, body []byte) error {
	_, pattern := t.mux.Handler(req)
	answers := t.answers[pattern]
	if answers == nil {
		return nil // not a route of the API
	}
	status := resp.StatusCode
	documented, listed := answers[strconv.Itoa(status)]
	if !listed {
		if documented, listed = answers["default"]; !listed || status < 400 {
			return fmt.Errorf("%s returned %d, which the OpenAPI document does not list", pattern, status)
		}
	}
	wrong := func(err error) error { return fmt.Errorf("%s, status %d: %w\n%.2000s", pattern, status, err, body) }
	if len(body) == 0 {
		stream := documented["text/event-stream"] != nil // its reader may have left before the first event
		if len(documented) > 0 && !stream && !bodiless[fmt.Sprint(pattern, " ", status)] {
			return wrong(errors.New("no body, for which the OpenAPI document has a schema"))
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return wrong(err)
	}
	compiled := documented[kind]
	if compiled == nil {
		if compiled = documented["*/*"]; compiled == nil {
			return wrong(fmt.Errorf("a body of type %s, which the OpenAPI document does not list", kind))
		}
	}
	values := [][]byte{body}
	switch {
	case kind == "text/event-stream":
		values = nil
		for in := sse.NewReader(bytes.NewReader(body)); ; {
			e, err := in.Next()
			if err != nil {
				break // a reader may close the stream inside an event
			}
			values = append(values, e.Data)
		}
	case !strings.HasSuffix(kind, "json"):
		return nil
	}
	schema, err := compiled()
	if err != nil {
		return wrong(err)
	}
	for _, text := range values {
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			return wrong(err)
		}
		if err := schema.Validate(v); err != nil {
			return wrong(fmt.Errorf("the body does not match the OpenAPI document: %w", err))
		}
	}
	return nil
}

// witness is the transport of the HTTP clients of all tests. It checks every response that a test reads to its end,
// and every event of a stream.
type witness struct {
	*http.Transport

	mu     sync.Mutex
	faults []error
}

func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.Transport.RoundTrip(req)
	if err == nil && req.Method != http.MethodHead && resp.Header.Get("X-Frame-Options") != "" { // of a gateway, not of a fake
		stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
		resp.Body = &witnessed{ReadCloser: resp.Body, stream: stream, done: func(body []byte) { w.check(req, resp, body) }}
	}
	return resp, err
}

func (w *witness) check(req *http.Request, resp *http.Response, body []byte) {
	described, err := documented()
	if err == nil {
		err = described.check(req, resp, body)
	}
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faults = append(w.faults, err)
	}
}

// witnessed calls done with the whole body. At Close, it reads the rest of a body, but not of a stream.
type witnessed struct {
	io.ReadCloser

	stream bool
	seen   bytes.Buffer
	done   func([]byte)
}

func (b *witnessed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.seen.Write(p[:n])
	if errors.Is(err, io.EOF) {
		b.finish()
	}
	return n, err
}

func (b *witnessed) Close() error {
	if b.stream {
		b.finish()
	} else if b.done != nil {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{b})
	}
	return b.ReadCloser.Close()
}

func (b *witnessed) finish() {
	if b.done != nil {
		b.done(b.seen.Bytes())
		b.done = nil
	}
}

// TestMain fails the tests if a response of a gateway does not match the OpenAPI document.
func TestMain(m *testing.M) {
	w := &witness{Transport: http.DefaultTransport.(*http.Transport)}
	http.DefaultTransport = w
	code := m.Run()
	for _, err := range w.faults {
		fmt.Println("--- FAIL:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
