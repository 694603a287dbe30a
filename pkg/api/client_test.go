package api_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const id = "run_01JD3X9K3W8Q4V5N6M7P8R9S0T"

// rough is a gateway with one ended run of events 1 to total, whose streams break.
type rough struct {
	total int64

	// stream answers the n-th connection, from 1.
	stream func(n int64, w http.ResponseWriter, after int64)

	connections atomic.Int64
}

func event(seq int64) []byte {
	return fmt.Appendf(nil, `{"seq":%d,"run_id":%q,"type":"transition","turn":1,"attempt":1,"at":"2026-11-20T12:00:00Z"}`, seq, id)
}

func (g *rough) write(w http.ResponseWriter, from, to int64) {
	for seq := from; seq <= to; seq++ {
		_, _ = w.Write(sse.Append(nil, sse.Event{ID: strconv.FormatInt(seq, 10), Type: "transition", Data: event(seq)}))
	}
}

func (g *rough) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	switch {
	case r.URL.Path == "/v1/runs/"+id:
		_ = json.NewEncoder(w).Encode(api.Run{ID: id, Status: "completed"})
	case r.Header.Get("Accept") == "application/json":
		after, _ = strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		var items []json.RawMessage
		if after < g.total {
			items = append(items, event(after+1))
		}
		_ = json.NewEncoder(w).Encode(api.NewPage(items, ""))
	default:
		g.stream(g.connections.Add(1), w, after)
	}
}

func (g *rough) follow(t *testing.T, after int64) []int64 {
	t.Helper()
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var got []int64
	for e, err := range api.New(server.URL).Events(ctx, id, after) {
		if err != nil {
			t.Fatalf("Events: %v", err)
		}
		got = append(got, e.Seq)
	}
	return got
}

// A reader misses no event and gets none twice, however its connections end (I9).
func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	tests := map[string]func(g *rough) func(n int64, w http.ResponseWriter, after int64){
		"a clean end after each event": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(_ int64, w http.ResponseWriter, after int64) { g.write(w, after+1, min(after+1, g.total)) }
		},
		"an end before the first event": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(n int64, w http.ResponseWriter, after int64) {
				if n > 2 {
					g.write(w, after+1, g.total)
				}
			}
		},
		"broken within an event": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(n int64, w http.ResponseWriter, after int64) {
				if n > 1 {
					g.write(w, after+1, g.total)
					return
				}
				g.write(w, 1, 2)
				_, _ = w.Write([]byte("id: 3\ndata: {\"seq\":3"))
				panic(http.ErrAbortHandler)
			}
		},
		"not available at first": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(n int64, w http.ResponseWriter, after int64) {
				if n == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeStoreUnavailable, Status: 503})
					return
				}
				g.write(w, after+1, g.total)
			}
		},
		"doubles": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(_ int64, w http.ResponseWriter, _ int64) { g.write(w, 1, 3); g.write(w, 2, g.total) }
		},
	}
	for name, stream := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &rough{total: 5}
			g.stream = stream(g)
			if got := g.follow(t, 0); !slices.Equal(got, []int64{1, 2, 3, 4, 5}) {
				t.Errorf("events %v, want 1 to 5", got)
			}
		})
	}
}

// A connection that ends after a live event, which has no number, keeps the reader's place.
func TestEventsComeBackAfterALiveEvent(t *testing.T) {
	t.Parallel()
	g := &rough{total: 5}
	g.stream = func(n int64, w http.ResponseWriter, after int64) {
		if n > 1 {
			g.write(w, after+1, g.total)
			return
		}
		g.write(w, 1, 3)
		_, _ = w.Write(sse.Append(nil, sse.Event{Type: "model.delta", Data: []byte(`{"type":"model.delta","turn":1}`)}))
	}
	if got := g.follow(t, 0); !slices.Equal(got, []int64{1, 2, 3, 0, 4, 5}) {
		t.Errorf("events %v, want 1 to 3, the live event, 4 and 5", got)
	}
}

// A reader that has the last event of an ended run is done after one connection.
func TestEventsAfterTheLast(t *testing.T) {
	t.Parallel()
	g := &rough{total: 5}
	g.stream = func(_ int64, w http.ResponseWriter, after int64) { g.write(w, after+1, g.total) }
	if got := g.follow(t, 5); len(got) != 0 || g.connections.Load() != 1 {
		t.Errorf("events %v over %d connections, want none over 1", got, g.connections.Load())
	}
}

// A request that the gateway refuses is not retried.
func TestProblemsAreTyped(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeRunNotFound, Status: 404, Detail: "no such run"})
	}))
	t.Cleanup(server.Close)
	c := api.New(server.URL + "/")
	_, err := c.Get(t.Context(), id)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeRunNotFound || p.RetryAfter != 7 {
		t.Errorf("Get = %v", err)
	}
	before := calls.Load()
	for _, err := range c.Events(t.Context(), id, 0) {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 404 {
			t.Errorf("Events = %v", err)
		}
	}
	if n := calls.Load() - before; n > 2 {
		t.Errorf("%d requests for a run that does not exist", n)
	}
	if _, err := c.Wait(t.Context(), id); err == nil {
		t.Error("Wait for a run that does not exist succeeds")
	}
}

// A gateway that is not ready names the unreachable dependency.
func TestUnreadyGateway(t *testing.T) {
	t.Parallel()
	answer := `{"status": "unavailable", "bus": "ok", "store": "does not answer", "restore": "ok", "findings": []}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	c := api.New(server.URL)
	if r, err := c.Readiness(t.Context()); err != nil || r.Status != "unavailable" || r.Store != "does not answer" {
		t.Errorf("Readiness = %+v, %v", r, err)
	}
	if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "is unavailable (store: does not answer, bus: ok)") {
		t.Errorf("Ready = %v", err)
	}
	// The store and the bus of these gateways answer: there is nothing to repair in them.
	for body, want := range map[string]string{
		`{"status": "draining", "bus": "ok", "store": "ok", "restore": "ok", "findings": []}`:                                                                                                      "is shutting down: retry later",
		`{"status": "unavailable", "bus": "ok", "store": "ok", "restore": "ok", "findings": [{"name": "redis: maxmemory-policy", "fatal": true, "detail": "is lru", "remedy": "set noeviction"}]}`: "is unavailable (redis: maxmemory-policy: is lru): set noeviction",
	} {
		answer = body
		if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Ready = %v, want %s", err, want)
		}
	}
}

// A URL that is not a gateway's gets an error that says what to write.
func TestAddresses(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>\n  Welcome")) }))
	t.Cleanup(page.Close)
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	host := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for address, want := range map[string]string{
		"localhost":              "write one such as http://127.0.0.1:7070",
		"localhost:port":         "write one such as http://127.0.0.1:7070",
		host(plain):              "answered 404 Not Found, and is not a gateway",
		host(plain) + "/v1":      "remove it",
		"ftp://127.0.0.1":        "write http:// or https://",
		plain.URL + "/v1/":       "remove it",
		plain.URL + "?a=b":       "has a query or a fragment",
		"https://" + host(plain): "the server at " + host(plain) + " does not use TLS",
		"http://" + host(tls):    "the server at " + host(tls) + " uses TLS",
		plain.URL:                "answered 404 Not Found, and is not a gateway",
		page.URL:                 "It answered: <html> Welcome",
	} {
		c := api.New(address)
		if _, err := c.Get(t.Context(), id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Get from %s: %v, want %q", address, err, want)
		}
	}
	for address, secret := range map[string]string{"http://me:hunter22@127.0.0.1:x": "hunter22", "http://me:hunter22@127.0.0.1/v1": "hunter22"} {
		if _, err := api.New(address).Get(t.Context(), id); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("Get from %s: %v", address, err)
		}
	}
	for _, err := range api.New("localhost").Events(t.Context(), id, 0) {
		if err == nil || !strings.Contains(err.Error(), "write one such as") {
			t.Errorf("Events: %v", err)
		}
	}
}

// Invalid JSON is refused with a way to produce it.
func TestText(t *testing.T) {
	t.Parallel()
	c := api.New("http://127.0.0.1:1")
	_, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: json.RawMessage("hi")}, "")
	if err == nil || !strings.Contains(err.Error(), "api.Text") || strings.Contains(err.Error(), "RawMessage") {
		t.Errorf("Submit of invalid JSON: %v", err)
	}
	if got := string(api.Text("\"hi\" & <é>")); !json.Valid([]byte(got)) {
		t.Errorf("Text is %s", got)
	}
}

// Follow reports once that the gateway is unreachable, and once that it is back.
func TestFollowTellsOfTheConnection(t *testing.T) {
	t.Parallel()
	g := &rough{total: 2}
	g.stream = func(n int64, w http.ResponseWriter, after int64) {
		switch n {
		case 1:
			g.write(w, 1, 1)
		case 2, 3:
			w.WriteHeader(http.StatusBadGateway)
		default:
			g.write(w, after+1, g.total)
		}
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	var heard []string
	for e, err := range api.New(server.URL).Follow(t.Context(), id, 0, func(lost error) { heard = append(heard, fmt.Sprint(lost != nil)) }) {
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, fmt.Sprint(e.Seq))
	}
	if want := []string{"1", "true", "false", "2"}; !slices.Equal(heard, want) {
		t.Errorf("reports %v, want %v", heard, want)
	}
}

// A private authority is trusted only by clients configured with it, and the caller's own client is unchanged.
func TestRootCAs(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(&rough{})
	t.Cleanup(server.Close)
	if _, err := api.New(server.URL).Get(t.Context(), id); err == nil || !strings.Contains(err.Error(), "api.WithRootCAs") {
		t.Errorf("an unknown authority: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{ServerName: "example.com"}}}
	t.Cleanup(own.CloseIdleConnections)
	for name, c := range map[string]*api.Client{
		"a client":            api.New(server.URL, api.WithRootCAs(pool)),
		"one of the caller's": api.NewWithHTTP(server.URL, own, api.WithRootCAs(pool)),
	} {
		if run, err := c.Get(t.Context(), id); err != nil || run.ID != id {
			t.Errorf("%s: %v", name, err)
		}
	}
	if own.Transport.(*http.Transport).TLSClientConfig.RootCAs != nil {
		t.Error("the caller's transport was changed")
	}
	foreign := &http.Client{Transport: roundTrip(http.DefaultTransport.RoundTrip)}
	if _, err := api.NewWithHTTP(server.URL, foreign, api.WithRootCAs(pool)).Get(t.Context(), id); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), "roundTrip") {
		t.Errorf("a transport that cannot be configured: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := api.NewWithHTTP(server.URL, foreign, api.WithRootCAs(pool)).WaitBatch(ctx, "batch_x", nil); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("wait for a batch with a transport that cannot be configured: %v", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
