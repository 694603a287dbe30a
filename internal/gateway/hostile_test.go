package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// brokenStore panics in List, and its agent "large" has 64 MiB.
type brokenStore struct{ state.Store }

func (brokenStore) List(context.Context, state.Filter) (state.RunPage, error) { panic("a mistake") }

func (s brokenStore) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	if name != "large" {
		return s.Store.Agent(ctx, tenant, name, version)
	}
	return state.AgentVersion{Name: "large", Version: 1, Definition: json.RawMessage(`"` + strings.Repeat("x", 64<<20) + `"`)}, nil
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func hostileServer(t *testing.T, cfg gateway.Config) *httptest.Server {
	t.Helper()
	g, err := gateway.New(brokenStore{memstore.New(memstore.Config{})}, membus.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler())
	t.Cleanup(s.Close)
	return s
}

func ask(t *testing.T, method, url, body string, header http.Header) (answer, string, api.Problem) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p api.Problem
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatal(err)
		}
	}
	return answer{resp.StatusCode, resp.Header}, string(text), p
}

// answer is the head of a response.
type answer struct {
	StatusCode int
	Header     http.Header
}

// A panic becomes a response with a request id, and the log has the same id.
func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	log := &syncBuffer{}
	s := hostileServer(t, gateway.Config{Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	resp, _, p := ask(t, http.MethodGet, s.URL+"/v1/runs", "", http.Header{"X-Request-Id": {"mine-1"}})
	if resp.StatusCode != http.StatusInternalServerError || p.Code != api.CodeInternal || p.RequestID != "mine-1" {
		t.Errorf("a panic returned %d %+v", resp.StatusCode, p)
	}
	if !strings.Contains(log.String(), `"request_id":"mine-1"`) || !strings.Contains(log.String(), "a mistake") || !strings.Contains(log.String(), "hostile_test.go") {
		t.Errorf("the log says %s", log)
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{})
	seen := map[string]bool{}
	for _, given := range []string{"", "", "ok_1.2-3", strings.Repeat("a", 64), strings.Repeat("a", 65), "a b", "a\tb", "ä"} {
		h := http.Header{}
		if given != "" {
			h.Set("X-Request-Id", given)
		}
		resp, _, p := ask(t, http.MethodGet, s.URL+"/v1/runs/none", "", h)
		id := resp.Header.Get("X-Request-Id")
		taken := len(given) > 0 && len(given) <= 64 && !strings.ContainsAny(given, " \tä")
		if id == "" || p.RequestID != id || (id == given) != taken || seen[id] {
			t.Errorf("the id %q became %q in the header and %q in the problem", given, id, p.RequestID)
		}
		seen[id] = true
	}
	for _, path := range []string{"/ui/", "/healthz", "/metrics", "/openapi.json"} {
		resp, _, _ := ask(t, http.MethodGet, s.URL+path, "", nil)
		for _, name := range []string{"X-Request-Id", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Content-Security-Policy"} {
			if resp.Header.Get(name) == "" {
				t.Errorf("GET %s has no %s", path, name)
			}
		}
	}
}

// Caller input in a response is shortened, wherever it was in the request.
func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{})
	long := strings.Repeat("k", 30_000)
	for _, c := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/runs/" + long, ""},
		{http.MethodGet, "/v1/runs?status=" + long, ""},
		{http.MethodGet, "/v1/runs?" + long + "=1", ""},
		{http.MethodGet, "/v1/runs?agent=a&created_after=" + long, ""},
		{http.MethodGet, "/v1/runs?%zz" + long, ""},
		{http.MethodGet, "/v1/runs?parent=" + long, ""},
		{http.MethodGet, "/v1/runs?batch=" + long, ""},
		{http.MethodGet, "/v1/batches/" + long, ""},
		{http.MethodGet, "/v1/dead/" + long, ""},
		{http.MethodGet, "/v1/agents/a?version=" + long, ""},
		{http.MethodGet, "/ui/" + long, ""},
		{http.MethodGet, "/" + long, ""},
		{http.MethodPost, "/v1/runs?wait=" + long, "{}"},
		{http.MethodPost, "/v1/runs", `{"` + long + `":1}`},
		{http.MethodPost, "/v1/runs", `{"limits":{"` + long + `":1}}`},
		{http.MethodPost, "/v1/runs", `{"input":"x","agent":"` + long + `"}`},
		{http.MethodPost, "/v1/runs", `{"input":"x","agent":"a","priority":"` + long + `"}`},
		{http.MethodPost, "/v1/runs", `{"agent":"a","input":[{"role":"` + long + `","content":"x"}]}`},
		{http.MethodPost, "/v1/runs", `{"agent":"a","input":[{"parts":[{"type":"` + long + `"}]}]}`},
		{http.MethodPost, "/v1/runs", `{"agent":"a","input":"x","limits":{"deadline":"` + long + `"}}`},
		{http.MethodPut, "/v1/agents/" + long, `{}`},
		{http.MethodPut, "/v1/agents/a", `{"name":"` + long + `"}`},
		{http.MethodPut, "/v1/agents/a", `{"` + long + `":1}`},
		{http.MethodPut, "/v1/agents/a", `name: ` + long},
		{http.MethodPut, "/v1/agents/a", `{"model":{"provider":"` + long + `"}}`},
	} {
		resp, text, _ := ask(t, c.method, s.URL+c.path, c.body, nil)
		if resp.StatusCode < 400 || resp.StatusCode >= 500 || len(text) > 2500 || strings.Count(text, "k") > 1000 {
			t.Errorf("%s %.60s %.60s returned %d with %d bytes: %.300s", c.method, c.path, c.body, resp.StatusCode, len(text), text)
		}
	}
}

// A problem is at most 4 KB of JSON, however many errors a definition has and however much its text must be
// escaped.
func TestProblemsOfManyMistakes(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{})
	tools := func(n int, name string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"name":%q,"knd":%d}`, name, i)
		}
		return `{"name":"a","tools":[` + strings.Join(all, ",") + `]}`
	}
	merges := "name: a\nmodel: &m {provider: scripted}\n"
	for i := range 9_000 {
		merges += fmt.Sprintf("k%d: {<<: *m}\n", i)
	}
	for name, body := range map[string]string{
		"merge keys": merges, "tools": tools(900, "x"), "escapes": tools(20, strings.Repeat("<", 400)),
	} {
		resp, text, p := ask(t, http.MethodPut, s.URL+"/v1/agents/a", body, nil)
		if resp.StatusCode != http.StatusBadRequest || len(text) > 4<<10 || !utf8.ValidString(text) || p.Detail == "" {
			t.Errorf("%s: status %d with %d bytes: %.200s", name, resp.StatusCode, len(text), text)
		}
		if n := len(p.Errors); name == "tools" && (n < 5 || !strings.HasSuffix(p.Errors[n-1].Detail, " more: correct these first")) {
			t.Errorf("%s: %d errors, the last is %+v", name, n, p.Errors[n-1])
		}
	}
}

func TestOddRequests(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{})
	for path, want := range map[string]string{
		"/v1/runs?agent=":            "empty",
		"/v1/runs?loop=":             "empty",
		"/v1/runs?loop=none":         "react",
		"/v1/runs?metadata.=x":       "has no key",
		"/ui/none.js":                "/ui/",
		"/ui/%2e%2e/openapi.json":    "there is no path",
		"/ui/..%5c..%5copenapi.json": "there is no path",
		"/ui/%00":                    "there is no path",
	} {
		resp, text, p := ask(t, http.MethodGet, s.URL+path, "", nil)
		if resp.StatusCode < 400 || resp.StatusCode >= 500 || !strings.Contains(p.Detail, want) {
			t.Errorf("GET %s returned %d %s, want %q", path, resp.StatusCode, text, want)
		}
	}
	resp, _, p := ask(t, http.MethodGet, s.URL+"/v1/agents", "", http.Header{"X-Large": {strings.Repeat("x", 100_000)}})
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || p.Code != api.CodeHeadersTooLarge {
		t.Errorf("a header of 100 kB got %d %+v", resp.StatusCode, p)
	}
}

// A reader that does not read is disconnected, and its pending output does not stay in memory.
func TestReaderThatTakesNothing(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{WriteTimeout: 200 * time.Millisecond})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was only read
	if _, err := fmt.Fprintf(conn, "GET /v1/agents/large HTTP/1.1\r\nHost: %s\r\n\r\n", s.Listener.Addr()); err != nil {
		t.Fatal(err)
	}
	s.Close() // returns when no request is in flight
	n, err := io.Copy(io.Discard, conn)
	if n > 60<<20 {
		t.Errorf("%d bytes arrived, %v: want the connection closed earlier", n, err)
	}
}
