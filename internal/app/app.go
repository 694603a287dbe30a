// Package app wires the parts of Turnpike into processes.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/turnpike-dev/turnpike/internal/telemetry"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/check"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/hook/natshook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/a2atool"
	"github.com/turnpike-dev/turnpike/pkg/tool/httptool"
	"github.com/turnpike-dev/turnpike/pkg/tool/mcptool"
	"github.com/turnpike-dev/turnpike/pkg/tool/natstool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// Config of a process: flags over TURNPIKE_* variables over a YAML file.
type Config struct {
	NATSURL  string `name:"nats-url" env:"TURNPIKE_NATS_URL" default:"nats://127.0.0.1:4222" help:"NATS server with JetStream."`
	RedisURL string `name:"redis-url" env:"TURNPIKE_REDIS_URL" help:"Redis for checkpoints. Without it they are kept in JetStream."`
	Prefix   string `env:"TURNPIKE_PREFIX" default:"turnpike" help:"Prefix of subjects, streams and keys."`
	Replicas int    `env:"TURNPIKE_NATS_REPLICAS" default:"1" help:"Replicas of new streams."`
	Log      Log    `embed:""`

	Lease time.Duration `env:"TURNPIKE_LEASE" default:"25s" help:"How long a worker that gives no sign of life keeps its turns; the same in every process."`
}

// ackWait is a little more than the lease: by then the turn is free for whoever
// gets its message again.
func (c Config) ackWait() time.Duration {
	if c.Lease == 0 {
		return 0
	}
	return c.Lease + 5*time.Second
}

// Log configures the log.
type Log struct {
	LogLevel string `name:"log-level" env:"TURNPIKE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"Least severe level to log: ${enum}."`
}

// Logger returns a logger on standard error: for people on a terminal, JSON
// elsewhere.
func (l Log) Logger() zerolog.Logger {
	var out io.Writer = os.Stderr
	if term.IsTerminal(int(os.Stderr.Fd())) {
		out = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}
	}
	level, err := zerolog.ParseLevel(l.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}

// Site is a store and a bus, connected.
type Site struct {
	Store state.Store
	Bus   bus.Bus
	NATS  *nats.Conn
	Log   zerolog.Logger

	// As in GatewayConfig, for Serve.
	Hosts  []string
	Tenant string

	prefix string
	traces *telemetry.Exporter // nil: none
	meters *telemetry.Meters   // nil: none
	lease  time.Duration
	closer []func()
}

// Close lets go of everything, the last first.
func (s *Site) Close() {
	for i := len(s.closer) - 1; i >= 0; i-- {
		s.closer[i]()
	}
}

// Open connects to NATS and to the store, and refuses to go on where the one or
// the other could lose runs.
func Open(ctx context.Context, cfg Config, name string) (*Site, error) {
	log := cfg.Log.Logger()
	nc, err := natsbus.Connect(cfg.NATSURL, name, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		log.Warn().Err(err).Msg("nats")
	}))
	if err != nil {
		return nil, fmt.Errorf("%w: is nats-server running with -js at %s? TURNPIKE_NATS_URL sets the address", err, natsbus.Hosts(cfg.NATSURL))
	}
	s, err := OpenOn(ctx, cfg, nc, log)
	if err != nil {
		nc.Close()
		return nil, err
	}
	s.closer = append([]func(){nc.Close}, s.closer...)
	return s, nil
}

// OpenOn opens a site on a connection that the caller closes.
func OpenOn(ctx context.Context, cfg Config, nc *nats.Conn, log zerolog.Logger) (*Site, error) {
	s := &Site{NATS: nc, Log: log, prefix: cfg.Prefix, lease: cfg.Lease, closer: []func(){Room()}}
	b, err := patiently(ctx, func(ctx context.Context) (*natsbus.Bus, error) {
		return natsbus.Open(ctx, nc, natsbus.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas, AckWait: cfg.ackWait(), Logger: log})
	})
	if err != nil {
		return nil, err
	}
	s.Bus = b
	s.closer = append(s.closer, func() { _ = b.Close() })
	findings := b.Check(ctx)
	var store interface {
		state.Store
		Check(ctx context.Context) []check.Finding
		Close() error
	}
	if cfg.RedisURL != "" {
		store, err = redisstore.Open(ctx, redisstore.Config{URL: cfg.RedisURL, Prefix: cfg.Prefix})
	} else {
		store, err = patiently(ctx, func(ctx context.Context) (*natsstore.Store, error) {
			return natsstore.Open(ctx, nc, natsstore.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas, Logger: log})
		})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Store = store
	s.closer = append(s.closer, func() { _ = store.Close() })
	findings = append(findings, store.Check(ctx)...)
	if err := check.Err(findings); err != nil {
		s.Close()
		return nil, fmt.Errorf("refused to start:\n%w", err)
	}
	for _, f := range findings {
		if !f.OK {
			log.Warn().Str("check", f.Name).Str("found", f.Detail).Msg(f.Remedy)
		}
	}
	return s, nil
}

// patiently opens again what got no answer, a few times: a cluster leaves questions
// about a stream that another process has just created open until it has a leader.
func patiently[T any](ctx context.Context, open func(context.Context) (T, error)) (opened T, err error) {
	for range 5 {
		opened, err = open(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
	}
	return opened, err
}

// Trace exports the spans of what the site makes from now on, if the OTEL_* variables
// ask for it. Close sends the last of them.
func (s *Site) Trace(ctx context.Context, service string) error {
	traces, err := telemetry.Start(ctx, service, s.Log)
	if err != nil {
		return err
	}
	if traces != nil {
		s.traces = traces
		s.closer = append(s.closer, traces.Close)
	}
	return nil
}

// Measure makes the GenAI metrics of the workers that the site has from now on, in the
// registry, and exports them if the OTEL_* variables ask for it.
func (s *Site) Measure(ctx context.Context, service string, registry *prometheus.Registry) error {
	meters, err := telemetry.StartMeters(ctx, service, registry, s.Log)
	if err != nil {
		return err
	}
	s.meters = meters
	s.closer = append(s.closer, meters.Close)
	return nil
}

// Findings looks at everything that a site depends on.
func Findings(ctx context.Context, cfg Config) []check.Finding {
	nc, err := natsbus.Connect(cfg.NATSURL, "turnpike doctor")
	if err != nil {
		return []check.Finding{{Name: "nats: server", Fatal: true, Detail: err.Error(), Remedy: "start nats-server with -js, or set TURNPIKE_NATS_URL"}}
	}
	defer nc.Close()
	var findings []check.Finding
	if b, err := natsbus.Open(ctx, nc, natsbus.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas, AckWait: cfg.ackWait(), Logger: zerolog.Nop()}); err != nil {
		findings = append(findings, check.Finding{Name: "nats: streams", Fatal: true, Detail: err.Error(), Remedy: "enable JetStream, or mend the setting named"})
	} else {
		findings = append(findings, b.Check(ctx)...)
		_ = b.Close()
	}
	if cfg.RedisURL == "" {
		if s, err := natsstore.Open(ctx, nc, natsstore.Config{Prefix: cfg.Prefix, Logger: zerolog.Nop()}); err != nil {
			findings = append(findings, check.Finding{Name: "store: JetStream", Fatal: true, Detail: err.Error(), Remedy: "mend the setting named"})
		} else {
			findings = append(findings, s.Check(ctx)...)
			findings = append(findings, toolFindings(ctx, nc, cfg.Prefix, s)...)
			_ = s.Close()
		}
		return findings
	}
	s, err := redisstore.Open(ctx, redisstore.Config{URL: cfg.RedisURL, Prefix: cfg.Prefix})
	if err != nil {
		return append(findings, check.Finding{Name: "redis: url", Fatal: true, Detail: err.Error(), Remedy: "mend TURNPIKE_REDIS_URL"})
	}
	defer s.Close()
	findings = append(findings, s.Check(ctx)...)
	return append(findings, toolFindings(ctx, nc, cfg.Prefix, s)...)
}

// GatewayConfig is what a gateway process is told.
type GatewayConfig struct {
	Addr string `env:"TURNPIKE_ADDR" default:"127.0.0.1:7070" help:"Address of the HTTP API."`

	Hosts []string `env:"TURNPIKE_HOSTS" help:"Names by which the API may be asked for on loopback, beside localhost and addresses; those of a proxy on the same machine, by commas."`

	Tenant string `env:"TURNPIKE_TENANT" default:"default" help:"Tenant of the runs that are submitted here; the gateway knows no others."`
}

// WorkerConfig is what a worker process is told.
type WorkerConfig struct {
	ID            string        `env:"TURNPIKE_WORKER_ID" help:"Name of the worker, unique in the site; default the host's name and a random part."`
	Slots         int           `env:"TURNPIKE_SLOTS" default:"1000" help:"Turns under way at once."`
	HTTPAllow     []string      `name:"http-allow" env:"TURNPIKE_HTTP_ALLOW" help:"Addresses that are not public and that HTTP tools, MCP servers and remote agents may have all the same, by commas: host:port, or networks such as 10.1.0.0/16."`
	MCPCommands   []string      `name:"mcp-commands" env:"TURNPIKE_MCP_COMMANDS" help:"Programs that MCP tools may start on the worker, by commas, as they stand first in a command; * is any."`
	SecretsDir    string        `env:"TURNPIKE_SECRETS_DIR" help:"Directory with one file a secret."`
	Prices        string        `env:"TURNPIKE_PRICES" type:"path" help:"File with prices of models, YAML or JSON, beside and above the built-in ones."`
	RateLimits    string        `name:"rate-limits" env:"TURNPIKE_RATE_LIMITS" type:"path" help:"File with the rate limits of providers that all workers keep together, YAML or JSON; the same for every worker."`
	ShutdownGrace time.Duration `env:"TURNPIKE_SHUTDOWN_GRACE" default:"20s" help:"How long turns may finish at shutdown."`
	MetricsAddr   string        `env:"TURNPIKE_METRICS_ADDR" help:"Address of the worker's /metrics and /healthz; none without."`
	MockResponses string        `env:"DEBUG_MOCK_RESPONSES" hidden:"" help:"JSON array of strings that replaces the model of every agent."`
}

// Worker returns a worker of the site. tools are its tools in Go.
func (s *Site) Worker(cfg WorkerConfig, tools map[string]tool.Tool, registry *prometheus.Registry) (*worker.Worker, error) {
	if cfg.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		id := ulid.Make().String()
		cfg.ID = host + "-" + id[len(id)-6:]
	}
	c := worker.Config{
		ID: cfg.ID, Slots: cfg.Slots, Lease: s.lease, SecretsDir: cfg.SecretsDir, ShutdownGrace: cfg.ShutdownGrace, Logger: s.Log, Registry: registry,
		Hooks:     hookspec.Kinds(nil).With(hook.Kinds{hookspec.NATS: natshook.Kind(s.NATS)}),
		Providers: map[string]model.Provider{"scripted": scripted.New(), "openai": openai.New(openai.Config{}), "anthropic": anthropic.New(anthropic.Config{}), "gemini": gemini.New(gemini.Config{})},
		Keys:      map[string]string{"openai": "secret://OPENAI_API_KEY", "anthropic": "secret://ANTHROPIC_API_KEY", "gemini": "secret://GEMINI_API_KEY"},
	}
	if s.traces != nil {
		c.Tracer, c.TraceContent = s.traces.Provider(), s.traces.Content
	}
	if s.meters != nil {
		c.Meter = s.meters.Provider()
	}
	guard, err := httptool.NewGuard(cfg.HTTPAllow)
	if err != nil {
		return nil, fmt.Errorf("TURNPIKE_HTTP_ALLOW: %w", err)
	}
	servers := mcptool.New(guard, mcptool.Config{Commands: cfg.MCPCommands})
	s.closer = append(s.closer, servers.Close)
	c.Kinds = toolspec.Kinds(tools).With(tool.Kinds{
		toolspec.NATS: natstool.NewKind(s.NATS, s.prefix), toolspec.HTTP: httptool.New(guard), toolspec.A2A: a2atool.New(guard.Client()), toolspec.MCP: servers,
	})
	prices, err := loadPrices(cfg.Prices)
	if err != nil {
		return nil, err
	}
	c.Prices = prices
	if c.RateLimits, err = loadRateLimits(cfg.RateLimits); err != nil {
		return nil, err
	}
	if cfg.MockResponses != "" {
		responses, err := scripted.FromEnv(cfg.MockResponses)
		if err != nil {
			return nil, err
		}
		c.MockResponses = responses
	}
	return worker.New(s.Store, s.Bus, c)
}

// loadPrices returns the built-in prices with those of a file above them; "" is no
// file.
func loadPrices(path string) (model.Prices, error) {
	prices := model.DefaultPrices()
	if path == "" {
		return prices, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w: TURNPIKE_PRICES or --prices names the file", err)
	}
	own, err := model.ParsePrices(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	maps.Copy(prices, own)
	return prices, nil
}

// loadRateLimits returns the limits of a file; "" is no file.
func loadRateLimits(path string) (model.RateLimits, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read rate limits: %w: TURNPIKE_RATE_LIMITS or --rate-limits names the file", err)
	}
	limits, err := model.ParseRateLimits(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return limits, nil
}

// shutdownTimeout bounds how long open requests may finish.
const shutdownTimeout = 10 * time.Second

// Serve runs the API until ctx ends.
func (s *Site) Serve(ctx context.Context, listener net.Listener, registry *prometheus.Registry) error {
	cfg := gateway.Config{Hosts: s.Hosts, Tenant: s.Tenant, Logger: s.Log, Registry: registry}
	if s.traces != nil {
		cfg.Tracer = s.traces.Provider()
	}
	g, err := gateway.New(s.Store, s.Bus, cfg)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.Run(ctx) })
	group.Go(func() error { return serve(ctx, listener, g.Handler()) })
	return group.Wait()
}

// serve runs an HTTP server until ctx ends. Streams end with the gateway, so
// there is no write timeout.
func serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(down)
	})
	err := server.Serve(listener)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// ServeMetrics serves a process's metrics and liveness until ctx ends.
func ServeMetrics(ctx context.Context, addr string, registry *prometheus.Registry) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return serve(ctx, listener, mux)
}

// Listen opens the address of the API.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --addr", err)
	}
	return l, nil
}
