package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Limits bound what callers may have open at once.
type Limits = limit.Limits

// Config of a Gateway. The zero value of each field gives its default. It has many fields because it has
// every setting of a gateway process.
type Config struct {
	// Kinds of tool, Hooks, Providers and Loops are those of the workers, by name, as far
	// as definitions must be checked against them. A definition that names another one is
	// refused. Default: those that ship with Turnpike.
	Kinds     tool.Specs
	Hooks     hook.Specs
	Providers model.Specs
	Loops     []string

	// Auth authenticates callers. Default: no authentication; every caller has full access.
	Auth access.Authenticator

	// Login lets people log in to the page. Default: no logins.
	Login *access.Login

	// PublicURL is the address by which browsers reach the gateway, as in
	// https://turnpike.example.com. Without it people log in through an OpenID provider under
	// names of this machine only.
	PublicURL string

	// Services returns the subjects on which services answer a tenant. Secret returns nil if a
	// tenant has a secret for a host. Key returns nil if the workers have a key of their own for
	// a provider, which models without a secret use. A client that saves a definition gets a
	// warning about each missing one. Default: no warnings.
	Services func(ctx context.Context, tenant string) (map[string]bool, error)
	Key      func(ctx context.Context, tenant, name, host string) error
	Secret   func(ctx context.Context, tenant, name, host string) error

	// HookSecret returns the value of a secret that signs deliveries to hooks of a tenant, if its policy
	// allows that. Default: there are no hooks.
	HookSecret func(tenant, name string, p policy.Policy) (string, error)

	// Streams are the JetStream streams that triggers may read. Default: there are no triggers.
	Streams service.Streams

	// Prefix begins the subjects of the deployment, below which each tenant has its own. Default
	// "turnpike".
	Prefix string

	// Origins are those of other sites whose pages may make requests with a token, such as
	// https://app.example.com. Default: none.
	Origins []string

	// Tenant is that of requests by principals of the whole deployment that name none, and
	// of submissions over the bus that name none. Default "default".
	Tenant string

	MaxBody int64 // bytes of a request; default 1 MiB

	MaxFile int64 // bytes of an uploaded file; default 32 MiB

	// Limits bound the memory of requests, and connections, event streams and waits.
	Limits Limits

	// ModelExtra lists the fields of model.extra that saved definitions may set in addition to
	// those that the providers allow, as "PROVIDER:FIELD".
	ModelExtra []string

	// MaxResult bounds the max_result of tools in saved definitions. Default
	// tool.MaxResult, 4 MiB.
	MaxResult int

	// Hosts are names, without ports, by which clients may address the API in addition to localhost
	// and IP addresses, such as that of a proxy. If there are any, or on loopback, or without Auth,
	// other names are refused, except names without a dot beyond loopback.
	Hosts []string

	// DisableMetricsRoute removes /metrics from this address, for a process that serves
	// Registry on another one.
	DisableMetricsRoute bool

	// Retention is the time for which runs are kept after they have ended: Run deletes older ones.
	// An agent may keep its runs for less. The zero value keeps them without limit.
	Retention agent.Retention

	// Restore reports and carries out a decision about a store that was restored from an older
	// copy. Nil: there is nothing to decide.
	Restore *restore.Review

	// RedeliveryDelay is the time after which the sweeper publishes another message for a new
	// run whose first one was lost. Default 5 s.
	RedeliveryDelay time.Duration

	// StoreBudget bounds the time for which one request waits for the store, in all its calls
	// together. Then the response is 503. Streams, batches, deletions and waits have it for each
	// call. Default 3 s.
	StoreBudget time.Duration

	// WriteTimeout is the time after which a client that receives nothing of a response or of a
	// stream is disconnected. Default 30 s.
	WriteTimeout time.Duration

	// ShutdownDelay is the time for which Serve continues after its context has ended, while
	// GET /readyz returns 503, so that load balancers stop sending requests before the
	// listener closes. Default 0.
	ShutdownDelay time.Duration

	// Checks, if not nil, inspects the dependencies for GET /readyz: a fatal
	// finding means not ready.
	Checks func(ctx context.Context) []state.Finding

	// Tracer makes the spans of submissions and of other requests that change
	// something. Default: none; runs keep the trace context of their callers.
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
	if c.MaxFile == 0 {
		c.MaxFile = service.DefaultMaxFile
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

// tracer returns the tracer of the gateway, or nil.
func (c Config) tracer() trace.Tracer {
	if c.Tracer == nil {
		return nil
	}
	return c.Tracer.Tracer("github.com/turnpike-dev/turnpike/internal/gateway")
}
