//go:build browser

package browser

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// between is a proxy between the browser and the gateway. A test can make it lose, delay or change what passes.
type between struct {
	url string
	cut func() // closes all connections

	mu   sync.Mutex
	does func(w http.ResponseWriter, r *http.Request, on http.Handler)
}

func (s *deployment) between(t *testing.T) *between {
	t.Helper()
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	gateway := httputil.NewSingleHostReverseProxy(to)
	gateway.FlushInterval = -1
	p := &between{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		does := p.does
		p.mu.Unlock()
		if does == nil {
			gateway.ServeHTTP(w, r)
			return
		}
		does(w, r, gateway)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.url, p.cut = server.URL, server.CloseClientConnections
	return p
}

// set sets the handling of later requests; nil passes them on.
func (p *between) set(does func(w http.ResponseWriter, r *http.Request, on http.Handler)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.does = does
}

// lose lets the gateway execute the request, and drops its response.
func lose(w http.ResponseWriter, r *http.Request, on http.Handler) {
	on.ServeHTTP(httptest.NewRecorder(), r)
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("{"))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
