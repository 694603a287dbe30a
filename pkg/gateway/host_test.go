package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A page whose name was made to point to this machine does not get at the API.
func TestHostOnLoopback(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{Hosts: []string{"turnpike.example"}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler())
	t.Cleanup(s.Close)
	for host, want := range map[string]int{
		"":                      200, // what the client dials
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
	// Whoever listens for others is known by any name.
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://turnpike.svc/v1/agents", nil)
	if g.Handler().ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("beyond loopback = %d", w.Code)
	}
}
