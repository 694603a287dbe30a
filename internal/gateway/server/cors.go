package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/cors"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
)

// corsMaxAge bounds how long a browser may cache the response to a preflight request, in seconds.
const corsMaxAge = 600

// checkOrigin returns an error unless text is an origin exactly as browsers write it.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	ok := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.Scheme+"://"+u.Host == text &&
		text == strings.ToLower(text) && !strings.Contains(text, "*")
	if !ok {
		return fmt.Errorf("TURNPIKE_CORS_ORIGINS has %.100q: write each origin exactly, such as https://app.example.com, in lower case and without a path or *", text)
	}
	return nil
}

// newCORS returns the handler that lets pages of other origins make requests: these pages may read responses and send
// a token in a header, but cannot use the cookie of a person who has logged in. It returns nil if origins is empty.
func newCORS(origins []string) (*cors.Cors, error) {
	for _, o := range origins {
		if err := checkOrigin(o); err != nil {
			return nil, err
		}
	}
	if len(origins) == 0 {
		return nil, nil //nolint:nilnil // there is nothing to answer
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete},
		AllowedHeaders: []string{"Accept", "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "Last-Event-ID", "Traceparent", exchange.HeaderTenant, exchange.HeaderRequestID},
		ExposedHeaders: []string{"ETag", "Location", "Retry-After", exchange.HeaderRequestID},
		MaxAge:         corsMaxAge,
	}), nil
}

// fromPlainPage reports whether a request that may change something comes from a page that was loaded without TLS,
// although the browser reaches the server with TLS: anyone on the network path may have written such a page. A cookie
// of a session shows TLS, even if a proxy ends it, because browsers send that cookie without TLS only to this machine.
// Without that cookie, fromPlainPage does not notice TLS that a proxy ends.
func (s *Server) fromPlainPage(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	if !strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "http://") {
		return false
	}
	return r.TLS != nil || s.cfg.Callers.HasSession(r) && !onThisMachine(hostOf(r))
}

// fromAllowedOrigin reports whether a request comes from a page of an allowed origin and has no session. It must have
// none, because a browser adds the cookie of a session to requests that the person who has logged in did not make.
func (s *Server) fromAllowedOrigin(r *http.Request) bool {
	return slices.Contains(s.cfg.Origins, r.Header.Get("Origin")) && !s.cfg.Callers.HasSession(r)
}
