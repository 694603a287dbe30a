package gateway

import (
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// unmatched answers what no route takes, with a problem instead of the mux's text.
func (g *Gateway) unmatched(h http.Handler) http.Handler {
	return g.serve("unmatched", open(func(w http.ResponseWriter, r *http.Request) error {
		// The mux knows: 404, or 405 with the methods that there are.
		rec := &headOnly{header: http.Header{}}
		h.ServeHTTP(rec, r)
		if allow := rec.header.Get("Allow"); rec.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allow)
			return exchange.Problem(http.StatusMethodNotAllowed, api.CodeMethodNotAllowed, "%s is not allowed here, %s is", r.Method, allow)
		}
		return exchange.Problem(http.StatusNotFound, api.CodeNotFound, "there is nothing at %s; /openapi.json lists what is", r.URL.Path)
	}))
}

// headOnly keeps the head of a response and drops its body.
type headOnly struct {
	header http.Header
	status int
}

func (h *headOnly) Header() http.Header         { return h.header }
func (h *headOnly) WriteHeader(status int)      { h.status = status }
func (h *headOnly) Write(b []byte) (int, error) { return len(b), nil }
