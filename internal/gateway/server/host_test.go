package server_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A page whose host name was rebound to this machine cannot reach the API.
func TestHostOnLoopback(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{Hosts: []string{"turnpike.example"}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler())
	t.Cleanup(s.Close)
	for host, want := range map[string]int{
		"":                      200, // the host of the URL
		"127.0.0.1:7070":        200,
		"127.0.0.1":             200,
		"[::1]:7070":            200,
		"[::1]":                 200,
		"localhost:7070":        200,
		"LocalHost.":            200,
		"app.localhost:7070":    200,
		"Turnpike.example:7070": 200,
		"evil.example:7070":     403,
		"evil.example":          403,
		"localhost.example":     403,
		"127.0.0.1.example":     403,
		"x.turnpike.example":    403,
		"gateway:7070":          403, // a service of a cluster is not on this machine
	} {
		for _, path := range []string{"/v1/agents", "/ui/", "/metrics"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("GET %s of host %q = %d, want %d", path, host, resp.StatusCode, want)
			}
		}
	}
	// That callers authenticate does not make any name safe on this machine.
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://evil.example/v1/agents", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv6loopback, Port: 7070}))
	guarded, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{Auth: noAuth{}})
	if err != nil {
		t.Fatal(err)
	}
	if guarded.Handler().ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("evil.example at a gateway with authentication = %d", w.Code)
	}
	// A listener for other machines accepts any host name.
	w = httptest.NewRecorder()
	r = httptest.NewRequest(http.MethodGet, "http://turnpike.svc/v1/agents", nil)
	if g.Handler().ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("beyond loopback = %d", w.Code)
	}
}

// Beyond loopback, a gateway without authentication refuses host names that an attacker could control.
func TestHostBeyondLoopback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host  string
		hosts []string
		auth  access.Authenticator
		want  int
	}{
		{"evil.example:7070", nil, nil, 403},
		{"10.1.2.3:7070", nil, nil, 200},
		{"gateway:7070", nil, nil, 200},
		{"[fd00::1]:7070", nil, nil, 200},
		{"turnpike.example", []string{"turnpike.example"}, nil, 200},
		{"evil.example", []string{"turnpike.example"}, nil, 403},
		{"turnpike.example", nil, noAuth{}, 200},
		{"turnpike.example", []string{"turnpike.example"}, noAuth{}, 200},
		{"evil.example", []string{"turnpike.example"}, noAuth{}, 403},
	} {
		g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{Hosts: c.hosts, Auth: c.auth})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "http://"+c.host+"/healthz", nil)
		local := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 7070}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
		if g.Handler().ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("host %s with hosts %v and auth %v = %d, want %d", c.host, c.hosts, c.auth, w.Code, c.want)
		}
	}
}

// noAuth refuses every caller.
type noAuth struct{}

func (noAuth) Authenticate(context.Context, string) (access.Principal, error) {
	return access.Principal{}, access.ErrUnauthenticated
}

// A page without TLS does not act with the session of a gateway that is reached with TLS, whatever its host; browsers
// that send no Sec-Fetch-Site leave that to the gateway.
func TestPlainPages(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{PublicURL: "http://localhost:7070"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to, origin string
		session    bool
		want       int
	}{
		{"https://localhost:7070", "http://localhost:7070", true, 403},
		{"https://localhost", "http://localhost", true, 403},
		{"https://localhost", "HTTP://localhost", true, 403},
		{"https://turnpike.example", "http://turnpike.example", true, 403},
		{"https://turnpike.example", "http://localhost:7070", true, 403},
		{"https://turnpike.example", "http://turnpike.example", false, 403},
		{"https://turnpike.example", "https://turnpike.example", true, 400},
		{"http://turnpike.example", "http://turnpike.example", true, 403}, // TLS ends at a proxy: no browser sends a session without it
		{"http://turnpike.example", "https://turnpike.example", true, 400},
		{"http://turnpike.example", "http://turnpike.example", false, 400},
		{"http://localhost:7070", "http://localhost:7070", true, 400},
		{"http://127.0.0.1:7070", "http://127.0.0.1:7070", true, 400},
		{"http://[::1]:7070", "http://[::1]:7070", true, 400},
		{"http://localhost:7070", "http://localhost:8080", true, 403},
	} {
		r := httptest.NewRequest(http.MethodPost, c.to+"/v1/runs", strings.NewReader("{}"))
		r.Header.Set("Origin", c.origin)
		r.Header.Set("Content-Type", "application/json")
		if c.session {
			r.AddCookie(&http.Cookie{Name: "__Host-turnpike", Value: "x"})
		}
		w := httptest.NewRecorder()
		if g.Handler().ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("a page of %s posts to %s (session %t): %d, want %d", c.origin, c.to, c.session, w.Code, c.want)
		}
	}
}
