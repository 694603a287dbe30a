package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/intake"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/gateway/login"
	"github.com/turnpike-dev/turnpike/internal/gateway/membership"
	"github.com/turnpike-dev/turnpike/internal/gateway/server"
	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/gateway/ui"
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
	callers  *login.Callers
	sessions *login.Sessions
	store    state.Store // for streams, probes and what waits
	bus      bus.Bus
	server   *server.Server
	log      *slog.Logger
	tracer   trace.Tracer // nil: no spans

	events  *stream.RunHandler
	changes *stream.TenantHandler
	waits   *stream.Waits
	listed  limit.Lists
	outages *outages
	waiting *limit.Quota

	// quit ends streams when the server shuts down.
	quit chan struct{}
	stop func()
}

// New returns a gateway over a store and a bus.
func New(store state.Store, b bus.Bus, cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	failures, logins := exchange.NewFailures(cfg.Logger), cfg.Login
	if cfg.Auth == nil {
		logins = nil
	}
	sessions, err := login.NewSessions(logins, cfg.PublicURL, failures, cfg.Logger)
	if err != nil {
		return nil, err
	}
	extra, err := model.NewExtras(cfg.Providers, cfg.ModelExtra)
	if err != nil {
		return nil, err
	}
	unpulled := intake.NewUnpulled(b.Unpulled, cfg.Logger)
	readers := prometheus.NewGauge(prometheus.GaugeOpts{Name: "turnpike_event_readers", Help: "Open event streams."})
	bodies := exchange.NewMemory(cfg.Limits.BodyBytes, cfg.Limits.TenantBodyBytes)
	reserved := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_request_bytes", Help: "Memory reserved for the bodies of requests, decoded."}, bodies.InUse)
	for _, c := range []prometheus.Collector{unpulled, readers, reserved, newStatuses(store)} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	g := &Gateway{
		cfg: cfg, store: service.Budgeted(store), bus: b, log: cfg.Logger,
		sessions: sessions, callers: login.NewCallers(cfg.Auth, logins, cfg.Tenant, cfg.StoreBudget), unpulled: unpulled, quit: make(chan struct{}), outages: &outages{log: cfg.Logger},
	}
	if cfg.Tracer != nil {
		g.tracer = cfg.Tracer.Tracer("github.com/turnpike-dev/turnpike/internal/gateway")
	}
	feeds := stream.NewFeeds(g.store, b, cfg.Logger, g.quit)
	if g.service, err = service.New(store, b, g.serviceConfig(extra, feeds)); err != nil {
		return nil, err
	}
	g.intake = intake.New(b, g.service.Submissions, g.service.Runs, cfg.Auth, cfg.Logger)
	g.member = membership.New(b, g.store.SetFormat, g.service.Fleet, cfg.Random)
	limits := cfg.Limits
	g.waiting = limit.NewQuota("requests with wait", api.CodeTooManyWaits, limits.TenantWaits, limits.PrincipalWaits)
	_, byRequest := cfg.Auth.(access.RequestAuthenticator) // it may authenticate a page without a token
	g.server, err = server.New(cfg.Registry, server.Config{
		Callers: g.callers, Permit: g.service.Permit, Failures: failures, Bodies: bodies, Connections: limit.NewConnections(limits),
		PublicURL: cfg.PublicURL, Hosts: cfg.Hosts, AnyHost: cfg.Auth != nil && !byRequest,
		MaxBody: cfg.MaxBody, StoreBudget: cfg.StoreBudget, WriteTimeout: cfg.WriteTimeout, Tracer: g.tracer, Log: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	admission := stream.Admission{Callers: g.callers, Quota: limit.NewQuota("open event streams", api.CodeTooManyStreams, limits.TenantStreams, limits.PrincipalStreams), Readers: readers, Log: cfg.Logger}
	g.events = stream.NewRunHandler(g.service.Runs, stream.NewEvents(g.service.Runs, g.store, b, cfg.Restore, g.quit), admission)
	g.changes = stream.NewTenantHandler(g.service.Runs, g.store, feeds, admission)
	g.waits = stream.NewWaits(g.service.Runs, g.store, b, cfg.StoreBudget, g.quit)
	g.stop = sync.OnceFunc(func() {
		close(g.quit)
		g.service.Stop()
	})
	return g, nil
}

// serviceConfig returns what the service of a gateway must know.
func (g *Gateway) serviceConfig(extra model.Extras, feeds *stream.Feeds) service.Config {
	cfg := g.cfg
	out := service.Config{
		Known:  agent.Known{Tools: cfg.Kinds, Hooks: cfg.Hooks, Providers: cfg.Providers, Loops: cfg.Loops, MaxResult: cfg.MaxResult, ModelExtra: extra},
		Lookup: lookup.Finder{Prefix: cfg.Prefix, Providers: cfg.Providers, Services: cfg.Services, Key: cfg.Key, Secret: cfg.Secret},
		Prefix: cfg.Prefix, Tenant: cfg.Tenant, MaxBody: cfg.MaxBody, Retention: cfg.Retention, Restore: cfg.Restore, RedeliveryDelay: cfg.RedeliveryDelay,
		Audited: cfg.Auth != nil, Changed: feeds.Changed, Tracer: g.tracer, Random: cfg.Random, Logger: cfg.Logger, Registry: cfg.Registry,
	}
	// What is revoked here is refused here at once, and by others over the store.
	if chain, ok := cfg.Auth.(access.Chain); ok {
		out.Keys = chain.Keys
	}
	return out
}

// lists is a route for responses that may be large.
func (g *Gateway) lists(h exchange.Handler) server.Route {
	return server.For(service.Read, g.listed.Handler(h))
}

// routes returns the API: the pattern of http.ServeMux, the operation, and the handler of each route.
func (g *Gateway) routes() map[string]server.Route {
	return map[string]server.Route{
		"POST /v1/runs":                  server.For(service.Submit, g.postRun),
		"GET /v1/runs":                   g.lists(g.listRuns),
		"GET /v1/runs/{id}":              server.For(service.Read, g.getRun),
		"GET /v1/runs/{id}/messages":     g.lists(g.getMessages),
		"GET /v1/runs/{id}/turns":        g.lists(g.getTurns),
		"GET /v1/runs/{id}/events":       server.For(service.ReadLong, g.events.Get),
		"GET /v1/events":                 server.For(service.ReadLong, g.changes.Get),
		"DELETE /v1/runs/{id}":           server.For(service.DeleteRun, g.deleteRun),
		"POST /v1/runs/{id}/cancel":      server.For(service.Cancel, g.postCancel),
		"POST /v1/runs/{id}/signals":     server.For(service.Send, g.postSignal),
		"POST /v1/runs/{id}/fork":        server.For(service.Fork, g.postFork),
		"POST /v1/runs:cancel":           server.For(service.CancelMany, g.postCancelRuns),
		"POST /v1/drafts":                server.For(service.SubmitDraft, g.postDraft),
		"POST /v1/runs:batch":            server.For(service.SubmitBatch, g.postBatch).UpTo(service.BatchBodies),
		"GET /v1/batches":                g.lists(g.listBatches),
		"GET /v1/batches/{id}":           g.lists(g.getBatch),
		"GET /v1/agents":                 g.lists(g.listAgents),
		"GET /v1/agents/{name}":          server.For(service.Read, g.getAgent),
		"GET /v1/agents/{name}/versions": g.lists(g.listVersions),
		"GET /v1/agents/{name}/draft":    server.For(service.Read, g.getAgentDraft),
		"DELETE /v1/agents/{name}/draft": server.For(service.DiscardDraft, g.deleteAgentDraft),
		"POST /v1/agents/{name}/publish": server.For(service.PublishDraft, g.postPublish),
		"PUT /v1/agents/{name}":          server.For(service.PutAgent, g.putAgent),
		"DELETE /v1/agents/{name}":       server.For(service.DeleteAgent, g.deleteAgent),
		"GET /v1/dead":                   g.lists(g.listDead),
		"GET /v1/dead/{seq}":             server.For(service.Read, g.getDead),
		"POST /v1/dead/{seq}/replay":     server.For(service.Replay, g.postReplay),
		"GET /v1/workers":                server.For(service.ReadWorkers, g.listWorkers),
		"GET /v1/queues":                 server.For(service.ReadQueues, g.listQueues),
		"GET /v1/restore":                server.For(service.ReadRestore, g.getRestore),
		"POST /v1/restore:accept":        server.For(service.Accept, g.postAccept),
		"POST /v1/restore:abandon":       server.For(service.Abandon, g.postAbandon),
		"GET /v1/keys":                   server.For(service.ReadKeys, g.listKeys),
		"POST /v1/keys":                  server.For(service.CreateKey, g.postKey),
		"DELETE /v1/keys/{id}":           server.For(service.RevokeKey, g.deleteKey),
		"GET /v1/tenants":                server.For(service.ReadTenants, g.listTenants),
		"GET /v1/tenants/{name}":         server.For(service.ReadTenants, g.getTenant),
		"PUT /v1/tenants/{name}":         server.For(service.PutTenant, g.putTenant),
		"DELETE /v1/tenants/{name}":      server.For(service.DeleteTenant, g.deleteTenant),
		"GET /v1/audit":                  server.For(service.ReadAudit, g.getAudit),
		"GET /v1/whoami":                 server.For(service.Read, login.WhoAmI),
		"GET /v1/session":                server.Open(g.sessions.Get),
		"POST /v1/session":               server.Open(g.sessions.Post),
		"DELETE /v1/session":             server.Open(g.sessions.Delete),
		"GET /auth/login":                server.Open(g.sessions.Redirect),
		"GET /auth/callback":             server.Open(g.sessions.Callback),
		"GET /healthz":                   server.Open(g.healthz),
		"GET /readyz":                    server.Open(g.readyz),
		"GET /openapi.json":              server.Open(openAPI),
	}
}

// Handler returns the API as an http.Handler.
func (g *Gateway) Handler() http.Handler {
	routes := g.routes()
	if !g.cfg.DisableMetricsRoute {
		routes["GET /metrics"] = server.For(service.ReadMetrics, g.getMetrics)
	}
	routes["GET /ui/"] = server.Open(ui.Get)
	return g.server.Handler(routes)
}

// Run takes submissions and abort requests from the bus, sends heartbeats, and deletes runs whose
// retention has passed, until ctx ends. It acknowledges a message once its effect is in the store; a
// message that is refused becomes a dead letter with the cause.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.stop()
	defer context.AfterFunc(ctx, g.stop)()  // streams end before the intake has
	group, ctx := errgroup.WithContext(ctx) // one part that fails ends the others
	group.Go(func() error { return g.intake.Run(ctx) })
	group.Go(func() error { return g.member.Run(ctx) })
	group.Go(func() error {
		g.service.Runs.Clean(ctx)
		return nil
	})
	group.Go(func() error {
		g.service.Tenants.Keep(ctx)
		return nil
	})
	group.Go(func() error {
		g.unpulled.Run(ctx)
		return nil
	})
	return group.Wait()
}

// Attend does the part of Run that a process needs if it only reads stored runs, until ctx ends: it
// sends heartbeats, so that no other process writes a format that this one cannot read, and opens
// the streams of tenants. Do not call it together with Run. It returns an error if it cannot
// subscribe.
func (g *Gateway) Attend(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.member.Run(ctx) })
	group.Go(func() error {
		g.service.Tenants.Keep(ctx)
		return nil
	})
	return group.Wait()
}

// Serve answers requests on the listener and does what Run does, until ctx ends or one of the two
// fails. After ctx has ended it continues for Config.ShutdownDelay, while GET /readyz returns 503. Then
// the listener closes and open requests may finish for ten seconds: event streams and requests with
// ?wait end at once, and their clients resume at another gateway. Finally, pending messages to the bus
// get two seconds.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener) error {
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	work, stop := context.WithCancel(failed)
	defer stop()
	group.Go(func() error { return g.Run(work) })
	group.Go(func() error { return g.server.Listen(work, listener, g.Handler()) })
	group.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
			g.drain(failed)
		case <-failed.Done():
		}
		return nil
	})
	err := group.Wait()
	g.Close()
	return err
}

// drain makes GET /readyz return 503, and waits for Config.ShutdownDelay.
func (g *Gateway) drain(ctx context.Context) {
	if g.cfg.ShutdownDelay <= 0 {
		return
	}
	g.server.Drain()
	g.log.Info("gateway drains", "drain_ms", g.cfg.ShutdownDelay.Milliseconds())
	timer := time.NewTimer(g.cfg.ShutdownDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Close waits up to two seconds until the bus has all messages that the gateway has to publish. The
// sweeper of a worker publishes the rest. Serve calls Close; a program that serves Handler by itself must
// call it when its server has ended.
func (g *Gateway) Close() { g.service.Close() }
