package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/gateway/server"
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

// Config is the configuration of a Gateway. A zero field has the default that its comment names; fields without one are
// optional. Config has many fields because it has every setting of a gateway process.
type Config struct {
	// Kinds of tool, Hooks, Providers and Loops are those that definitions may use. They must be those of the
	// workers: the gateway checks definitions against them, and refuses a definition that uses another name.
	// Default: those that ship with Turnpike.
	Kinds     tool.Specs
	Hooks     hook.Specs
	Providers model.Specs
	Loops     []string

	// Auth authenticates callers. Default: none; every caller has full access, and nothing is audited.
	Auth access.Authenticator

	// Login lets people log in to the page. Default: no logins. Without Auth, Login has no effect.
	Login *access.Login

	// PublicURL is the URL at which browsers reach the gateway, such as https://turnpike.example.com, without a path.
	// It must have the scheme https, or http at localhost, a name below it or a loopback address. Without it, people
	// can log in through an OpenID provider only there.
	PublicURL string

	// Services, Key and Secret find what a saved definition refers to and the deployment lacks: the client that saves
	// it gets warnings about that. Services returns the subjects on which services of a tenant answer; after an error
	// there is no warning about services. Key returns nil if the workers have a provider's own key, which models
	// without a key use; name is that of the secret, and host the provider's. Secret returns nil if the tenant may use
	// a secret at a host. Key and Secret otherwise return an error with the remedy. Default: none of these warnings.
	Services func(ctx context.Context, tenant string) (map[string]bool, error)
	Key      func(ctx context.Context, tenant, name, host string) error
	Secret   func(ctx context.Context, tenant, name, host string) error

	// HookSecret returns the value of a secret that senders use to sign deliveries to hooks of a tenant, if the policy
	// of the tenant allows the secret. Default: hooks are disabled.
	HookSecret func(tenant, name string, p policy.Policy) (string, error)

	// Streams are the JetStream streams that triggers may read. Default: triggers are disabled.
	Streams service.Streams

	// Prefix begins the subjects of the deployment, below which each tenant has its own. Default
	// "turnpike".
	Prefix string

	// Origins are the origins of other sites whose pages may make requests with a token, such as
	// https://app.example.com. Default: none.
	Origins []string

	// Tenant is the tenant of a request that names none, unless its principal has roles in one tenant only, and of a
	// delivery to a hook that names none. Over the bus, clients without a tenant always use "default". Default:
	// "default".
	Tenant string

	MaxBody int64 // maximum bytes of a request body; default 1 MiB

	MaxFile int64 // maximum bytes of an uploaded file; default 32 MiB

	// Limits bound the memory of request bodies, and connections, event streams and waits.
	Limits Limits

	// ModelExtra lists the fields of model.extra that saved definitions may set in addition to
	// those that the providers allow, as "PROVIDER:FIELD".
	ModelExtra []string

	// MaxResult is the maximum of max_result, in bytes, of tools in definitions that are saved from now on. Default:
	// tool.MaxResult, 4 MiB.
	MaxResult int

	// Hosts are host names, without ports, at which clients may address the API in addition to localhost, names below
	// it, IP addresses and the host of PublicURL, such as the name of a proxy. At loopback addresses the gateway
	// refuses all other names. At other addresses it always accepts names without a dot; it refuses other names if
	// Hosts is not empty, Auth is nil or Auth is an access.RequestAuthenticator.
	Hosts []string

	// DisableMetricsRoute omits /metrics from Handler, for a process that serves Registry at another address.
	DisableMetricsRoute bool

	// Retention bounds how long runs are kept after they have ended: Run deletes them later. An agent may keep its runs
	// for a shorter time. A zero period sets no bound, so runs are kept as long as their agents say, or forever.
	// Retention.Events has no effect here: the bus bounds the event feed.
	Retention agent.Retention

	// Restore reports and carries out the decision about a store that was restored from an older copy. Nil: no decision
	// is needed.
	Restore *restore.Review

	// RedeliveryDelay is the time after which a sweeper publishes another message for a new run whose first message was
	// lost. Default: 5 s.
	RedeliveryDelay time.Duration

	// StoreBudget bounds how long one request waits for the store in total; then the response has status 503. Requests
	// that make many calls or wait, such as streams, batches and deletions, have this time for each call. Default: 3 s.
	StoreBudget time.Duration

	// WriteTimeout is the time after which the gateway disconnects a client that receives nothing of a response or of a
	// stream. Default: 30 s.
	WriteTimeout time.Duration

	// ShutdownDelay delays the shutdown of Serve after its context has ended, while GET /readyz returns 503,
	// so that load balancers stop sending requests before the listener closes. Default: 0.
	ShutdownDelay time.Duration

	// Checks, if not nil, inspects the dependencies for GET /readyz: a fatal finding means that the gateway is not
	// ready. Each request calls it, so several calls may run at once.
	Checks func(ctx context.Context) []state.Finding

	// Tracer makes the spans of submissions and of other requests that change
	// something. Default: none; runs keep the trace context of their callers.
	Tracer trace.TracerProvider

	// Random is the source of the ids of runs and signals. It must be safe for concurrent use. Default: crypto/rand.
	Random io.Reader

	Logger   *slog.Logger         // nil: no log
	Registry *prometheus.Registry // nil: a new registry
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

// validate returns an error if a setting is invalid that no other part checks.
func (c Config) validate() error {
	errs := []error{server.CheckHosts(c.Hosts)}
	if err := access.CheckTenant(c.Tenant); err != nil {
		errs = append(errs, fmt.Errorf("the default tenant (TURNPIKE_TENANT; in Go, Options.Tenant) is not valid: %w", err))
	}
	if c.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("TURNPIKE_DRAIN, the time to serve after SIGTERM, is %s: set 0 or more", c.ShutdownDelay))
	}
	if c.WriteTimeout < 0 {
		errs = append(errs, fmt.Errorf("GatewayOptions.WriteTimeout is %s: set a positive duration, or 0 for the default of 30s", c.WriteTimeout))
	}
	return errors.Join(errs...)
}

// tracer returns the tracer of the gateway, or nil.
func (c Config) tracer() trace.Tracer {
	if c.Tracer == nil {
		return nil
	}
	return c.Tracer.Tracer("github.com/turnpike-dev/turnpike/internal/gateway")
}
