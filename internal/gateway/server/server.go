// Package server is the HTTP server of a gateway. It dispatches requests to routes, and does for each
// what does not depend on its route: it checks the host and the origin, authenticates the caller,
// bounds headers, bodies and connections, counts and traces the request, and responds to errors and
// panics.
package server

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/cors"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Route is a handler and the operation of the service that it performs. A route without an operation is open to
// everyone; the context of its requests has no caller.
type Route struct {
	handler exchange.Handler
	asks    service.Operation
	bodies  int64 // the maximum body as a multiple of Config.MaxBody; 0 means 1
	stream  stream
	repeats []string // parameters of the query that a request may repeat; nil: none
	foreign bool     // the query belongs to the sender, who may repeat any parameter
}

// stream has the limits for a route that processes the body while it arrives.
type stream struct{ limit, buffers int64 }

// For returns a route for callers who may perform an operation. The context of its requests has the caller: see
// access.FromContext.
func For(o service.Operation, h exchange.Handler) Route { return Route{handler: h, asks: o} }

// Operation returns the operation that the caller of a request must be permitted, and false for an open route.
func (r Route) Operation() (service.Operation, bool) { return r.asks, r.asks != "" }

// Open returns a route that is open to everyone.
func Open(h exchange.Handler) Route { return Route{handler: h} }

// UpTo returns the route with bodies of up to n times Config.MaxBody. It has no effect on a route with Streams.
func (r Route) UpTo(n int64) Route {
	r.bodies = n
	return r
}

// Streams returns the route with bodies of up to limit bytes that the handler processes while they arrive. buffers is
// the maximum number of bytes of the body that the handler keeps at once.
func (r Route) Streams(limit, buffers int64) Route {
	r.stream = stream{limit, buffers}
	return r
}

// Repeats returns the route with parameters of the query that a request may give several times.
func (r Route) Repeats(parameters ...string) Route {
	r.repeats = parameters
	return r
}

// WithQueryOfSender returns the route for requests whose sender chooses the query: it may repeat any parameter.
func (r Route) WithQueryOfSender() Route {
	r.foreign = true
	return r
}

// checkQuery returns a problem if a query repeats a parameter that has one value: its handler would use the first one.
// exchange.NamedTenant checks the tenant, which the header may name too.
func (r Route) checkQuery(query url.Values) error {
	if r.foreign {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if n := len(query[name]); n > 1 && name != exchange.ParameterTenant && !slices.Contains(r.repeats, name) {
			return exchange.Invalid("parameter %.40q is given %d times: give it once", name, n)
		}
	}
	return nil
}

// Callers identifies the callers of requests. *login.Callers implements it.
type Callers interface {
	Identify(r *http.Request) (access.Caller, error)
	HasToken(r *http.Request) bool
	HasSession(r *http.Request) bool
}

// Config is the configuration of a Server. All fields are required except those marked as optional.
type Config struct {
	Callers     Callers
	Permit      func(ctx context.Context, c access.Caller, o service.Operation) error
	Failures    *exchange.Failures
	Bodies      *exchange.Memory
	Connections *limit.Connections

	// PublicURL is the URL at which browsers reach the server; pages of that origin may make requests. Package login
	// must have checked it. Optional.
	PublicURL string

	// Origins are the origins of other sites whose pages may make requests, without the cookie of a session. Optional.
	Origins []string

	// Hosts are host names, without ports, at which clients may address the server, in addition to localhost and IP
	// addresses; see KnownHost. AnyHost allows all names at other addresses than loopback if Hosts is empty. Optional.
	Hosts   []string
	AnyHost bool

	MaxBody      int64         // maximum bytes of a body
	StoreBudget  time.Duration // for which one request waits for the store in total
	WriteTimeout time.Duration // within which a client must receive a piece of a response

	Tracer trace.Tracer // nil: no spans
	Log    *slog.Logger
}

// Server serves routes. It is safe for concurrent use.
type Server struct {
	cfg      Config
	cors     *cors.Cors // nil: no other origins
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	draining atomic.Bool
}

// New returns a server, and registers its metrics in registry. The error reports an invalid origin, or metrics that
// registry refuses.
func New(registry prometheus.Registerer, cfg Config) (*Server, error) {
	allowed, err := newCORS(cfg.Origins)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:      cfg,
		cors:     allowed,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_http_requests_total", Help: "Requests by route and status code."}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "turnpike_http_request_duration_seconds", Help: "Time from a request to the start of its response.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 9),
		}, []string{"route"}),
	}
	for _, c := range []prometheus.Collector{s.requests, s.seconds} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return s, nil
}

// Drain makes the server close each connection after the next response, so that clients connect to another server.
func (s *Server) Drain() { s.draining.Store(true) }

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// Handler returns a handler that serves routes, by pattern of http.ServeMux. It panics if patterns conflict.
func (s *Server) Handler(routes map[string]Route) http.Handler {
	mux := http.NewServeMux()
	for pattern, r := range routes {
		mux.Handle(pattern, s.route(pattern, r))
	}
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	// A page of another origin must not act with the session of the person who views it. Such a page cannot send a
	// token, so requests with a token are not checked.
	guard := http.NewCrossOriginProtection()
	if s.cfg.PublicURL != "" {
		_ = guard.AddTrustedOrigin(s.cfg.PublicURL) // package login has checked it
	}
	foreign := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.cfg.Failures.Write(w, r, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "a page of another origin (another host or port, or http instead of https) sent this request: use the gateway's own page, with https if the gateway has TLS; in another page, send an API key or a token in the header Authorization, and ask the operator to add the page's origin to TURNPIKE_CORS_ORIGINS"))
	})
	guard.SetDenyHandler(foreign)
	matched := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern == "" {
			s.unmatched(h).ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	guarded := guard.Handler(matched)
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = s.receive(w, r)
		r, release := exchange.Receive(w, r, s.cfg.Bodies)
		defer release()
		if size := headerBytes(r); size > maxHeader {
			s.cfg.Failures.Write(w, r, exchange.Problem(http.StatusRequestHeaderFieldsTooLarge, api.CodeHeadersTooLarge, "the URL and the headers have %d bytes in total, at most %d are allowed: send shorter ones", size, maxHeader))
			return
		}
		if s.Draining() {
			w.Header().Set("Connection", "close") // so that the next request goes to another gateway
		}
		if !s.allowsHost(r) {
			s.cfg.Failures.Write(w, r, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "host %q is not allowed: send requests to another name of this gateway, or add the name to TURNPIKE_HOSTS (in Go, GatewayOptions.Hosts)", r.Host))
			return
		}
		if s.cfg.Callers.HasToken(r) || s.fromAllowedOrigin(r) {
			matched.ServeHTTP(w, r)
			return
		}
		if s.fromPlainPage(r) { // guard compares the host only
			foreign.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
	if s.cors != nil {
		return s.cors.Handler(served)
	}
	return served
}

// route runs the handler of a route, with the budget and the span of a request, and responds to its error.
func (s *Server) route(pattern string, to Route) http.Handler {
	h := s.authorized(to)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, received: time.Now()}
		r, traced := s.traceRequest(pattern, r.WithContext(service.WithBudget(r.Context(), s.cfg.StoreBudget, to.asks.Lasts())))
		defer func() { endRequest(traced, rec.status) }()
		// URL.Query silently drops parts that it cannot parse.
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			err = exchange.Invalid("the query of the URL is not valid, percent-encode its values: %v", err)
		} else if err = to.checkQuery(query); err == nil {
			err = s.recovered(h, rec, r)
		}
		if err != nil {
			s.cfg.Failures.Write(rec, r, err)
		}
		s.count(pattern, r, rec)
	})
}

// authorized passes a request with its caller to the handler of a route, if the service permits the operation. It
// checks this before the body is read.
func (s *Server) authorized(to Route) exchange.Handler {
	if to.asks == "" {
		return to.handler
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		caller, err := s.cfg.Callers.Identify(r)
		if err != nil {
			return err
		}
		if s.cfg.Callers.HasSession(r) {
			w.Header().Set("Cache-Control", "no-store") // so that the browser has no copy after a logout
		}
		if err := s.cfg.Permit(r.Context(), caller, to.asks); err != nil {
			return err
		}
		if err := s.admit(w, r, caller, to); err != nil {
			return err
		}
		return to.handler(w, r.WithContext(access.NewContext(r.Context(), caller)))
	}
}

// admit counts the connection and the body of a request for its caller, or returns a problem.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, caller access.Caller, to Route) error {
	if err := s.cfg.Connections.Use(r.Context(), caller); err != nil {
		if r.ProtoMajor < 2 {
			w.Header().Set("Connection", "close")
		}
		return err
	}
	if to.stream.limit > 0 {
		return exchange.AdmitStream(r, caller.Tenant, to.stream.limit, to.stream.buffers)
	}
	return exchange.Admit(r, caller.Tenant, s.cfg.MaxBody*max(to.bodies, 1))
}

// count counts a request. It does not measure a request with ?wait, whose duration is that of a run.
func (s *Server) count(route string, r *http.Request, rec *recorder) {
	s.requests.WithLabelValues(route, strconv.Itoa(max(rec.status, http.StatusOK))).Inc()
	if rec.status != 0 && !r.URL.Query().Has("wait") {
		s.seconds.WithLabelValues(route).Observe(rec.began.Sub(rec.received).Seconds())
	}
}

// unmatched responds to requests without a route with a problem instead of the text of the mux.
func (s *Server) unmatched(h http.Handler) http.Handler {
	return s.route("unmatched", Open(func(w http.ResponseWriter, r *http.Request) error {
		// The mux decides between 404, and 405 with the allowed methods.
		rec := &headOnly{header: http.Header{}}
		h.ServeHTTP(rec, r)
		if allow := rec.header.Get("Allow"); rec.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allow)
			return exchange.Problem(http.StatusMethodNotAllowed, api.CodeMethodNotAllowed, "method %s is not allowed here: use %s", r.Method, allow)
		}
		return exchange.Problem(http.StatusNotFound, api.CodeNotFound, "there is no path %s: use one from /openapi.json", r.URL.Path)
	}).WithQueryOfSender())
}
