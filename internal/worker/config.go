package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/build"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Config tunes a Worker. The zero value of each field gives its default.
type Config struct {
	// ID names the worker in leases, logs and the audit trail. It must be unique
	// among the workers of a deployment. Required.
	ID string

	// Version is the build that heartbeats name. Default: the version of the main module.
	Version string

	// Slots bounds the turns in flight. Default 1000.
	Slots int

	// MaxNoisyTurns bounds the turns of noisy tenants that use the store and the bus at once,
	// while tenants share the worker. Turns that wait for a model or a tool do not count.
	// Default 4 for each processor, at least 8.
	MaxNoisyTurns int

	// Providers by the name that agents use; see model.Described. MockResponses, if not
	// nil, replace the model of every agent (K8); they need the provider "scripted".
	Providers     map[string]model.Provider
	MockResponses []model.Scripted

	// Keys are the API keys of providers, by name, or references (secret://NAME) to them, for
	// models that name neither a key nor an address of their own. References are the
	// deployment's: see Secrets.
	Keys map[string]string

	// Prices of models, by name. Default model.DefaultPrices().
	Prices model.Prices

	// RateLimits that the worker keeps, together with all others of the deployment,
	// which must have the same.
	RateLimits model.RateLimits

	// Breakers say when a model that does not answer is given a rest.
	Breakers model.BreakerPolicy

	// Kinds of tool by name, the tools in Go among them. Default toolspec.Kinds(nil). A
	// definition of any other kind is refused: its runs end invalid_agent.
	Kinds tool.Kinds

	// Hooks are the kinds of hook by name, the hooks in Go among them. Default
	// hookspec.Kinds(nil).
	Hooks hook.Kinds

	// Loops by name. Default loop.Builtin().
	Loops loop.Registry

	// SecretsDir holds one file a secret, and Getenv reads those in variables: see Secrets.
	SecretsDir string
	Getenv     func(name string) string

	// Policy says what the agents of a tenant may use, and is asked before each call of a
	// model, and of a tool that has hosts or a program. Default: they may use everything.
	Policy func(ctx context.Context, tenant string) (policy.Policy, error)

	// Tracer makes the spans of turns, model calls and tool calls. Default: none, at
	// no cost. TraceContent puts into them what was said: prompts, answers, arguments
	// and results, cut to size, never the value of a secret reference.
	Tracer       trace.TracerProvider
	TraceContent bool

	// Meter makes the metrics of the conventions for generative AI. Default: none, at no
	// cost.
	Meter metric.MeterProvider

	// Restore says whether the deployment waits for the decision about an older copy of the
	// store, for Ready. Nil never waits.
	Restore *restore.Watch

	// Random is read for the tokens of leases, and for jitter, by several goroutines at
	// once. Two workers that read the same may both think that they hold a run. Default
	// crypto/rand.
	Random io.Reader

	Logger   *slog.Logger         // nil: no log
	Registry *prometheus.Registry // nil: a registry of its own

	// LeaseDuration is the time for which a claim holds without a renewal. The worker renews
	// it at a third of that time. Default 25 s.
	LeaseDuration time.Duration

	// RedeliveryDelay is how long a due run is left to its message before the sweeper
	// publishes another. Default 5 s.
	RedeliveryDelay time.Duration

	// SweepInterval is the period of the sweeper. Default 1 s.
	SweepInterval time.Duration

	// HeartbeatInterval is the period of the heartbeats. A worker that misses four of them is
	// dead. Default 300 ms.
	HeartbeatInterval time.Duration

	// LateResults is how long a turn that is taken up after its worker was lost waits for
	// the results of calls that may not be made twice: the worker may only have been
	// paused. Then the outcome counts as unknown. Of a worker that is back they are waited
	// for four times as long. Default 3 s; a negative one is none.
	LateResults time.Duration

	// ProbeMargin is how long after the deadline of a call its tool's probe is believed that it
	// was not done, if the probe does not promise to refuse its idempotency key: a request may
	// be on its way for so long. Default 10 s.
	ProbeMargin time.Duration

	// ShutdownGrace is how long Run lets turns finish after its context has
	// ended. Default 20 s.
	ShutdownGrace time.Duration

	// MaxAttempts is how often a turn is claimed without a commit before its run
	// ends poisoned. Default 5.
	MaxAttempts int

	// MaxAbandoned is how many calls of tools, hooks and models may be in flight past their
	// time limits, with nobody waiting for them, before Ready says so. Default 100.
	MaxAbandoned int

	// ModelOutput bounds the bytes of a model's response: text, reasoning and arguments of calls.
	// One that is longer is a failed call. Default 8 MiB.
	ModelOutput int

	// ToolOutput bounds the bytes of a result of a tool without a max_result. Default 128 KiB.
	ToolOutput int

	// MaxResult bounds the max_result of tools. Default tool.MaxResult, 4 MiB.
	MaxResult int

	// AnswerMemory is the memory for the answers of tools of all turns, in bytes: a call starts
	// when its max_result is free. Default 256 MiB.
	AnswerMemory int64

	// EventFeed publishes the committed events of runs as messages, behind their turns.
	// The bus must have a feed.
	EventFeed bool

	// Without takes optimisations out. Runs end in the same way without them.
	Without Optimisations
}

// Optimisations are what a worker does to be faster or smaller. None of them changes what
// becomes of a run.
type Optimisations struct {
	// EagerClaims: a commit claims the turn that follows, too.
	EagerClaims bool

	// Executor: steps that need a deep stack run on goroutines that keep theirs.
	Executor bool

	// Quarantine: turns with which workers were lost are taken a few at a time.
	Quarantine bool
}

// periods returns the times of the protocol.
func (c Config) periods() upkeep.Periods {
	return upkeep.Periods{
		Lease: c.LeaseDuration, RedeliveryDelay: c.RedeliveryDelay, Sweep: c.SweepInterval, Heartbeat: c.HeartbeatInterval, LateResults: c.LateResults,
	}
}

// Defaults returns the settings with the default of each that is not set.
func (c Config) Defaults() Config { return c.withDefaults() }

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.LeaseDuration, 25*time.Second)
	def(&c.RedeliveryDelay, 5*time.Second)
	def(&c.SweepInterval, time.Second)
	def(&c.HeartbeatInterval, 300*time.Millisecond)
	def(&c.LateResults, 3*time.Second)
	def(&c.ProbeMargin, 10*time.Second)
	def(&c.ShutdownGrace, 20*time.Second)
	if c.Slots == 0 {
		c.Slots = 1000
	}
	if c.MaxNoisyTurns == 0 {
		c.MaxNoisyTurns = max(8, 4*runtime.GOMAXPROCS(0))
	}
	c.Version = cmp.Or(c.Version, build.Version())
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 5
	}
	if c.MaxAbandoned == 0 {
		c.MaxAbandoned = 100
	}
	if c.ModelOutput == 0 {
		c.ModelOutput = 8 << 20
	}
	if c.ToolOutput == 0 {
		c.ToolOutput = 128 << 10
	}
	if c.MaxResult == 0 {
		c.MaxResult = tool.MaxResult
	}
	if c.AnswerMemory == 0 {
		c.AnswerMemory = 256 << 20
	}
	if c.Prices == nil {
		c.Prices = model.DefaultPrices()
	}
	if c.Loops == nil {
		c.Loops = loop.Builtin()
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Kinds == nil {
		c.Kinds = toolspec.Kinds(nil)
	}
	if c.Hooks == nil {
		c.Hooks = hookspec.Kinds(nil)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.ID == "" {
		errs = append(errs, errors.New("worker id is empty"))
	}
	if c.Slots < 0 {
		errs = append(errs, fmt.Errorf("slots is %d, want at least 1", c.Slots))
	}
	if c.MaxNoisyTurns < 0 {
		errs = append(errs, fmt.Errorf("max noisy turns is %d, want at least 1", c.MaxNoisyTurns))
	}
	if c.MaxResult < 0 || c.AnswerMemory < 0 {
		errs = append(errs, fmt.Errorf("the largest result is %d bytes and the memory for answers %d, want at least 1", c.MaxResult, c.AnswerMemory))
	}
	if c.LeaseDuration < 0 || c.RedeliveryDelay < 0 || c.SweepInterval < 0 || c.HeartbeatInterval < 0 || c.ShutdownGrace < 0 {
		errs = append(errs, errors.New("a duration is negative"))
	}
	if c.MockResponses != nil && c.Providers["scripted"] == nil {
		errs = append(errs, errors.New("mock responses need the provider \"scripted\""))
	}
	return errors.Join(errs...)
}
