package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/intake"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/gateway/membership"
	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Limits bound what callers may have open at once.
type Limits = limit.Limits

// Config of a Gateway. The zero value of each field gives its default.
type Config struct {
	// Kinds of tool, Hooks, Providers and Loops are what workers have, by name, as far
	// as definitions must be checked against it. One that names anything else is
	// refused, with what there is. Default: what ships with Turnpike.
	Kinds     tool.Specs
	Hooks     hook.Specs
	Providers model.Specs
	Loops     []string

	// Auth finds out who asks. Default: nobody has to say who they are, and everybody may do
	// everything.
	Auth access.Authenticator

	// Login lets people log in to the page. Default: nobody can.
	Login *access.Login

	// PublicURL is the address by which browsers know the gateway, as in
	// https://turnpike.example.com. Without one people log in through an OpenID provider by
	// names of this machine only.
	PublicURL string

	// Services tells on which subjects somebody answers a tenant, and Secret returns nil if a
	// tenant has a secret for a host: who saves a definition is warned of those that nobody
	// has. Key is as Secret, for the workers' own key of a provider, which models use that name
	// none. Without them nobody is.
	Services func(ctx context.Context, tenant string) (map[string]bool, error)
	Key      func(ctx context.Context, tenant, name, host string) error
	Secret   func(ctx context.Context, tenant, name, host string) error

	// Prefix begins the subjects of the deployment, below which each tenant has its own. Default
	// "turnpike".
	Prefix string

	// Tenant is that of requests by principals of the whole deployment that name none, and
	// of submissions over the bus that name none. Default "default".
	Tenant string

	MaxBody int64 // bytes of a request; default 1 MiB

	// Limits bound the memory of requests, and connections, event streams and waits.
	Limits Limits

	// ModelExtra lists what model.extra of definitions that are saved may set beside what the
	// providers allow, as "PROVIDER:FIELD".
	ModelExtra []string

	// MaxResult bounds the max_result of tools in definitions that are saved. Default
	// tool.MaxResult, 4 MiB.
	MaxResult int

	// Hosts are names, without ports, by which the API may be asked for beside localhost and
	// addresses, such as that of a proxy. With any, or on loopback, or without Auth, it
	// answers to no others; beyond loopback names without a dot are fine, too.
	Hosts []string

	// DisableMetricsRoute removes /metrics from this address, for a process that serves
	// Registry on another one.
	DisableMetricsRoute bool

	// Retention is how long runs are kept after they have ended: Run deletes what is older. An
	// agent may keep its runs for less. The zero value keeps for ever.
	Retention agent.Retention

	// Restore says what a decision about an older copy of the store means, and carries it out.
	// Nil has nothing to decide.
	Restore *restore.Review

	// RedeliveryDelay is how long a new run is left to its message before the sweeper
	// publishes another. Default 5 s.
	RedeliveryDelay time.Duration

	// StoreBudget is how long one request waits for the store, all its calls together. Then it
	// is answered 503. Streams, batches and deletions have it for each call, and so has the
	// look at a run that ?wait goes on with. Default 3 s.
	StoreBudget time.Duration

	// WriteTimeout is how long a reader of an answer or of a stream may take nothing before
	// its connection is closed. Default 30 s.
	WriteTimeout time.Duration

	// ShutdownDelay is the time for which Serve continues after its context has ended, while
	// GET /readyz returns 503, so that load balancers stop sending requests before the
	// listener closes. Default 0.
	ShutdownDelay time.Duration

	// Checks, if not nil, looks at the dependencies for GET /readyz: a fatal
	// finding means not ready.
	Checks func(ctx context.Context) []state.Finding

	// Tracer makes the spans of submissions and of other requests that change
	// something. Default: none; the trace context of a caller is kept all the same.
	Tracer trace.TracerProvider

	// Random is read for the ids of runs and signals, by several goroutines at once.
	// Default crypto/rand.
	Random io.Reader

	Logger   *slog.Logger         // nil: no log
	Registry *prometheus.Registry // nil: one of its own
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	builtin := agent.Builtin()
	if c.Kinds == nil {
		c.Kinds = builtin.Tools
	}
	if c.Hooks == nil {
		c.Hooks = builtin.Hooks
	}
	if c.Providers == nil {
		c.Providers = builtin.Providers
	}
	if c.Loops == nil {
		c.Loops = loop.Builtin().Names()
	}
	if c.Prefix == "" {
		c.Prefix = "turnpike"
	}
	if c.Tenant == "" {
		c.Tenant = state.DefaultTenant
	}
	if c.MaxBody == 0 {
		c.MaxBody = 1 << 20
	}
	if c.MaxResult == 0 {
		c.MaxResult = tool.MaxResult
	}
	c.Limits = c.Limits.WithDefaults()
	if c.RedeliveryDelay == 0 {
		c.RedeliveryDelay = 5 * time.Second
	}
	if c.StoreBudget == 0 {
		c.StoreBudget = 3 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 30 * time.Second
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// Gateway serves the API.
type Gateway struct {
	cfg      Config
	service  *service.Service
	intake   *intake.Intake
	unpulled *intake.Unpulled
	member   *membership.Member
	store    state.Store // for streams, probes and what waits
	bus      bus.Bus
	log      *slog.Logger
	metrics  *metrics
	tracer   trace.Tracer // nil: no spans

	audiences audiences
	waiters   waiters
	changes   changes
	listed    limit.Lists
	outages   *outages
	bodies    *exchange.Memory
	failures  *exchange.Failures
	streams   *limit.Quota
	waits     *limit.Quota
	conns     *limit.Connections

	draining atomic.Bool // the process is to end soon: GET /readyz is 503

	// quit ends streams when the server shuts down.
	quit chan struct{}
	stop func()
}

// New returns a gateway over a store and a bus.
func New(store state.Store, b bus.Bus, cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	if err := checkPublicURL(cfg.PublicURL); err != nil {
		return nil, err
	}
	extra, err := model.NewExtras(cfg.Providers, cfg.ModelExtra)
	if err != nil {
		return nil, err
	}
	m, unpulled := newMetrics(), intake.NewUnpulled(b.Unpulled, cfg.Logger)
	if err := m.register(cfg.Registry, newStatuses(store), unpulled); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	g := &Gateway{
		cfg: cfg, store: service.Budgeted(store), bus: b, log: cfg.Logger, metrics: m,
		failures: exchange.NewFailures(cfg.Logger), unpulled: unpulled, quit: make(chan struct{}), outages: &outages{log: cfg.Logger},
	}
	if cfg.Tracer != nil {
		g.tracer = cfg.Tracer.Tracer(tracerName)
	}
	if g.service, err = service.New(store, b, g.serviceConfig(extra)); err != nil {
		return nil, err
	}
	g.intake = intake.New(b, g.service.Submissions, g.service.Runs, cfg.Auth, cfg.Logger)
	g.member = membership.New(b, g.store.SetFormat, g.service.Fleet, cfg.Random)
	limits := cfg.Limits
	g.bodies = exchange.NewMemory(limits.BodyBytes, limits.TenantBodyBytes)
	g.streams = limit.NewQuota("open event streams", api.CodeTooManyStreams, limits.TenantStreams, limits.PrincipalStreams)
	g.waits = limit.NewQuota("requests with wait", api.CodeTooManyWaits, limits.TenantWaits, limits.PrincipalWaits)
	g.conns = limit.NewConnections(limits)
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_request_bytes", Help: "Memory reserved for the bodies of requests, decoded."}, g.bodies.InUse)
	if err := cfg.Registry.Register(held); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	g.audiences = audiences{bus: b, read: g.service.Runs.Follow, runs: map[state.RunID]*audience{}}
	g.changes = changes{g: g, feeds: map[string]*changeFeed{}}
	g.stop = sync.OnceFunc(func() {
		close(g.quit)
		g.service.Stop()
	})
	return g, nil
}

// serviceConfig returns what the service of a gateway must know.
func (g *Gateway) serviceConfig(extra model.Extras) service.Config {
	cfg := g.cfg
	out := service.Config{
		Known:  agent.Known{Tools: cfg.Kinds, Hooks: cfg.Hooks, Providers: cfg.Providers, Loops: cfg.Loops, MaxResult: cfg.MaxResult, ModelExtra: extra},
		Lookup: lookup.Finder{Prefix: cfg.Prefix, Providers: cfg.Providers, Services: cfg.Services, Key: cfg.Key, Secret: cfg.Secret},
		Prefix: cfg.Prefix, Tenant: cfg.Tenant, MaxBody: cfg.MaxBody, Retention: cfg.Retention, Restore: cfg.Restore, RedeliveryDelay: cfg.RedeliveryDelay,
		Audited: cfg.Auth != nil, Changed: g.changes.changed, Tracer: g.tracer, Random: cfg.Random, Logger: cfg.Logger, Registry: cfg.Registry,
	}
	// What is revoked here is refused here at once, and by others over the store.
	if chain, ok := cfg.Auth.(access.Chain); ok {
		out.Keys = chain.Keys
	}
	return out
}

// Close waits up to two seconds until the bus has all messages that the gateway has to publish. The
// sweeper of a worker publishes the rest. Serve calls Close; a program that serves Handler by itself must
// call it when its server has ended.
func (g *Gateway) Close() { g.service.Close() }

// route is who answers a request, and the operation of the service that it asks for. One without is for
// everybody, and its handler has no caller.
type route struct {
	exchange.Handler
	asks   service.Operation
	bodies int64 // Config.MaxBody that a body may have; 0 is one
}

// upTo returns the route with bodies of up to n times Config.MaxBody.
func (r route) upTo(n int64) route {
	r.bodies = n
	return r
}

func asks(h exchange.Handler, o service.Operation) route { return route{Handler: h, asks: o} }

func open(h exchange.Handler) route { return route{Handler: h} }

// lists is a route for responses that may be large.
func (g *Gateway) lists(h exchange.Handler) route { return asks(g.listed.Handler(h), service.Read) }

// routes is the API: each row a pattern of http.ServeMux, who answers, and what it asks for.
func (g *Gateway) routes() map[string]route {
	return map[string]route{
		"POST /v1/runs":                  asks(g.postRun, service.Submit),
		"GET /v1/runs":                   g.lists(g.listRuns),
		"GET /v1/runs/{id}":              asks(g.getRun, service.Read),
		"GET /v1/runs/{id}/messages":     g.lists(g.getMessages),
		"GET /v1/runs/{id}/turns":        g.lists(g.getTurns),
		"GET /v1/runs/{id}/events":       asks(g.getEvents, service.ReadLong),
		"GET /v1/events":                 asks(g.getChanges, service.ReadLong),
		"DELETE /v1/runs/{id}":           asks(g.deleteRun, service.DeleteRun),
		"POST /v1/runs/{id}/cancel":      asks(g.postCancel, service.Cancel),
		"POST /v1/runs/{id}/signals":     asks(g.postSignal, service.Send),
		"POST /v1/runs/{id}/fork":        asks(g.postFork, service.Fork),
		"POST /v1/runs:cancel":           asks(g.postCancelRuns, service.CancelMany),
		"POST /v1/drafts":                asks(g.postDraft, service.SubmitDraft),
		"POST /v1/runs:batch":            asks(g.postBatch, service.SubmitBatch).upTo(service.BatchBodies),
		"GET /v1/batches":                g.lists(g.listBatches),
		"GET /v1/batches/{id}":           g.lists(g.getBatch),
		"GET /v1/agents":                 g.lists(g.listAgents),
		"GET /v1/agents/{name}":          asks(g.getAgent, service.Read),
		"GET /v1/agents/{name}/versions": g.lists(g.listVersions),
		"GET /v1/agents/{name}/draft":    asks(g.getAgentDraft, service.Read),
		"DELETE /v1/agents/{name}/draft": asks(g.deleteAgentDraft, service.DiscardDraft),
		"POST /v1/agents/{name}/publish": asks(g.postPublish, service.PublishDraft),
		"PUT /v1/agents/{name}":          asks(g.putAgent, service.PutAgent),
		"DELETE /v1/agents/{name}":       asks(g.deleteAgent, service.DeleteAgent),
		"GET /v1/dead":                   g.lists(g.listDead),
		"GET /v1/dead/{seq}":             asks(g.getDead, service.Read),
		"POST /v1/dead/{seq}/replay":     asks(g.postReplay, service.Replay),
		"GET /v1/workers":                asks(g.listWorkers, service.ReadWorkers),
		"GET /v1/queues":                 asks(g.listQueues, service.ReadQueues),
		"GET /v1/restore":                asks(g.getRestore, service.ReadRestore),
		"POST /v1/restore:accept":        asks(g.postAccept, service.Accept),
		"POST /v1/restore:abandon":       asks(g.postAbandon, service.Abandon),
		"GET /v1/keys":                   asks(g.listKeys, service.ReadKeys),
		"POST /v1/keys":                  asks(g.postKey, service.CreateKey),
		"DELETE /v1/keys/{id}":           asks(g.deleteKey, service.RevokeKey),
		"GET /v1/tenants":                asks(g.listTenants, service.ReadTenants),
		"GET /v1/tenants/{name}":         asks(g.getTenant, service.ReadTenants),
		"PUT /v1/tenants/{name}":         asks(g.putTenant, service.PutTenant),
		"DELETE /v1/tenants/{name}":      asks(g.deleteTenant, service.DeleteTenant),
		"GET /v1/audit":                  asks(g.getAudit, service.ReadAudit),
		"GET /v1/whoami":                 asks(g.whoAmI, service.Read),
		"GET /v1/session":                open(g.getSession),
		"POST /v1/session":               open(g.postSession),
		"DELETE /v1/session":             open(g.deleteSession),
		"GET /auth/login":                open(g.getLogin),
		"GET /auth/callback":             open(g.getCallback),
		"GET /healthz":                   open(g.healthz),
		"GET /readyz":                    open(g.readyz),
		"GET /openapi.json":              open(openAPI),
	}
}

// Handler returns the API as an http.Handler.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, r := range g.routes() {
		mux.Handle(pattern, g.serve(pattern, r))
	}
	if !g.cfg.DisableMetricsRoute {
		mux.Handle("GET /metrics", g.serve("GET /metrics", asks(g.getMetrics, service.ReadMetrics)))
	}
	mux.Handle("GET /ui/", g.serve("GET /ui/", open(page())))
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	// A page of another origin must not act in the name of whoever looks at it. It has no token
	// to send: requests with one are their senders' own.
	guard := http.NewCrossOriginProtection()
	if g.cfg.PublicURL != "" {
		_ = guard.AddTrustedOrigin(g.cfg.PublicURL) // New has checked it
	}
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.failures.Write(w, r, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "cross-origin request refused"))
	}))
	matched := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern == "" {
			g.unmatched(h).ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	guarded := guard.Handler(matched)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = g.receive(w, r)
		r, release := exchange.Receive(w, r, g.bodies)
		defer release()
		if size := headerBytes(r); size > maxHeader {
			g.failures.Write(w, r, exchange.Problem(http.StatusRequestHeaderFieldsTooLarge, api.CodeHeadersTooLarge, "address and headers have %d bytes, %d are allowed", size, maxHeader))
			return
		}
		if g.draining.Load() {
			w.Header().Set("Connection", "close") // the next request goes elsewhere
		}
		if !g.invited(r) {
			g.failures.Write(w, r, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "this gateway is not known as %q: if it is to be, or a proxy before it is, name it in TURNPIKE_HOSTS", r.Host))
			return
		}
		if _, ok := bearer(r); ok && g.cfg.Auth != nil {
			matched.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// serve runs a handler and reports what it returns.
func (g *Gateway) serve(pattern string, to route) http.Handler {
	h := g.authorized(to)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, received: time.Now()}
		r, traced := g.traceRequest(pattern, r.WithContext(service.WithBudget(r.Context(), g.cfg.StoreBudget, to.asks.Lasts())))
		defer func() { endRequest(traced, rec.status) }()
		// Query would leave out what it cannot read.
		_, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			err = exchange.Invalid("the query cannot be read: %v", err)
		} else {
			err = g.calm(h, rec, r)
		}
		if err != nil {
			g.failures.Write(rec, r, err)
		}
		g.metrics.answered(pattern, r, rec)
	})
}

// recorder remembers the status of a response, and when it began.
type recorder struct {
	http.ResponseWriter

	status          int
	received, began time.Time
}

func (r *recorder) WriteHeader(status int) {
	r.note(status)
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.note(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

func (r *recorder) note(status int) { r.status, r.began = status, time.Now() }

// Unwrap lets http.ResponseController flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
