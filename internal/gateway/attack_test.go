//nolint:bodyclose // the bodies are closed with the connections of these tests
package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// served is a gateway on its own listener that requires keys.
type served struct {
	t    *testing.T
	addr string
	keys *access.Keys
}

func serveGuarded(t *testing.T, limits gateway.Limits) *served {
	t.Helper()
	store := memstore.New(memstore.Config{})
	keys := access.NewKeys(store)
	chain := access.Chain{Keys: keys}
	g, err := gateway.New(store, membus.New(), gateway.Config{Auth: chain, Login: access.NewLogin(store, access.LoginConfig{Keys: keys}), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &served{t, listener.Addr().String(), keys}
}

func (s *served) key(tenant string) string {
	s.t.Helper()
	text, _, err := s.keys.Create(s.t.Context(), access.KeySpec{Tenant: tenant, Roles: access.Roles()})
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// wire is a connection on which a test writes raw bytes.
type wire struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (s *served) dial() *wire {
	s.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return &wire{s.t, conn, bufio.NewReader(conn)}
}

// send writes the head of a request, with further headers as lines, and the start of its body.
func (c *wire) send(method, path, key, headers, body string) {
	c.t.Helper()
	if key != "" {
		headers += "Authorization: Bearer " + key + "\r\n"
	}
	if _, err := fmt.Fprintf(c.conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s", method, path, headers, body); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads the head of a response, and its problem if it has one. A 100 Continue counts as a response.
func (c *wire) answer() (*http.Response, api.Problem) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	var p api.Problem
	if resp.StatusCode >= http.StatusBadRequest {
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			c.t.Fatal(err)
		}
	}
	return resp, p
}

func (c *wire) wantProblem(what string, status int, code string) {
	c.t.Helper()
	resp, p := c.answer()
	if resp.StatusCode != status || p.Code != code || (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) != (resp.Header.Get("Retry-After") != "") {
		c.t.Errorf("%s: status %d %s (%s) with Retry-After %q, want %d %s", what, resp.StatusCode, p.Code, p.Detail, resp.Header.Get("Retry-After"), status, code)
	}
}

const (
	announced = "Content-Length: 100000\r\n"
	expecting = announced + "Expect: 100-continue\r\n"
)

// list requests a list of runs on its own connection.
func (s *served) list(key string) (*http.Response, api.Problem) {
	s.t.Helper()
	c := s.dial()
	c.send("GET", "/v1/runs", key, "Connection: close\r\n", "")
	return c.answer()
}

// hold makes the gateway wait for a body of 100,000 bytes.
func (s *served) hold(key string) *wire {
	s.t.Helper()
	c := s.dial()
	c.send("POST", "/v1/runs", key, expecting, "")
	if resp, p := c.answer(); resp.StatusCode != http.StatusContinue {
		s.t.Fatalf("a body was refused: %d %s", resp.StatusCode, p.Detail)
	}
	return c
}

// The gateway reserves memory for bodies before it reads them, in total and per tenant, on every route, and
// releases it.
func TestBodiesInFlight(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{BodyBytes: 700_000, TenantBodyBytes: 300_000})
	key := s.key("evil")
	held := s.hold(key)
	for _, path := range []string{
		"POST /v1/runs", "POST /v1/runs:batch", "POST /v1/runs:cancel", "POST /v1/drafts", "PUT /v1/agents/a", "PUT /v1/tenants/a", "POST /v1/keys",
		"POST /v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV/signals", "POST /v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV/fork", "GET /v1/runs",
	} {
		method, at, _ := strings.Cut(path, " ")
		c := s.dial()
		c.send(method, at, key, announced, "")
		c.wantProblem(path, http.StatusTooManyRequests, api.CodeTooManyBytes)
	}
	c := s.dial()
	c.send("POST", "/v1/runs", key, "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n", 60_000, strings.Repeat("x", 60_000)))
	c.wantProblem("chunks", http.StatusTooManyRequests, api.CodeTooManyBytes)
	// 100 KB of nested lists need more memory than 100 KB of text.
	lists := `{"agent":"none","input":[` + strings.Repeat("[],", 10_000) + `1]}`
	c = s.dial()
	c.send("POST", "/v1/runs", key, fmt.Sprintf("Content-Length: %d\r\n", len(lists)), lists)
	c.wantProblem("values", http.StatusTooManyRequests, api.CodeTooManyBytes)

	quiet := s.key("quiet")
	c = s.dial()
	c.send("POST", "/v1/runs", quiet, "Content-Length: 28\r\n", `{"agent":"none","input":"x"}`)
	c.wantProblem("another tenant", http.StatusNotFound, api.CodeAgentNotFound)
	s.hold(s.key("b"))
	s.hold(s.key("c"))
	c = s.dial()
	c.send("POST", "/v1/runs", s.key("d"), announced, "")
	c.wantProblem("beyond all", http.StatusServiceUnavailable, api.CodeOverloaded)

	_ = held.conn.Close()
	for {
		c := s.dial()
		c.send("POST", "/v1/runs", key, expecting, "")
		if resp, _ := c.answer(); resp.StatusCode == http.StatusContinue {
			break
		}
	}
}

// A submission that waits for the end of its run first releases the memory of its body.
func TestWaitsHoldNoBodies(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{BodyBytes: 700_000, TenantBodyBytes: 300_000})
	key := s.key("a")
	c := s.dial()
	definition := `{"model":{"provider":"scripted","responses":[{"text":"hi"}]}}`
	c.send("PUT", "/v1/agents/a", key, fmt.Sprintf("Content-Length: %d\r\n", len(definition)), definition)
	if resp, p := c.answer(); resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("put agent: %d %s", resp.StatusCode, p.Detail)
	}
	body := `{"agent":"a","input":"` + strings.Repeat("x", 90_000) + `"}`
	submit := func() *wire {
		w := s.dial()
		w.send("POST", "/v1/runs?wait=60s", key, fmt.Sprintf("Content-Length: %d\r\n", len(body)), body)
		return w
	}
	for n := 1; n <= 6; n++ {
		waiting, refusals := submit(), 0
		for runs := 0; runs < n; {
			_ = waiting.conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			if _, err := waiting.in.Peek(1); err == nil {
				// The previous run appears in the list a moment before its request releases the memory.
				resp, p := waiting.answer()
				if refusals++; p.Code != api.CodeTooManyBytes || refusals > 200 {
					t.Fatalf("submission %d got %d %s (%s), want it to wait", n, resp.StatusCode, p.Code, p.Detail)
				}
				waiting = submit()
			}
			resp, _ := s.list(key)
			var page api.Page[api.Run]
			if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
				t.Fatal(err)
			}
			runs = len(page.Items)
		}
	}
}

func TestBodyAboveTheLimitIsNotRead(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{})
	key := s.key("a")
	for path, size := range map[string]int{"/v1/runs": 1<<20 + 1, "/v1/runs:batch": 8<<20 + 1} {
		c := s.dial()
		c.send("POST", path, key, fmt.Sprintf("Content-Length: %d\r\n", size), "")
		c.wantProblem(path, http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge)
	}
}

// A caller without a key may send 1 KiB, on every route.
func TestBodiesOfStrangers(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{})
	for _, headers := range []string{"Content-Length: 1025\r\n", "Transfer-Encoding: chunked\r\n"} {
		c := s.dial()
		c.send("POST", "/v1/session", "", headers, "401\r\n"+strings.Repeat(" ", 1025)+"\r\n")
		c.wantProblem("session, "+headers, http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge)
		c = s.dial()
		c.send("POST", "/v1/runs", "", headers, "")
		c.wantProblem("runs, "+headers, http.StatusUnauthorized, api.CodeUnauthenticated)
		if _, err := c.in.ReadByte(); err == nil {
			t.Errorf("%s: the connection stays open for the rest of the body", headers)
		}
	}
	c := s.dial()
	c.send("POST", "/v1/session", "", "Content-Length: 14\r\n", `{"key":"none"}`)
	c.wantProblem("a small body", http.StatusUnauthorized, api.CodeUnauthenticated)
}

// A sender that stalls is disconnected, with and without a key. This takes five seconds.
func TestSlowSenders(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{})
	key := s.key("a")
	var slow []*wire
	for _, c := range []struct{ path, key, headers, body string }{
		{"/v1/session", "", "Content-Length: 1000\r\n", "{"},
		{"/v1/session", "", "Transfer-Encoding: chunked\r\n", "1\r\n{\r\n"},
		{"/v1/runs", key, announced, "{"},
		{"/v1/runs", key, "Transfer-Encoding: chunked\r\n", "1\r\n{\r\n"},
		{"/v1/runs:batch", key, announced, strings.Repeat(" ", 81_920) + "{"}, // fast at first
	} {
		one := s.dial()
		one.send("POST", c.path, c.key, c.headers, c.body)
		slow = append(slow, one)
	}
	for i, c := range slow {
		c.wantProblem(fmt.Sprint("sender ", i), http.StatusRequestTimeout, api.CodeBodyTooSlow)
		if _, err := c.in.ReadByte(); err == nil {
			t.Errorf("the connection of sender %d stays open", i)
		}
	}
}

func TestStreamsOfCallers(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{PrincipalStreams: 2, TenantStreams: 3})
	stream := func(key string) *wire {
		c := s.dial()
		c.send("GET", "/v1/events", key, "", "")
		return c
	}
	open := func(key string) *wire {
		t.Helper()
		c := stream(key)
		if resp, p := c.answer(); resp.StatusCode != http.StatusOK {
			t.Fatalf("a stream was refused: %d %s", resp.StatusCode, p.Detail)
		}
		return c
	}
	one, two := s.key("a"), s.key("a")
	first := open(one)
	open(one)
	stream(one).wantProblem("a third stream", http.StatusTooManyRequests, api.CodeTooManyStreams)
	open(two)
	stream(two).wantProblem("a fourth stream of the tenant", http.StatusTooManyRequests, api.CodeTooManyStreams)
	open(s.key("b"))
	_ = first.conn.Close()
	for {
		c := stream(one)
		if resp, _ := c.answer(); resp.StatusCode == http.StatusOK {
			break
		}
	}
}

func TestWaitsOfCallers(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{PrincipalWaits: 1})
	key := s.key("a")
	put := s.dial()
	put.send("PUT", "/v1/agents/a", key, fmt.Sprintf("Content-Length: %d\r\n", len(talker)), talker)
	if resp, p := put.answer(); resp.StatusCode != http.StatusCreated {
		t.Fatalf("an agent was refused: %d %s", resp.StatusCode, p.Detail)
	}
	submit := func(wait string) *wire {
		c := s.dial()
		c.send("POST", "/v1/runs?wait="+wait, key, "Content-Length: 25\r\n", `{"agent":"a","input":"x"}`)
		return c
	}
	submit("5m") // no worker runs it
	for {        // the run is stored while its request counts
		resp, _ := s.list(key)
		var page api.Page[api.Run]
		if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
			t.Fatal(err)
		}
		if len(page.Items) == 1 {
			break
		}
	}
	submit("5m").wantProblem("a second wait", http.StatusTooManyRequests, api.CodeTooManyWaits)
	c := s.dial()
	c.send("POST", "/v1/runs", key, "Content-Length: 25\r\n", `{"agent":"a","input":"x"}`)
	if resp, p := c.answer(); resp.StatusCode != http.StatusAccepted {
		t.Errorf("a submission that does not wait got %d %s", resp.StatusCode, p.Detail)
	}
}

func TestConnectionsOfCallers(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{PrincipalConnections: 2, TenantConnections: 3})
	connect := func(key string) *wire {
		c := s.dial()
		c.send("GET", "/v1/whoami", key, "", "")
		return c
	}
	open := func(key string) *wire {
		t.Helper()
		c := connect(key)
		resp, p := c.answer()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("a connection was refused: %d %s, %v", resp.StatusCode, p.Detail, err)
		}
		return c
	}
	one, two := s.key("a"), s.key("a")
	first := open(one)
	open(one)
	connect(one).wantProblem("a third connection", http.StatusTooManyRequests, api.CodeTooManyConnections)
	open(two)
	connect(two).wantProblem("a fourth connection of the tenant", http.StatusTooManyRequests, api.CodeTooManyConnections)
	first.send("GET", "/v1/whoami", one, "", "") // a counted connection still works
	if resp, p := first.answer(); resp.StatusCode != http.StatusOK {
		t.Errorf("the second request of a connection got %d %s", resp.StatusCode, p.Detail)
	}
	_ = first.conn.Close()
	for {
		c := connect(one)
		if resp, _ := c.answer(); resp.StatusCode == http.StatusOK {
			break
		}
	}
}

// Idle connections without a request are closed in favor of callers.
func TestConnectionsOfStrangers(t *testing.T) {
	t.Parallel()
	s := serveGuarded(t, gateway.Limits{Connections: 4})
	key := s.key("a")
	known := s.dial()
	known.send("GET", "/v1/whoami", key, "", "")
	resp, _ := known.answer()
	_, _ = io.Copy(io.Discard, resp.Body)
	var silent []*wire
	for range 6 {
		silent = append(silent, s.dial())
	}
	for i, c := range silent[:3] { // of six there is space for three
		if _, err := c.in.ReadByte(); err == nil {
			t.Errorf("silent connection %d got a response", i)
		}
	}
	for _, c := range []*wire{known, s.dial()} {
		c.send("GET", "/v1/whoami", key, "", "")
		if resp, p := c.answer(); resp.StatusCode != http.StatusOK {
			t.Errorf("a caller got %d %s", resp.StatusCode, p.Detail)
		}
	}
	if err := silent[5].conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := silent[5].in.ReadByte(); err == io.EOF { //nolint:errorlint // of the connection itself
		t.Error("the newest silent connection was closed")
	}
}

func TestMaxResultAboveTheLimit(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	token := s.key("a", access.Author)
	for size, want := range map[int]int{4 << 20: http.StatusCreated, 4<<20 + 1: http.StatusBadRequest, 100_000_000: http.StatusBadRequest} {
		body := fmt.Sprintf(`{"model":{"provider":"scripted","responses":[{"text":"x"}]},"tools":[{"name":"t","max_result":%d}]}`, size)
		status, p := s.do("PUT", fmt.Sprintf("/v1/agents/a%d", size), token, "", body)
		if status != want || want == http.StatusBadRequest && (len(p.Errors) != 1 || p.Errors[0].At != "tools[0].max_result") {
			t.Errorf("max_result %d: %d %+v, want %d", size, status, p, want)
		}
	}
}
