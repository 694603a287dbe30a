package deploy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// Config has the addresses and settings of a deployment. The zero value of each field gives its default. Prefix, Lease,
// BusKeys and EventFeed must be the same in all processes of a deployment, and RedisURL must lead to the same Redis in
// all of them, or be empty in all. RedisConfirm, Replicas, MaxAckPending, StreamLimits and MaxResult should be the
// same.
type Config struct {
	// NATSURL is the address of a NATS server with JetStream, or several addresses separated by commas. Default
	// nats://127.0.0.1:4222.
	NATSURL string

	// NATSLogin has the credentials for NATS. A user and a password in the URL take precedence.
	NATSLogin natslogin.Login

	// NATSDomain is the JetStream domain that has the streams. Default: the domain of the connected server.
	NATSDomain string

	// NATS is a connection to use instead of one to NATSURL. The caller owns it: Close leaves it open.
	NATS *nats.Conn

	// Store and Bus replace those on Redis and NATS. Open checks a Store that is a
	// state.Checker. The caller owns them: Close leaves them open. With a Bus, Open connects
	// to NATS only if NATSURL is set and NATS is nil, and there must be a Store or a RedisURL.
	Store state.Store
	Bus   bus.Bus

	// BusKeys are the keys that sign live events and heartbeats, in the form that natsbus.ParseKeys reads; the
	// same in every process. Default: nothing is signed.
	BusKeys credential.Value

	// RedisURL is the address of the Redis server that keeps checkpoints, such as
	// redis://127.0.0.1:6379. Without it JetStream keeps them.
	RedisURL string

	// RedisLogin has the credentials for Redis. Those in the URL take precedence.
	RedisLogin redisstore.Login

	// RedisConfirm says which copies of Redis must have a write before it is acknowledged:
	// redisstore.Config.Confirm. Default "off".
	RedisConfirm string

	// Prefix begins the names of subjects, streams and keys. Default "turnpike".
	Prefix string

	// Replicas is the number of replicas of streams. Open raises that of existing streams with fewer. Default
	// 1; on a cluster of three NATS servers or more it should be 3.
	Replicas int

	// TurnStreams is the number of streams over which turns are spread; see natsbus.Config. The process that
	// opens the deployment last sets it for all. Default 0: the number stays.
	TurnStreams int

	// MaxAckPending is the maximum number of unacknowledged messages of a queue of turns, for
	// each stream. Default 0: 50,000, or more if the slots of the workers need more.
	MaxAckPending int

	// StreamLimits bound the streams other than those of turns, in bytes, and the age of events in the feed,
	// which Retention.Events replaces.
	StreamLimits natsbus.Limits

	// Retention limits how long ended runs and the event feed are kept. An agent may set a
	// shorter time for its runs. Gateways delete older ones; the zero value keeps them
	// indefinitely.
	Retention agent.Retention

	// MaxResult bounds the max_result of tools, in bytes, at most effect.MaxTurnAnswers. Default 4 MiB.
	MaxResult int

	// Lease bounds how long a worker keeps a turn without renewing its claim. Workers evict a dead worker
	// earlier, when its heartbeats stop. Default 25 s.
	Lease time.Duration

	// EventFeed makes workers also publish the events of runs on PREFIX.events.>, one JSON message for each
	// event. The API does not need it.
	EventFeed bool

	// Name is the name of the connection in NATS. Default "turnpike".
	Name string

	// Logger receives the messages of the parts of the deployment. Default: none.
	Logger *slog.Logger

	// Registry gets the metrics of the worker and of the gateway that this process has; it has one of each at
	// most. Default: a registry for each of them.
	Registry *prometheus.Registry

	// Tracer makes the spans of gateways and workers. TraceContent adds prompts, answers, arguments and results
	// to them. Default: none, at no cost.
	Tracer       trace.TracerProvider
	TraceContent bool

	// Meter makes the metrics of workers that follow the conventions for generative AI.
	// Default: none.
	Meter metric.MeterProvider
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.NATSURL == "" && c.Bus == nil {
		c.NATSURL = nats.DefaultURL
	}
	if c.Prefix == "" {
		c.Prefix = "turnpike"
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Lease == 0 {
		c.Lease = 25 * time.Second
	}
	if c.Name == "" {
		c.Name = "turnpike"
	}
	return c
}

// Validate returns an error that names the invalid settings and their remedies.
func (c Config) Validate() error {
	var errs []error
	if c.Replicas < 0 {
		errs = append(errs, fmt.Errorf("replicas is %d: set 1 to 5 (TURNPIKE_NATS_REPLICAS; in Go, NATS.Replicas)", c.Replicas))
	}
	if c.Lease < 0 {
		errs = append(errs, fmt.Errorf("lease is %s: set more than 0 (TURNPIKE_LEASE; in Go, LeaseDuration)", c.Lease))
	}
	if c.Bus != nil && c.Store == nil && c.RedisURL == "" {
		errs = append(errs, errors.New("Bus is set, but neither Store nor RedisURL is set: set one of these two"))
	}
	if c.MaxResult < 0 || c.MaxResult > effect.MaxTurnAnswers {
		errs = append(errs, fmt.Errorf("max result is %d bytes: set 1 to %d, which all results of a turn may have together (TURNPIKE_MAX_RESULT; in Go, MaxResult)", c.MaxResult, effect.MaxTurnAnswers))
	}
	if c.RedisURL == "" && c.Store == nil && c.RedisConfirm != "" && c.RedisConfirm != "off" {
		errs = append(errs, fmt.Errorf("redis confirm is %s, but there is no Redis, so JetStream keeps the checkpoints: set TURNPIKE_REDIS_URL, or unset TURNPIKE_REDIS_CONFIRM (in Go, Redis.URL and Redis.Confirm)", c.RedisConfirm))
	}
	if c.RedisURL == "" && c.Store == nil {
		errs = append(errs, withoutRedis(c.RedisLogin)...)
	}
	return errors.Join(errs...)
}

// StoreKind names the kind of store that heartbeats report: Redis, JetStream, or "" for a Store of the caller.
func (c Config) StoreKind() string {
	switch {
	case c.Store != nil:
		return ""
	case c.RedisURL != "":
		return "Redis"
	default:
		return "JetStream"
	}
}

// withoutRedis refuses the settings of a login that have no effect without Redis. It allows User and Password, which
// `turnpike secrets` writes for each process, whatever keeps the checkpoints.
func withoutRedis(l redisstore.Login) (errs []error) {
	for _, s := range []redisstore.Secret{l.SentinelUser, l.SentinelPassword, l.TLS.CA, l.TLS.Cert, l.TLS.Key} {
		if v := credential.Value(s); v.Given() {
			errs = append(errs, fmt.Errorf("%[1]s is set, but there is no Redis, so JetStream keeps the checkpoints: set TURNPIKE_REDIS_URL (in Go, Redis.URL), or unset %[1]s", v.Name))
		}
	}
	return errs
}

// Keys reads BusKeys from its source. The error reports a source that cannot be read, or invalid keys.
func (c Config) Keys() (natsbus.Keys, error) {
	text, err := c.BusKeys.Read()
	if err != nil {
		return natsbus.Keys{}, err
	}
	return natsbus.ParseKeys(text)
}

// AckWait is the time that NATS waits for the acknowledgement of a turn's message. It is
// slightly longer than the lease, so that the worker that receives the message again can claim
// the turn.
func (c Config) AckWait() time.Duration { return c.withDefaults().Lease + 5*time.Second }
