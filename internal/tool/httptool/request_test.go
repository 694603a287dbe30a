package httptool_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/tool/httptool"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// The headers of a template take precedence over those that the worker adds.
func TestOwnHeaders(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Idempotency-Key"), " ", r.Header.Get("User-Agent"), " ", r.Header.Get("Traceparent"), " ", r.Header.Get("Content-Type"))
	})
	call := tool.Call{Arguments: json.RawMessage(`{}`), IdempotencyKey: "k1", TraceParent: "00-1"}
	for want, headers := range map[string]map[string]string{
		"k1 turnpike 00-1 application/json": nil,
		"k2 mine 00-2 text/plain":           {"idempotency-key": "k2", "user-agent": "mine", "traceparent": "00-2", "content-type": "text/plain"},
	} {
		r := httptool.Request{URL: "http://" + at + "/headers", Method: "POST", Headers: headers}
		if got, err := caller(t, at).Tool(r, secrets).Call(t.Context(), call); err != nil || got.Content != want {
			t.Errorf("the server gets %q, %v; want %q", got.Content, err, want)
		}
	}
}

// An argument cannot lead to another path than the template's.
func TestArgumentsStayInThePath(t *testing.T) {
	t.Parallel()
	at, _ := echo(t)
	r := httptool.Request{URL: "http://" + at + "/users/{id}/orders"}
	for id, refused := range map[string]bool{".": true, "..": true, "...": false, "../x": false, "a": false, "": true} {
		args, err := json.Marshal(map[string]string{"id": id})
		if err != nil {
			t.Fatal(err)
		}
		got, err := caller(t, at).Tool(r, secrets).Call(t.Context(), tool.Call{Arguments: args})
		if err != nil || got.IsError != refused || refused && !strings.Contains(got.Content, ": pass ") || !refused && !strings.HasPrefix(got.Content, "GET /users/") {
			t.Errorf("id %q: %+v, %v; want it refused: %t", id, got, err, refused)
		}
	}
}

// A response that is cut within a secret ends before that secret, however often the response repeats it.
func TestSecretsAcrossTheLimit(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	mux.HandleFunc("/repeat", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat("é", 20), strings.Repeat(r.Header.Get("X-Key"), 100))
	})
	r := httptool.Request{URL: "http://" + at + "/repeat", Headers: map[string]string{"X-Key": "secret://KEY"}}
	for limit, want := range map[int]string{
		39: strings.Repeat("é", 19), 40: strings.Repeat("é", 20), 41: strings.Repeat("é", 20), 239: strings.Repeat("é", 20) + "[redacted]",
		1000: strings.Repeat("é", 20) + strings.Repeat("[redacted]", 9),
	} {
		got, err := caller(t, at).Tool(r, func(string, string) (string, error) { return strings.Repeat("s3cr&t0123", 10), nil }).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`), MaxResult: limit})
		if err != nil || got.IsError || got.Content != want || got.Bytes != 10_040 {
			t.Errorf("limit %d: %q of %d bytes, %v; want %q", limit, got.Content, got.Bytes, err, want)
		}
	}
}

// Content of exactly its limit is whole. Only content of a success is an image or a file, and these take memory by their
// size.
func TestContentAtItsLimit(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	image := base64.StdEncoding.DecodedLen(tool.MaxImageBytes)
	for name, test := range map[string]struct {
		kind         string
		status, size int
		grown        int64
		full         bool
		want         string // the content, or the parts
	}{
		"text":                    {kind: "text/plain", status: 200, size: 100, want: strings.Repeat("s", 100)},
		"image":                   {kind: "image/png", status: 200, size: image, grown: 2 * tool.MaxImageBytes, want: "1 images, 0 files"},
		"large image":             {kind: "image/png", status: 200, size: image + 1, grown: 2 * tool.MaxImageBytes, want: "an image of more than"},
		"image without memory":    {kind: "image/png", status: 200, size: 1, grown: 2 * tool.MaxImageBytes, full: true, want: "no memory for it now"},
		"image of an error":       {kind: "image/png", status: 404, size: 1, want: "answered 404 Not Found: s"},
		"file":                    {kind: "application/pdf", status: 200, size: tool.MaxFileBytes, grown: 4 * tool.MaxFileBytes, want: "0 images, 1 files"},
		"small file":              {kind: "audio/wav", status: 200, size: 10, grown: 40, want: "0 images, 1 files"},
		"file of an error":        {kind: "application/pdf", status: 500, size: 1, want: "answered 500 Internal Server Error: s"},
		"text of a failed server": {kind: "text/plain", status: 500, size: 100, want: strings.Repeat("s", 100)},
	} {
		path := "/" + strings.ReplaceAll(name, " ", "-")
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.kind)
			w.Header().Set("Content-Length", strconv.Itoa(test.size))
			w.WriteHeader(test.status)
			_, _ = w.Write(bytes.Repeat([]byte("s"), test.size)) // also the beginning of the secret
		})
		r := httptool.Request{URL: "http://" + at + path, Headers: map[string]string{"X-Key": "secret://KEY"}}
		var grown int64
		got, err := caller(t, at).Tool(r, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`), MaxResult: 100, Grow: func(n int64) bool { grown += n; return !test.full }})
		text := got.Content
		if n := len(got.Images) + len(got.Files); n > 0 {
			text += fmt.Sprintf("%d images, %d files", len(got.Images), len(got.Files))
		}
		if err != nil || !strings.Contains(text, test.want) || grown != test.grown || got.Bytes != 0 {
			t.Errorf("%s: %.200q, of %d bytes, with %d bytes of memory, %v; want %q with %d", name, text, got.Bytes, grown, err, test.want, test.grown)
		}
	}
}

// A secret that a server sends back as an image or a file, or in their type, does not reach the history.
func TestSecretsInContent(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	for path, kind := range map[string]string{"/image": "image/png", "/file": "application/pdf", "/audio": "audio/s3cr&t"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, r.Header.Get("X-Key"))
		})
		r := httptool.Request{URL: "http://" + at + path, Headers: map[string]string{"X-Key": "secret://KEY"}}
		got, err := caller(t, at).Tool(r, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`)})
		if err != nil || got.IsError || len(got.Images)+len(got.Files) != 1 {
			t.Fatalf("%s: %+v, %v", path, got, err)
		}
		var data, media string
		for _, i := range got.Images {
			data, media = i.Data, i.MediaType
		}
		for _, f := range got.Files {
			data, media = f.Data, f.MediaType
		}
		content, err := base64.StdEncoding.DecodeString(data)
		if err != nil || strings.Contains(string(content), "s3cr") || strings.Contains(media, "s3cr") {
			t.Errorf("%s: %q of type %q, %v", path, content, media, err)
		}
	}
}
