package httptool_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/tool/httptool"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func caller(t *testing.T, allow ...string) *httptool.Caller {
	t.Helper()
	g, err := guard.New(allow)
	if err != nil {
		t.Fatal(err)
	}
	return httptool.New(g)
}

func secrets(name, _ string) (string, error) {
	if name == "KEY" {
		return "s3cr&t", nil
	}
	return "", fmt.Errorf("secret %s does not exist", name)
}

// echo returns the request it received.
func echo(t *testing.T) (address string, handler *http.ServeMux) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s key=%s body=%s", r.Method, r.URL.RequestURI(), r.Header.Get("Idempotency-Key"), b)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), mux
}

func TestRequests(t *testing.T) {
	t.Parallel()
	at, _ := echo(t)
	c := caller(t, at)
	for name, tt := range map[string]struct {
		r    httptool.Request
		args string
		want string
	}{
		"rest of a GET": {httptool.Request{URL: "http://" + at + "/v1"}, `{"city":"São Paulo","n":12345678901234567890}`, "GET /v1?city=S%C3%A3o+Paulo&n=12345678901234567890 key=k1 body="},
		"path and query": {httptool.Request{URL: "http://" + at + "/v1/{city}?u={unit}", Query: map[string]string{"x": "a{n}b"}}, `{"city":"a/b?c","unit":"a&b","n":3}`,
			"GET /v1/a%2Fb%3Fc?u=a%26b&x=a3b key=k1 body="},
		"query without a path": {httptool.Request{URL: "http://" + at + "?q={city}"}, `{"city":"@b.example/c"}`, "GET /?q=%40b.example%2Fc key=k1 body="},
		"body":                 {httptool.Request{URL: "http://" + at + "/{id}", Method: "POST"}, `{"id":7,"deep":{"a":[1,2]}}`, `POST /7 key=k1 body={"deep":{"a":[1,2]}}`},
	} {
		got, err := c.Tool(tt.r, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(tt.args), IdempotencyKey: "k1"})
		if err != nil || got.IsError || got.Content != tt.want {
			t.Errorf("%s = %+v, %v; want %s", name, got, err, tt.want)
		}
	}
}

// Secrets are sent where the template says, never where an argument says, and never reach the model.
func TestSecrets(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	mux.HandleFunc("/auth", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "%s is no key; %s", r.Header.Get("Authorization"), r.URL.RawQuery)
	})
	r := httptool.Request{URL: "http://" + at + "/auth", Query: map[string]string{"k": "secret://KEY", "q": "{q}"}, Headers: map[string]string{"Authorization": "Bearer secret://KEY"}}
	got, err := caller(t, at).Tool(r, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"q":"secret://KEY"}`)})
	if err != nil || !got.IsError || strings.Contains(got.Content, "s3cr") || !strings.Contains(got.Content, "Bearer [redacted] is no key; k=[redacted]&q=secret%3A%2F%2FKEY") {
		t.Errorf("Call = %+v, %v", got, err)
	}
	inURL := httptool.Request{URL: "http://" + at + "/auth?k=secret://KEY&q={q}"}
	got, err = caller(t, at).Tool(inURL, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"q":"secret://KEY"}`)})
	if err != nil || !strings.Contains(got.Content, "; k=[redacted]&q=secret%3A%2F%2FKEY") {
		t.Errorf("a secret in the URL: %+v, %v", got, err)
	}
	r.Headers = map[string]string{"X-Key": "secret://OTHER"}
	if got, _ := caller(t, at).Tool(r, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"q":"x"}`)}); !strings.Contains(got.Content, "secret OTHER does not exist") {
		t.Errorf("Call = %+v", got)
	}
	// A secret in the URL does not appear in the error of an unreachable server.
	r = httptool.Request{URL: "http://127.0.0.1:1/", Query: map[string]string{"k": "secret://KEY"}}
	if got, _ := caller(t, "127.0.0.1:1").Tool(r, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`)}); !got.IsError || strings.Contains(got.Content, "s3cr") {
		t.Errorf("Call = %+v", got)
	}
}

// An invalid response becomes an error result that describes it (A7).
func TestAnswers(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	mux.HandleFunc("/teapot", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); fmt.Fprint(w, "short and stout") })
	mux.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff, 0xfe, 0}) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
	})
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := caller(t, at)
	for path, want := range map[string]string{
		"/teapot": "answered 418 I'm a teapot: short and stout", "/binary": "is not UTF-8 text", "/away": "redirects are not followed",
		"/{p}": "cannot be part of a URL path", "/{missing}": `the argument "missing" is missing`,
	} {
		got, err := c.Tool(httptool.Request{URL: "http://" + at + path}, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"p":".."}`)})
		if err != nil || !got.IsError || !strings.Contains(got.Content, want) {
			t.Errorf("%s = %+v, %v; want %q", path, got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Tool(httptool.Request{URL: "http://" + at + "/hang"}, secrets).Call(ctx, tool.Call{Arguments: json.RawMessage(`{}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Call with a context that has ended = %v", err)
	}
}

// A response is read up to a maximum size, also if it is compressed, and up to the call's time limit, however
// slow it is.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	const part = 1 << 20
	endless := func(w io.Writer) {
		for text := strings.Repeat("x", part); ; {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) { endless(w) })
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		endless(gzip.NewWriter(w))
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", part)) })
	begun := make(chan struct{}, 1)
	mux.HandleFunc("/drip", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a beginning")
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	})
	c := caller(t, at)
	try := func(ctx context.Context, path string) (tool.Result, error) {
		return c.Tool(httptool.Request{URL: "http://" + at + path}, secrets).Call(ctx, tool.Call{Arguments: json.RawMessage(`{}`)})
	}
	for _, path := range []string{"/endless", "/bomb"} {
		if got, err := try(t.Context(), path); err != nil || got.IsError || len(got.Content) < 4*part || len(got.Content) > 4*part+200 {
			t.Errorf("%s = %d bytes, %v, %v", path, len(got.Content), got.IsError, err)
		}
	}
	if got, err := try(t.Context(), "/headers"); err != nil || !got.IsError {
		t.Errorf("/headers = %d bytes, %v, %v", len(got.Content), got.IsError, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if got, err := try(ctx, "/drip"); !errors.Is(err, context.Canceled) {
		t.Errorf("/drip = %+v, %v", got, err)
	}
}

// Plain HTTP requires the worker's permission, by host or by network.
func TestPlain(t *testing.T) {
	t.Parallel()
	at, _ := echo(t)
	for _, target := range []string{"http://example.com", "http://" + at} {
		got, _ := caller(t).Tool(httptool.Request{URL: target}, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`)})
		if !got.IsError || !strings.Contains(got.Content, "without TLS") {
			t.Errorf("%s = %+v", target, got)
		}
	}
	for _, allow := range []string{at, "127.0.0.0/8"} {
		got, err := caller(t, allow).Tool(httptool.Request{URL: "http://" + at + "/x"}, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`)})
		if err != nil || got.IsError {
			t.Errorf("allow %s: %+v, %v", allow, got, err)
		}
	}
	if _, err := guard.New([]string{"everything"}); err == nil {
		t.Error("a guard accepts a word as an address")
	}
}

// A picture becomes a result that models can view.
func TestPicture(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	mux.HandleFunc("/chart", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write([]byte{0x89, 'P', 'N', 'G'})
	})
	got, err := caller(t, at).Tool(httptool.Request{URL: "http://" + at + "/chart"}, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`)})
	if err != nil || got.IsError || len(got.Images) != 1 || got.Images[0] != (state.Image{MediaType: "image/png", Data: "iVBORw=="}) {
		t.Errorf("Call = %+v, %v", got, err)
	}
}

// A PDF becomes a file that models can read. Its name contains no part of an address that may be secret.
func TestDocument(t *testing.T) {
	t.Parallel()
	at, mux := echo(t)
	mux.HandleFunc("/secret/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = w.Write([]byte("%PDF\xff"))
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = w.Write(make([]byte, tool.MaxFileBytes+1))
	})
	call := func(path string, grow func(int64) bool) tool.Result {
		got, err := caller(t, at).Tool(httptool.Request{URL: "http://" + at + path}, secrets).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`), Grow: grow})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := call("/secret/invoice.pdf", nil)
	if want := tool.File("file.pdf", "application/pdf", []byte("%PDF\xff")); got.IsError || len(got.Files) != 1 || got.Files[0].Data != want.Data || got.Files[0].Name != want.Name {
		t.Errorf("Call = %+v", got)
	}
	for _, path := range []string{"/secret/a.k3yk3y", "/secret/a.k-y", "/secret/a", "/secret/a."} {
		if got := call(path, nil); len(got.Files) != 1 || got.Files[0].Name != tool.File("", "application/pdf", nil).Name {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := call("/large", nil); !got.IsError || !strings.Contains(got.Content, "a file of more than 8388608 bytes, the maximum: request a smaller file") {
		t.Errorf("Call = %.200q", got.Content)
	}
	if got := call("/secret/invoice.pdf", func(int64) bool { return false }); !got.IsError || !strings.Contains(got.Content, "no memory for it now") {
		t.Errorf("Call without memory = %.200q", got.Content)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, r := range []httptool.Request{
		{URL: "ftp://x/"}, {URL: "https:///x"}, {URL: "https://user:pw@x/"}, {URL: "https://{host}/x"}, {URL: "{scheme}://x/"}, {URL: "https://x.{tld}"},
		{URL: "https://x/", Method: "BREW"}, {URL: "https://x/", Headers: map[string]string{"Host": "y"}}, {URL: "https://x/", Headers: map[string]string{"A b": "y"}},
		{URL: "https://x/secret://KEY"},
	} {
		if err := r.Check(); err == nil {
			t.Errorf("Check admits %+v", r)
		}
	}
	for url, want := range map[string]string{
		"https://{host}/x": "an argument before the path", "https://x:{port}": "an argument before the path", "https://{host}?q=1": "an argument before the path",
		"x.example/{id}": "not an http or https URL", "https://x/%zz": "not an http or https URL", "https://u@x/": "a user or password", "https://x/#{a}": "a fragment", "https://x/secret://KEY?q=1": "a secret before the ?",
		"https://x?q={a}&k=secret://KEY": "", "https://x/?at=https://{a}": "",
	} {
		if err := (httptool.Request{URL: url}).Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Check of %s = %v, want %q", url, err, want)
		}
	}
	ok := httptool.Request{URL: "https://x/{a}?q={b}", Method: "POST", Query: map[string]string{"k": "{c}"}, Headers: map[string]string{"X-Y": "{a} secret://KEY"}}
	if err := ok.Check(); err != nil || fmt.Sprint(ok.Arguments()) != "[a b c]" {
		t.Errorf("Check = %v, arguments %v", err, ok.Arguments())
	}
}
