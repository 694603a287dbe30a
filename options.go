package turnpike

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/access"
	core "github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Models holds providers of models by the name that agents use.
type Models = map[string]model.Provider

// NATS configures the connection to NATS. The zero value is nats://127.0.0.1:4222 without a login.
type NATS struct {
	// URL of a server with JetStream, or several, separated by commas.
	URL string

	// Conn is used instead of URL and Login. It stays open after Close.
	Conn *nats.Conn

	Login NATSLogin

	Domain   string // JetStream domain of the streams; default that of the server
	Replicas int    // of each stream; Open raises it on streams with fewer; default 1, set 3 on a cluster

	// Keys sign live events, heartbeats, aborts and the event feed, as TURNPIKE_BUS_KEYS does. They must be the same in
	// all processes. Default: no signatures.
	Keys Secret

	// EventFeed also publishes the committed events of runs as messages on PREFIX.events.>. It must be the same in all
	// processes. Default: false.
	EventFeed bool

	// Limits bound the streams other than those of turns, in bytes.
	Limits natsbus.Limits

	// TurnStreams is the number of streams of turns, from 1 to 64; the process that opens the deployment last decides.
	// MaxAckPending is the maximum number of unacknowledged messages of each queue of turns, in each of these streams.
	// 0 keeps the number of streams, and allows 50,000 messages, or more if the slots of the workers need more.
	TurnStreams, MaxAckPending int
}

// OIDC names an OpenID provider, for [Deployment.KeyAuth]. Issuer and Audience are required.
type OIDC struct {
	Issuer   string // its URL, as in the claim iss
	Audience string // of accepted tokens

	// Claims is an expression in CEL over claims that returns an object with tenant and roles. Default: the claims
	// tenant and roles.
	Claims string

	// ClientID, ClientSecret and Scopes are those of the login of the page. ClientSecret is read once, by KeyAuth. The
	// login adds openid to Scopes that lack it. Default: the audience; none; and openid, profile, email.
	ClientID     string
	ClientSecret Secret
	Scopes       []string
}

// Redis configures the Redis server that stores the checkpoints. Without a URL, JetStream stores them, or
// Options.Store does.
type Redis struct {
	URL   string // such as redis://127.0.0.1:6379
	Login RedisLogin

	// Confirm names the copies that must have a write before the store acknowledges it, except for writes that may be
	// lost, such as those of leases (see redisstore.Config): off for none but the memory of the server, replicas:N for
	// the memory of N replicas, aof for the append-only file of the server, or aof:N for that file and those of N
	// replicas. A write that is not confirmed within a second fails, but may still be stored. Default off.
	Confirm string
}

// Options of a Deployment. The zero value of each field is its default. All processes of a deployment must use the same
// servers, Prefix, LeaseDuration and MaxResult, and the same settings in NATS and Redis other than addresses and
// logins. Options has many fields because it has every setting of a deployment in one process.
type Options struct {
	// Name of this process in logs, in the audit and at the servers. Default "turnpike".
	Name string

	NATS  NATS
	Redis Redis

	// Store replaces the store on Redis or JetStream, and Bus the bus on NATS. They stay open after Close. Open fails
	// if the Store is a state.Checker with a fatal finding. With a Bus, Open connects to NATS only if NATS has a URL or
	// a Conn.
	Store state.Store
	Bus   bus.Bus

	Prefix string // first part of the names of subjects, streams and keys; default "turnpike"
	Tenant string // of the Client, and of principals that name none; default "default"

	// LeaseDuration is the time after which other workers take over the turns of a worker that renews no lease. They
	// take over those of a worker without heartbeats earlier: see WorkerOptions.HeartbeatInterval. Default 25 s.
	LeaseDuration time.Duration

	// MaxResult bounds the max_result of tools, in bytes. Default 4 MiB.
	MaxResult int

	// ModelExtra lists the fields that model.extra of agents may set besides those that the providers
	// allow, as "PROVIDER:FIELD": "openai:prompt_cache_retention". See model.Extras.
	ModelExtra []string

	OIDC OIDC // for KeyAuth; default: API keys only

	// Retention bounds how long ended runs and the events of the feed are kept: gateways delete older runs, and NATS
	// drops older events. An agent may keep its runs for a shorter time. The zero value sets no bound for runs, and keeps
	// events for NATS.Limits.EventsAge.
	Retention agent.Retention

	// Tools, Models, Loops, Hooks, Kinds and HookKinds are what agents may name in addition to the built-in ones.
	// Workers use them, and gateways check definitions against them, except for the names of Hooks. A worker calls only
	// the model providers in Models, and calls tools over HTTP, NATS, MCP and A2A and hooks over NATS only if Kinds and
	// HookKinds have these kinds: package standard makes them. The maps must not change after Open.
	Tools     []Tool
	Models    Models
	Loops     loop.Registry
	Hooks     map[string]hook.Hook
	Kinds     tool.Kinds
	HookKinds hook.Kinds

	Logger  *slog.Logger         // default: no log
	Metrics *prometheus.Registry // for one worker and one gateway at most; default: none
	Tracer  trace.TracerProvider // default: no spans
	Meter   metric.MeterProvider // default: no metrics of OpenTelemetry

	keys   map[string]string        // API keys by provider, from FromEnv
	getenv func(name string) string // finds secrets in variables; from FromEnv
	faults []error                  // of FromEnv
}

// checked returns the kind of the tools in Go. The error joins the mistakes of the options, those of FromEnv included.
func (o Options) checked() (*goKind, error) {
	errs := slices.Clone(o.faults)
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	kind, err := newGoKind(o.Tools)
	errs = append(errs, err)
	if o.Tenant != "" {
		errs = append(errs, access.CheckTenant(o.Tenant))
	}
	if typedNil(o.Store) {
		refuse("Store holds a nil %T: set a store, or leave Store unset", o.Store)
	}
	if typedNil(o.Bus) {
		refuse("Bus holds a nil %T: set a bus, or leave Bus unset", o.Bus)
	}
	if o.Bus != nil && o.Store == nil && o.Redis.URL == "" {
		refuse("Bus is set, but neither Store nor Redis.URL is set: set one of these two")
	}
	if o.Store != nil && o.Redis.URL != "" {
		refuse("Store and Redis.URL are both set: unset one of them")
	}
	if o.NATS.Replicas < 0 {
		refuse("NATS.Replicas is %d: set 1 to 5", o.NATS.Replicas)
	}
	if o.OIDC.Issuer != "" || o.OIDC.Audience != "" {
		_, err := o.OIDC.provider()
		errs = append(errs, err)
	}
	if o.MaxResult < 0 {
		refuse("MaxResult is %d: set 1 or more", o.MaxResult)
	}
	if _, err := model.NewExtras(model.SpecsOf(o.Models), o.ModelExtra); err != nil {
		errs = append(errs, fmt.Errorf("ModelExtra: %w", err))
	}
	if o.LeaseDuration < 0 {
		refuse("LeaseDuration is %s: set more than 0", o.LeaseDuration)
	}
	for _, period := range []struct {
		name  string
		value agent.Period
		zero  string
	}{{"Completed", o.Retention.Completed, "to keep all"}, {"Failed", o.Retention.Failed, "to keep all"}, {"Events", o.Retention.Events, "for NATS.Limits.EventsAge"}} {
		if period.value != 0 && period.value < agent.Period(agent.ShortestPeriod) {
			refuse("Retention.%s is %s: set %s or more, or 0 %s", period.name, period.value, agent.ShortestPeriod, period.zero)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Models)) {
		if absent(o.Models[name]) {
			refuse("Models[%q] is nil: remove it, or set a provider", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Loops)) {
		if o.Loops[name] == nil {
			refuse("Loops[%q] is nil: remove it, or set a loop", name)
		}
		if loop.Builtin()[name] != nil {
			refuse("Loops[%q] has the name of a built-in loop: rename it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Hooks)) {
		if absent(o.Hooks[name]) {
			refuse("Hooks[%q] is nil: remove it, or set a hook", name)
		}
	}
	for _, name := range o.Kinds.Names() {
		if absent(o.Kinds[name]) {
			refuse("Kinds[%q] is nil: remove it, or set a kind", name)
		}
		if name == toolspec.Go {
			refuse("Kinds has the name %q, which is reserved for the tools in Options.Tools: remove it from Kinds, and register its tools in Options.Tools", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.HookKinds)) {
		if absent(o.HookKinds[name]) {
			refuse("HookKinds[%q] is nil: remove it, or set a kind", name)
		}
	}
	return kind, errors.Join(errs...)
}

// provider returns the authenticator for tokens of the provider, or nil if the options name none.
func (o OIDC) provider() (*access.OIDC, error) {
	if o.Issuer == "" && o.Audience == "" {
		return nil, nil
	}
	if o.Issuer == "" || o.Audience == "" {
		return nil, fmt.Errorf("OIDC.Issuer is %q and OIDC.Audience is %q, and one of them is empty: set both, or none", o.Issuer, o.Audience)
	}
	return access.NewOIDC(access.OIDCConfig{Issuer: o.Issuer, Audience: o.Audience, Claims: o.Claims})
}

// absent reports whether an interface is nil or holds a nil value.
func absent(v any) bool { return v == nil || typedNil(v) }

// typedNil reports whether an interface holds a nil pointer, function, map, channel or slice.
func typedNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}

// config returns the options as the configuration of package internal/deploy.
func (o Options) config() core.Config {
	return core.Config{
		Name: o.Name, NATSURL: o.NATS.URL, NATS: o.NATS.Conn, NATSLogin: o.NATS.Login.login(), NATSDomain: o.NATS.Domain, Replicas: o.NATS.Replicas,
		RedisURL: o.Redis.URL, RedisLogin: o.Redis.Login.login(), RedisConfirm: o.Redis.Confirm, Store: o.Store, Bus: o.Bus,
		Prefix: o.Prefix, Lease: o.LeaseDuration, Retention: o.Retention, MaxResult: o.MaxResult,
		BusKeys: o.NATS.Keys.value("NATS.Keys"), EventFeed: o.NATS.EventFeed, StreamLimits: o.NATS.Limits, TurnStreams: o.NATS.TurnStreams, MaxAckPending: o.NATS.MaxAckPending,
		Logger: o.Logger, Registry: o.Metrics, Tracer: o.Tracer, Meter: o.Meter,
	}
}
