package gateway

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/intake"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/gateway/login"
	"github.com/turnpike-dev/turnpike/internal/gateway/membership"
	"github.com/turnpike-dev/turnpike/internal/gateway/resource"
	"github.com/turnpike-dev/turnpike/internal/gateway/server"
	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/gateway/ui"
	"github.com/turnpike-dev/turnpike/internal/inprocess"
	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Gateway serves the API. It is safe for concurrent use.
type Gateway struct {
	cfg      Config
	service  *service.Service
	server   *server.Server
	routes   map[string]server.Route
	events   *stream.Events
	intake   *intake.Intake
	unpulled *intake.Unpulled
	member   *membership.Member
	stop     func() // ends streams and waits
}

// New returns a gateway over a store and a bus. It does not call the store or the bus. The error reports an invalid
// setting, or metrics that cfg.Registry refuses. The caller must call Serve, or else Close when it no longer needs the
// gateway.
func New(store state.Store, b bus.Bus, cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Auth = withTokens(cfg.Auth, store, cfg.Tenant)
	callers, sessions, failures, err := logins(cfg)
	if err != nil {
		return nil, err
	}
	quit := make(chan struct{})
	budgeted := service.Budgeted(store)
	feeds := stream.NewFeeds(budgeted, b, cfg.Logger, quit)
	s, err := newService(store, b, cfg, feeds)
	if err != nil {
		return nil, err
	}
	l := cfg.Limits
	bodies := exchange.NewMemory(l.BodyBytes, l.TenantBodyBytes)
	g := &Gateway{
		cfg: cfg, service: s,
		intake: intake.New(b, s.Submissions, s.Runs, cfg.Auth, cfg.Logger), unpulled: intake.NewUnpulled(b.Unpulled, s.Fleet.Working, cfg.Logger),
		member: membership.New(b, store.SetFormat, s.Fleet, cfg.Random),
		stop:   sync.OnceFunc(func() { close(quit); s.Stop() }),
	}
	readers := prometheus.NewGauge(prometheus.GaugeOpts{Name: "turnpike_event_readers", Help: "Open event streams."})
	reserved := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_request_bytes", Help: "Memory reserved for the bodies of requests, decoded."}, bodies.InUse)
	for _, c := range []prometheus.Collector{g.unpulled, readers, reserved, newStatuses(store)} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	_, byRequest := cfg.Auth.(access.RequestAuthenticator) // it may authenticate a page that has no token
	g.server, err = server.New(cfg.Registry, server.Config{
		Callers: callers, Permit: s.Permit, Failures: failures, Bodies: bodies, Connections: limit.NewConnections(l),
		PublicURL: cfg.PublicURL, Origins: cfg.Origins, Hosts: cfg.Hosts, AnyHost: cfg.Auth != nil && !byRequest,
		MaxBody: cfg.MaxBody, StoreBudget: cfg.StoreBudget, WriteTimeout: cfg.WriteTimeout, Tracer: cfg.tracer(), Log: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	admission := stream.Admission{Callers: callers, Quota: limit.NewQuota("open event streams", api.CodeTooManyStreams, l.TenantStreams, l.PrincipalStreams), Readers: readers, Log: cfg.Logger}
	waits := stream.NewWaits(s.Runs, budgeted, b, cfg.Restore, cfg.StoreBudget, quit)
	g.events = stream.NewEvents(s.Runs, budgeted, b, cfg.Restore, quit)
	g.routes = handlers{
		service:     s,
		sessions:    sessions,
		submissions: resource.NewSubmissions(s.Submissions, waits, limit.NewQuota("requests with wait", api.CodeTooManyWaits, l.TenantWaits, l.PrincipalWaits), callers),
		events:      stream.NewRunHandler(s.Runs, g.events, admission),
		changes:     stream.NewTenantHandler(s.Runs, budgeted, feeds, admission),
		maxBody:     cfg.MaxBody,
		maxFile:     cfg.MaxFile,
		health:      resource.NewHealth(b, budgeted, resource.HealthConfig{Restore: cfg.Restore, Checks: cfg.Checks, Draining: g.server.Draining, Log: cfg.Logger}),
	}.routes()
	return g, nil
}

// logins returns the parts that identify callers, and the writer of problems.
func logins(cfg Config) (*login.Callers, *login.Sessions, *exchange.Failures, error) {
	accounts := cfg.Login
	if cfg.Auth == nil {
		accounts = nil
	}
	failures := exchange.NewFailures(cfg.Logger)
	sessions, err := login.NewSessions(accounts, cfg.PublicURL, failures, cfg.Logger)
	return login.NewCallers(cfg.Auth, accounts, cfg.Tenant, cfg.StoreBudget), sessions, failures, err
}

// withTokens adds authentication by tokens that API keys have issued, if auth has API keys and no tokens.
func withTokens(auth access.Authenticator, store state.Store, tenant string) access.Authenticator {
	chain, ok := auth.(access.Chain)
	if ok && chain.Keys != nil && chain.Tokens == nil {
		documents := service.Budgeted(store)
		chain.Tokens = access.NewTokens(documents, chain.Keys, access.NewTenants(documents, tenant))
		return chain
	}
	return auth
}

// newService returns the service of a gateway, which reports changed runs to feeds.
func newService(store state.Store, b bus.Bus, cfg Config, feeds *stream.Feeds) (*service.Service, error) {
	extra, err := model.NewExtras(cfg.Providers, cfg.ModelExtra)
	if err != nil {
		return nil, err
	}
	out := service.Config{
		Known:  agent.Known{Tools: cfg.Kinds, Hooks: cfg.Hooks, Providers: cfg.Providers, Loops: cfg.Loops, MaxResult: cfg.MaxResult, ModelExtra: extra},
		Lookup: lookup.Finder{Prefix: cfg.Prefix, Providers: cfg.Providers, Services: cfg.Services, Key: cfg.Key, Secret: cfg.Secret},
		Prefix: cfg.Prefix, Tenant: cfg.Tenant, MaxBody: cfg.MaxBody, MaxFile: cfg.MaxFile, Retention: cfg.Retention, Restore: cfg.Restore, RedeliveryDelay: cfg.RedeliveryDelay,
		Secret: cfg.HookSecret, Streams: cfg.Streams, Audited: cfg.Auth != nil, Changed: feeds.Changed, Tracer: cfg.tracer(), Random: cfg.Random, Logger: cfg.Logger, Registry: cfg.Registry,
	}
	// With the same keys, this gateway refuses a key at once that it has revoked; others read that from the store.
	if chain, ok := cfg.Auth.(access.Chain); ok {
		out.Keys, out.Tokens = chain.Keys, chain.Tokens
	}
	return service.New(store, b, out)
}

// Handler returns the API and the page as an http.Handler.
func (g *Gateway) Handler() http.Handler {
	routes := maps.Clone(g.routes)
	if !g.cfg.DisableMetricsRoute {
		routes["GET /metrics"] = server.For(service.ReadMetrics, g.metrics)
	}
	routes["GET "+ui.Path] = server.Open(ui.Get)
	return g.server.Handler(routes)
}

func (g *Gateway) metrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(g.cfg.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// Inside returns the configuration of clients in the same process, which need no HTTP. They share the service of the
// gateway, so its feeds learn of their changes without the bus. Streams of the events of a run learn of them as of all
// other changes: from the bus, or from the store every two seconds.
func (g *Gateway) Inside() inprocess.Config {
	return inprocess.Config{Service: g.service, Events: g.events, Tenant: g.cfg.Tenant, MaxBody: g.cfg.MaxBody, Budget: g.cfg.StoreBudget, Log: g.cfg.Logger}
}

// Run takes submissions and abort requests from the bus, sends heartbeats, creates the streams of tenants, fires
// schedules, reads the streams of triggers, and deletes unused files and runs whose retention has passed, until ctx
// ends. It acknowledges a message once its effect is in the store; a message that is refused becomes a dead letter with
// the cause. When Run ends, event streams and requests with ?wait end, for good: a gateway runs once. Run returns an
// error if it cannot open or close the queues, subscribe, or read Config.Random.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.stop()
	defer context.AfterFunc(ctx, g.stop)()  // end the streams before the intake has ended
	group, ctx := errgroup.WithContext(ctx) // an error of one part ends the others
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
		g.service.Files.Keep(ctx)
		return nil
	})
	group.Go(func() error {
		g.service.Schedules.Keep(ctx)
		return nil
	})
	group.Go(func() error {
		g.service.Triggers.Keep(ctx)
		return nil
	})
	group.Go(func() error {
		g.unpulled.Run(ctx)
		return nil
	})
	return group.Wait()
}

// Attend does a part of Run until ctx ends, for a process that uses the store directly and leaves the bus, schedules
// and retention to gateways: it sends and receives heartbeats, so that no process writes a format that another cannot
// read, and creates the streams of tenants. The caller must not use it together with Run. It returns an error if it
// cannot subscribe or read Config.Random.
func (g *Gateway) Attend(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.member.Run(ctx) })
	group.Go(func() error {
		g.service.Tenants.Keep(ctx)
		return nil
	})
	return group.Wait()
}

// Serve answers requests on the listener and does what Run does, until ctx ends or one of the two fails; it then
// returns that error. After ctx has ended it continues for Config.ShutdownDelay, while GET /readyz returns 503. Then
// it closes the listener, ends event streams and requests with ?wait at once, whose clients resume at another
// gateway, and waits up to ten seconds for other open requests: the error is context.DeadlineExceeded if some have
// not finished. Finally, it calls Close.
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
	g.cfg.Logger.Info("gateway is shutting down, readiness fails until it stops accepting requests", "drain_ms", g.cfg.ShutdownDelay.Milliseconds())
	timer := time.NewTimer(g.cfg.ShutdownDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Close waits up to two seconds until the bus has all messages that the gateway must publish, and drops the rest: the
// sweeper of a worker publishes their turns. Serve calls Close; a program that serves Handler itself must call it when
// its server has ended. The gateway must not be used afterwards.
func (g *Gateway) Close() { g.service.Close() }
