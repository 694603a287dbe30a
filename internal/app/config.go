package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/devaddr"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Config of a process: flags over TURNPIKE_* variables over a YAML file.
type Config struct {
	NATSURL  string `name:"nats-url" env:"TURNPIKE_NATS_URL" default:"nats://127.0.0.1:4222" help:"NATS server with JetStream."`
	RedisURL string `name:"redis-url" env:"TURNPIKE_REDIS_URL" help:"Redis for checkpoints. Without it they are kept in JetStream."`
	Confirm  string `name:"redis-confirm" env:"TURNPIKE_REDIS_CONFIRM" default:"off" placeholder:"off|replicas:N|aof|aof:N" help:"Copies of Redis that must have a write before it is acknowledged: N replicas, or append-only files on disk. The same in every process."`
	Prefix   string `env:"TURNPIKE_PREFIX" default:"turnpike" help:"Prefix of subjects, streams and keys."`
	Replicas int    `env:"TURNPIKE_NATS_REPLICAS" default:"1" help:"Replicas of streams; existing streams with fewer are changed. Use 3 on a cluster of NATS servers."`
	Domain   string `name:"nats-domain" env:"TURNPIKE_NATS_DOMAIN" help:"JetStream domain of the streams, if it differs from that of the connected server."`
	Log      Log    `embed:""`

	BusKeys     string `name:"bus-keys" env:"TURNPIKE_BUS_KEYS" placeholder:"KEY,…" help:"Keys that sign live events and heartbeats, the newest first; the same in every process."`
	BusKeysFile string `name:"bus-keys-file" env:"TURNPIKE_BUS_KEYS_FILE" type:"path" help:"File with them."`

	NATSLogin  NATSLogin  `embed:""`
	RedisLogin RedisLogin `embed:""`

	Lease time.Duration `env:"TURNPIKE_LEASE" default:"25s" help:"Time for which a worker without heartbeats keeps its turns; the same in every process."`

	Feed Feed `embed:""`

	Results Results `embed:""`

	Keeping Keeping `embed:""`

	Streams Streams `embed:""`
}

// Results bounds the results of tools in a deployment.
type Results struct {
	MaxResult int `name:"max-result" env:"TURNPIKE_MAX_RESULT" default:"4194304" help:"Largest max_result of a tool, in bytes, at most 33554432; the same in every process."`
}

// Keeping is the retention settings of a deployment.
type Keeping struct {
	Retention Retention `env:"TURNPIKE_RETENTION" placeholder:"completed: 30d, failed: 90d, events: 72h" help:"Time for which ended runs and the event feed are kept; the same in every process. Default: runs are kept indefinitely."`
}

// Retention is a setting such as "completed: 30d, failed: 90d".
type Retention agent.Retention

// UnmarshalText reads it.
func (r *Retention) UnmarshalText(text []byte) error {
	kept, err := agent.ParseRetention(string(text))
	*r = Retention(kept)
	return err
}

// Streams says over how many streams turns are spread, and bounds the others.
type Streams struct {
	TurnStreams   int `env:"TURNPIKE_TURN_STREAMS" help:"Number of streams for turns, 1 to 64. The process that starts last sets it for all, which continue during the change. 0 keeps the current number, initially 1."`
	MaxAckPending int `env:"TURNPIKE_MAX_ACK_PENDING" help:"Maximum unacknowledged messages of a queue of turns, for each stream; the same in every process. 0 is 50000, or more if the slots of all workers need more."`

	SubmitMiB  int64 `name:"submit-mib" env:"TURNPIKE_SUBMIT_MIB" default:"512" help:"Maximum size of the stream of submissions over NATS, in MiB; a full stream rejects messages. -1 is unlimited."`
	ControlMiB int64 `name:"control-mib" env:"TURNPIKE_CONTROL_MIB" default:"64" help:"The same for the stream of aborts."`
	DeadMiB    int64 `name:"dead-mib" env:"TURNPIKE_DEAD_MIB" default:"256" help:"The same for dead letters; a full stream drops the oldest."`
	EventsMiB  int64 `name:"events-mib" env:"TURNPIKE_EVENTS_MIB" default:"1024" help:"The same for the event feed; a full stream drops the oldest."`
	FilesMiB   int64 `name:"files-mib" env:"TURNPIKE_FILES_MIB" default:"1024" help:"Maximum size of the uploaded files of one tenant, in MiB; a full stream refuses uploads. -1 is unlimited."`
}

// Limits returns them in bytes.
func (s Streams) Limits() natsbus.Limits {
	return natsbus.Limits{Submit: s.SubmitMiB << 20, Control: s.ControlMiB << 20, Dead: s.DeadMiB << 20, Events: s.EventsMiB << 20, Files: s.FilesMiB << 20}
}

// Feed configures the stored event feed.
type Feed struct {
	EventFeed Switch `env:"TURNPIKE_EVENT_FEED" default:"off" placeholder:"on|off" help:"Publish the events of runs on PREFIX.events.> as well, on or off; the same in every process."`
}

// Deployment returns the settings that a deployment has from the configuration.
func (c Config) Deployment() deploy.Config {
	return deploy.Config{
		NATSURL: devaddr.Server(c.NATSURL), NATSLogin: c.NATSLogin.Login(), NATSDomain: c.Domain, BusKeys: value("BUS_KEYS", c.BusKeys, c.BusKeysFile), RedisURL: c.RedisURL, RedisLogin: c.RedisLogin.Login(), RedisConfirm: c.Confirm, Prefix: c.Prefix, Replicas: c.Replicas, Lease: c.Lease, EventFeed: bool(c.Feed.EventFeed), StreamLimits: c.Streams.Limits(), TurnStreams: c.Streams.TurnStreams, MaxAckPending: c.Streams.MaxAckPending, Retention: agent.Retention(c.Keeping.Retention), MaxResult: c.Results.MaxResult, Logger: c.Log.Logger(),
	}
}

// Switch is a setting that is on or off.
type Switch bool

// Decode reads the value of a flag, a variable, or a key of a settings file, where YAML
// has made a truth value of it.
func (s *Switch) Decode(ctx *kong.DecodeContext) error {
	t, err := ctx.Scan.PopValue("on|off")
	if err != nil {
		return err
	}
	switch t.Value {
	case "on", true:
		*s = true
	case "off", false:
		*s = false
	default:
		return fmt.Errorf("%v is not valid: write on or off", t.Value)
	}
	return nil
}

// Log configures the log.
type Log struct {
	LogLevel string `name:"log-level" env:"TURNPIKE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"Lowest level to log: ${enum}."`
}

// Logger returns a logger on standard error: for people on a terminal, JSON
// elsewhere.
func (l Log) Logger() *slog.Logger {
	var out io.Writer = os.Stderr
	if term.IsTerminal(int(os.Stderr.Fd())) {
		out = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}
	}
	level := slog.LevelInfo
	_ = level.UnmarshalText([]byte(l.LogLevel)) // kong has checked it
	return slog.New(limitRepeats(&handler{out: zerolog.New(out), level: level}))
}

// GatewayConfig is the settings of a gateway process.
type GatewayConfig struct {
	Addr string `env:"TURNPIKE_ADDR" default:"127.0.0.1:7070" help:"Address of the HTTP API."`

	HostsConfig
	CORSOrigins []string `name:"cors-origins" env:"TURNPIKE_CORS_ORIGINS" help:"Origins of other sites whose pages may make requests with a token, separated by commas, as in https://app.example.com."`
	ModelExtra  []string `name:"model-extra" env:"TURNPIKE_MODEL_EXTRA" help:"Fields that model.extra of definitions may set in addition to the built-in ones, separated by commas: PROVIDER:FIELD, as in openai:prompt_cache_retention."`

	MaxFileMiB int64 `name:"max-file-mib" env:"TURNPIKE_MAX_FILE_MIB" default:"32" help:"Maximum size of an uploaded file, in MiB."`

	TLSConfig
	AuthConfig
	LimitsConfig
}

// LimitsConfig bounds the connections, streams and requests that the callers of a gateway
// may have open.
type LimitsConfig struct {
	BodiesMiB            int64 `name:"bodies-mib" env:"TURNPIKE_BODIES_MIB" default:"96" help:"Memory for the decoded bodies of requests in flight, in MiB. Further requests get 503."`
	TenantBodiesMiB      int64 `name:"tenant-bodies-mib" env:"TURNPIKE_TENANT_BODIES_MIB" default:"24" help:"Part of that memory for one tenant, in MiB. Further requests get 429."`
	Connections          int   `env:"TURNPIKE_CONNECTIONS" default:"10000" help:"Maximum open connections. At the limit, a new connection replaces the oldest one without an authenticated request."`
	TenantConnections    int   `name:"tenant-connections" env:"TURNPIKE_TENANT_CONNECTIONS" default:"4000" help:"Open connections of one tenant."`
	PrincipalConnections int   `name:"principal-connections" env:"TURNPIKE_PRINCIPAL_CONNECTIONS" default:"2000" help:"Open connections of one principal."`
	TenantStreams        int   `name:"tenant-streams" env:"TURNPIKE_TENANT_STREAMS" default:"2000" help:"Open event streams of one tenant."`
	PrincipalStreams     int   `name:"principal-streams" env:"TURNPIKE_PRINCIPAL_STREAMS" default:"1000" help:"Open event streams of one principal."`
	TenantWaits          int   `name:"tenant-waits" env:"TURNPIKE_TENANT_WAITS" default:"2000" help:"Waiting requests (?wait) of one tenant."`
	PrincipalWaits       int   `name:"principal-waits" env:"TURNPIKE_PRINCIPAL_WAITS" default:"1000" help:"Waiting requests (?wait) of one principal."`
}

// Limits returns the limits of a gateway.
func (c LimitsConfig) Limits() (gateway.Limits, error) {
	byDefault := gateway.Limits{}.WithDefaults()
	errs := []error{
		mebibytes("BODIES_MIB", c.BodiesMiB), mebibytes("TENANT_BODIES_MIB", c.TenantBodiesMiB), positive("CONNECTIONS", c.Connections),
		positive("TENANT_CONNECTIONS", c.TenantConnections), positive("PRINCIPAL_CONNECTIONS", c.PrincipalConnections),
		positive("TENANT_STREAMS", c.TenantStreams), positive("PRINCIPAL_STREAMS", c.PrincipalStreams), positive("TENANT_WAITS", c.TenantWaits), positive("PRINCIPAL_WAITS", c.PrincipalWaits),
		within("TENANT_BODIES_MIB", &c.TenantBodiesMiB, byDefault.TenantBodyBytes>>20, "BODIES_MIB", c.BodiesMiB),
		within("TENANT_CONNECTIONS", &c.TenantConnections, byDefault.TenantConnections, "CONNECTIONS", c.Connections),
		within("PRINCIPAL_CONNECTIONS", &c.PrincipalConnections, byDefault.PrincipalConnections, "CONNECTIONS", c.Connections),
	}
	return gateway.Limits{
		BodyBytes: c.BodiesMiB << 20, TenantBodyBytes: c.TenantBodiesMiB << 20,
		Connections: c.Connections, TenantConnections: c.TenantConnections, PrincipalConnections: c.PrincipalConnections,
		TenantStreams: c.TenantStreams, PrincipalStreams: c.PrincipalStreams, TenantWaits: c.TenantWaits, PrincipalWaits: c.PrincipalWaits,
	}, errors.Join(errs...)
}

// HostsConfig is the host names of a process.
type HostsConfig struct {
	Hosts []string `env:"TURNPIKE_HOSTS" help:"Host names that requests may use, in addition to addresses and localhost, separated by commas; include those of a proxy."`
}

// SecretsConfig names the secrets of a gateway process, which hooks use.
type SecretsConfig struct {
	SecretsDir string `env:"TURNPIKE_SECRETS_DIR" help:"Directory with one file per secret, as workers have it, for the signatures of hooks."`
}

// HookSecrets returns the function that reads the secrets of hooks, from the places of a worker.
func HookSecrets(dir string) (func(tenant, name string, p policy.Policy) (string, error), error) {
	secrets := definition.Secrets{Dir: dir, Getenv: os.Getenv}
	return func(tenant, name string, p policy.Policy) (string, error) { return secrets.Find(tenant, name, "", p) }, secrets.CheckDir()
}

// TenantConfig names the tenant of those who name none.
type TenantConfig struct {
	Tenant string `env:"TURNPIKE_TENANT" default:"default" help:"Tenant of requests without a tenant, from callers without a tenant."`
}

// Gateway returns the settings of the gateway of a deployment.
func (c GatewayConfig) Gateway(d *deploy.Deployment, tenant string) (gateway.Config, error) {
	limits, err := c.Limits()
	if err == nil {
		err = c.checkFiles(cmp.Or(d.Config().StreamLimits.Files, bus.DefaultObjectBytes))
	}
	if err != nil {
		return gateway.Config{}, err
	}
	auth, login, err := c.Callers(service.Budgeted(d.Store))
	return gateway.Config{Limits: limits, MaxFile: c.MaxFileMiB << 20, Hosts: c.Hosts, Origins: c.CORSOrigins, Tenant: tenant, Auth: auth, Login: login, ModelExtra: c.ModelExtra, PublicURL: strings.TrimSuffix(c.PublicURL, "/")}, err
}

// checkFiles refuses a size of files that a tenant's stream of files, of at most stream bytes, could never hold; -1 is
// unlimited.
func (c GatewayConfig) checkFiles(stream int64) error {
	if err := mebibytes("MAX_FILE_MIB", c.MaxFileMiB); err != nil {
		return err
	}
	if stream > 0 && c.MaxFileMiB > stream>>20 {
		return fmt.Errorf("TURNPIKE_MAX_FILE_MIB is %d, more than the %d MiB of all files of a tenant: lower TURNPIKE_MAX_FILE_MIB or raise TURNPIKE_FILES_MIB", c.MaxFileMiB, stream>>20)
	}
	return nil
}

// AdminConfig is the settings of a gateway's listener for operators.
type AdminConfig struct {
	AdminAddr string `env:"TURNPIKE_ADMIN_ADDR" help:"Address of /metrics, /healthz, /readyz and /debug/pprof for operators; without it the API address serves /metrics."`
}

// DrainConfig is the settings of a process that serves the API behind a load balancer.
type DrainConfig struct {
	Drain time.Duration `env:"TURNPIKE_DRAIN" default:"5s" help:"Time for which the gateway keeps serving after SIGTERM, with /readyz at 503, so that load balancers stop using it first."`
}

// WorkerConfig is the settings of a worker process.
type WorkerConfig struct {
	ID            string        `env:"TURNPIKE_WORKER_ID" help:"Name of the worker, unique in the deployment; default the host name and a random part."`
	Slots         int           `env:"TURNPIKE_SLOTS" default:"1000" help:"Maximum turns in flight."`
	NoisyTurns    int           `env:"TURNPIKE_NOISY_TURNS" help:"Turns of noisy tenants that may use the store and the bus concurrently, on a worker that tenants share. Default: 4 per processor, at least 8."`
	MemoryMiB     *int64        `name:"memory-mib" env:"TURNPIKE_MEMORY_MIB" help:"Memory for views of runs, answers of tools and files of all turns together, in MiB. Default: an eighth of the memory of the machine or of the control group."`
	AnswersMiB    *int64        `name:"answers-mib" env:"TURNPIKE_ANSWERS_MIB" help:"Memory for the answers of tools and long responses of models, in MiB: a call of a tool starts when its max_result is free. Default: a quarter of --memory-mib."`
	FileMemoryMiB *int64        `name:"file-memory-mib" env:"TURNPIKE_FILE_MEMORY_MIB" help:"Memory for the contents of files in model calls, in MiB: a call waits until three times the size of its files is free. Default: a quarter of --memory-mib."`
	ViewsMiB      *int64        `name:"views-mib" env:"TURNPIKE_VIEWS_MIB" help:"Memory for the views of runs above 256 KiB, in MiB: a turn reads its run's history when twice its size is free. Default: half of --memory-mib."`
	HTTPAllow     []string      `name:"http-allow" env:"TURNPIKE_HTTP_ALLOW" help:"Non-public addresses that HTTP tools, MCP servers and remote agents may use, separated by commas: host:port, or networks such as 10.1.0.0/16."`
	ModelAllow    []string      `name:"model-allow" env:"TURNPIKE_MODEL_ALLOW" help:"Non-public addresses that the base_url of models may use, in addition to those of --http-allow, separated by commas: host:port, or networks such as 10.1.0.0/16."`
	MCPCommands   []string      `name:"mcp-commands" env:"TURNPIKE_MCP_COMMANDS" help:"Programs that MCP tools may start on the worker, separated by commas, as in the first word of a command; * is any."`
	Programs      Programs      `embed:""`
	SecretsDir    string        `env:"TURNPIKE_SECRETS_DIR" help:"Directory with one file per secret; those of a tenant are in a subdirectory with its name."`
	Prices        string        `env:"TURNPIKE_PRICES" type:"path" help:"File with prices of models, YAML or JSON, which extend and override the built-in ones."`
	RateLimits    string        `name:"rate-limits" env:"TURNPIKE_RATE_LIMITS" type:"path" help:"File with the rate limits of providers, YAML or JSON, which all workers share; the same for every worker."`
	LateResults   time.Duration `env:"TURNPIKE_LATE_RESULTS" default:"3s" help:"Time for which a turn of a lost worker waits for the results of calls that must not be repeated, in case the worker was only paused."`
	ShutdownGrace time.Duration `env:"TURNPIKE_SHUTDOWN_GRACE" default:"20s" help:"Time for turns to finish at shutdown."`
	MetricsAddr   string        `env:"TURNPIKE_METRICS_ADDR" help:"Address of /metrics, /healthz, /readyz and /debug/pprof of the worker; default not served."`
	MockResponses string        `env:"DEBUG_MOCK_RESPONSES" hidden:"" help:"JSON array of strings that replaces the model of every agent."`

	HeartbeatConfig
}

// HeartbeatConfig is the interval of heartbeats. A gateway sends none at it, but checks the lease against it.
type HeartbeatConfig struct {
	Heartbeat time.Duration `env:"TURNPIKE_HEARTBEAT" default:"300ms" help:"Interval between heartbeats of workers. A worker that misses four is dead, and the others resume its turns; the lease must be longer than that."`
}

// Programs is the confinement settings for the programs of MCP tools. Package
// internal/app/programs makes a confinement from it.
type Programs struct {
	Confinement string   `name:"mcp-confinement" env:"TURNPIKE_MCP_CONFINEMENT" default:"auto" enum:"auto,namespaces,landlock,off" help:"Confinement of programs of MCP tools: ${enum}. auto uses namespaces or else landlock, and refuses programs if the system has neither; off starts them with all rights of the worker."`
	Network     []string `name:"mcp-network" env:"TURNPIKE_MCP_NETWORK" help:"Programs of MCP tools that may use the worker's network, separated by commas, as in the first word of a command; * is any. Default of turnpike dev: all."`
	Read        []string `name:"mcp-read" env:"TURNPIKE_MCP_READ" help:"Files and directories that programs of MCP tools may read in addition to the system's, separated by commas. Default of turnpike dev: the working directory."`
	Write       []string `name:"mcp-write" env:"TURNPIKE_MCP_WRITE" help:"Files and directories that they may write, separated by commas."`
	Home        string   `name:"mcp-home" env:"TURNPIKE_MCP_HOME" help:"Writable, persistent home directory of programs of MCP tools; DATA-DIR/mcp in turnpike dev. Without it, home is a temporary directory that is removed when they end."`
	MemoryMiB   int64    `name:"mcp-memory-mib" env:"TURNPIKE_MCP_MEMORY_MIB" default:"512" help:"Memory limit of a program of an MCP tool, in MiB: for all its processes if the worker may create cgroups, else for each."`
}

// Worker returns the settings of the worker, and reads the files that they name. It omits
// the settings of its kinds of tools and of its models.
func (c WorkerConfig) Worker() (worker.Config, error) {
	total, answers, files, views := c.memory(availableMemory(os.DirFS("/")))
	cfg := worker.Config{AnswerMemory: answers << 20, FileMemory: files << 20, ViewMemory: views << 20, ID: c.ID, Slots: c.Slots, MaxNoisyTurns: c.NoisyTurns, SecretsDir: c.SecretsDir, Getenv: os.Getenv, ShutdownGrace: c.ShutdownGrace, HeartbeatInterval: c.Heartbeat, LateResults: c.LateResults}
	if c.Slots < 1 {
		return cfg, fmt.Errorf("slots is %d: set TURNPIKE_SLOTS or --slots to 1 or more, the maximum number of turns in flight", c.Slots)
	}
	err := errors.Join(
		mebibytes("MEMORY_MIB", total), mebibytes("ANSWERS_MIB", answers), mebibytes("FILE_MEMORY_MIB", files), mebibytes("VIEWS_MIB", views), mebibytes("MCP_MEMORY_MIB", c.Programs.MemoryMiB),
		positive("HEARTBEAT", c.Heartbeat), positive("LATE_RESULTS", c.LateResults), positive("SHUTDOWN_GRACE", c.ShutdownGrace),
	)
	if err != nil {
		return cfg, err
	}
	if cfg.Prices, err = loadPrices(c.Prices); err != nil {
		return cfg, err
	}
	cfg.RateLimits, err = loadRateLimits(c.RateLimits)
	return cfg, err
}

// loadPrices returns the built-in prices, overridden by those of a file; "" means no
// file.
func loadPrices(path string) (model.Prices, error) {
	prices := model.DefaultPrices()
	if path == "" {
		return prices, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the prices: %w: set TURNPIKE_PRICES or --prices to a file that this process can read", err)
	}
	own, err := model.ParsePrices(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	maps.Copy(prices, own)
	return prices, nil
}

// loadRateLimits returns the limits in a file; "" means no file.
func loadRateLimits(path string) (model.RateLimits, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the rate limits: %w: set TURNPIKE_RATE_LIMITS or --rate-limits to a file that this process can read", err)
	}
	limits, err := model.ParseRateLimits(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return limits, nil
}
