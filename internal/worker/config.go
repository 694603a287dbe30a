package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/build"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Config configures a Worker. It has one field for each setting. The zero value of each field but ID means its
// default.
type Config struct {
	// ID names the worker in leases, logs and the audit trail. It must be unique
	// among the workers of a deployment. Required.
	ID string

	// Version is the build that heartbeats name. Default: the version of the main module.
	Version string

	// Slots bounds the turns in flight. Default 1000.
	Slots int

	// MaxNoisyTurns bounds how many turns of noisy tenants are claimed, committed or followed up at the same time,
	// while several tenants share the worker. A turn between its claim and its commit does not count: it mostly waits
	// for a model, a tool or a hook, although it also writes its journal. Races may exceed the bound by a few turns.
	// Default 4 for each processor, at least 8.
	MaxNoisyTurns int

	// Providers by the name that agents use; see model.Described. MockResponses, if not
	// nil, replace the model of every agent (K8); they need the provider "scripted".
	Providers     map[string]model.Provider
	MockResponses []model.Scripted

	// Keys are the API keys of providers, by name, or references (secret://NAME) to them, for models without a
	// key or an address of their own. See definition.Secrets.Key for the places of such a secret.
	Keys map[string]string

	// Prices of models, by name. Default model.DefaultPrices().
	Prices model.Prices

	// RateLimits that the worker keeps, together with all others of the deployment,
	// which must have the same.
	RateLimits model.RateLimits

	// Breakers configures the pauses of models that do not answer. Default: 15 s after five failures.
	Breakers model.BreakerPolicy

	// Kinds are the kinds of tool by name, including the one for tools in Go. Default toolspec.Kinds(nil). New adds
	// the kind memory, which needs the store, if it is missing. A run of an agent with a tool of any other kind
	// ends with invalid_agent.
	Kinds tool.Kinds

	// Hooks are the kinds of hook by name, the hooks in Go among them. Default
	// hookspec.Kinds(nil).
	Hooks hook.Kinds

	// Loops by name. Default loop.Builtin().
	Loops loop.Registry

	// SecretsDir holds one file for each secret, and Getenv returns the variables with secrets: see
	// definition.Secrets.
	SecretsDir string
	Getenv     func(name string) string

	// Policy returns the resources that the agents of a tenant may use. The worker calls it before each call of a
	// model, of a tool that has hosts or a program, and of a webhook, before it lists the tools of an MCP server, and
	// before it reads a secret that a definition or a webhook names. If Policy returns an error, the worker does none
	// of these. Policy must be safe for concurrent use. Default: agents may use everything.
	Policy func(ctx context.Context, tenant string) (policy.Policy, error)

	// WebhookClient sends events to the webhooks of runs. It must refuse addresses that only the worker can reach, and
	// must not follow redirects. Default: a client that reaches only public addresses, on port 443, with TLS.
	WebhookClient *http.Client

	// WebhookTimes are the times of the delivery to webhooks. Zero fields have the defaults.
	WebhookTimes webhook.Times

	// Tracer makes the spans of turns, model calls, tool calls, probes and submissions of child runs. Default: none, at
	// no cost. TraceContent adds prompts, answers, arguments and results to them, shortened. References to secrets
	// stay references in them, but a result contains what the tool returns.
	Tracer       trace.TracerProvider
	TraceContent bool

	// Meter makes the metrics of the OpenTelemetry conventions for generative AI. Default: none, at
	// no cost.
	Meter metric.MeterProvider

	// Restore reports, for Ready, whether the deployment waits for the decision about an older copy
	// of the store. Nil never waits.
	Restore *restore.Watch

	// Random is the source of lease tokens and of jitter. It must be safe for concurrent use. Two
	// workers that read the same bytes may both believe that they hold a run. Default crypto/rand.
	Random io.Reader

	Logger   *slog.Logger         // nil: no log
	Registry *prometheus.Registry // nil: a registry of its own

	// LeaseDuration is the lifetime of a claim without a renewal. The worker renews a claim after a
	// third of it. Default 25 s.
	LeaseDuration time.Duration

	// RedeliveryDelay is the time that a due run's message has until the sweeper publishes another
	// one. Default 5 s.
	RedeliveryDelay time.Duration

	// SweepInterval is the period of the sweeper. Default 1 s.
	SweepInterval time.Duration

	// HeartbeatInterval is the period of the heartbeats. Other workers evict a worker if neither they nor the
	// store have received four of them in a row. Default 300 ms.
	HeartbeatInterval time.Duration

	// LateResults is the time that a turn whose first worker was lost waits for results of calls that must not be
	// repeated: the worker may only have been paused. After that time the outcome counts as unknown, unless a probe
	// determines it. If that worker was evicted and its heartbeats resume, the turn waits four times as long. Default
	// 3 s; a negative value disables the wait.
	LateResults time.Duration

	// ProbeMargin is the time after the deadline of a call from which a probe's "not done" is final: a request may be
	// in transit for that time. If the probe promises to refuse the idempotency key, "not done" is final at once.
	// Default 10 s.
	ProbeMargin time.Duration

	// ShutdownGrace is the time that Run gives turns to finish after its context has ended. Default
	// 20 s.
	ShutdownGrace time.Duration

	// CheckpointBytes is the memory that the entries of a run's log after its last checkpoint may take, in addition to
	// the size of that checkpoint: above it a turn begins with the next checkpoint. Default 1 MiB.
	CheckpointBytes int64

	// MaxAttempts is the number of claims of a turn without a commit after which its run ends poisoned. Claims that a
	// worker released do not count, nor do those whose worker has shown later that it was only paused. Default 5.
	MaxAttempts int

	// MaxAbandoned is the maximum number of calls of tools, hooks and models that continue although they were
	// cancelled, at their time limits or with their turns; with more, Ready returns an error. Default 100.
	MaxAbandoned int

	// ModelPrompt bounds the memory of the messages of a model call, in bytes. With more, the prompt counts as
	// too long, whatever the model accepts: a claim reads the history from the store in one request, which blocks
	// that part of the store for other requests. Default 64 MiB, twice what the tools of one turn may answer.
	ModelPrompt int64

	// ModelOutput bounds the bytes of a model's response: text, reasoning and arguments of calls. A
	// call with a longer response has failed. Default 8 MiB.
	ModelOutput int

	// ToolOutput bounds the bytes of a result of a tool without a max_result. Default 128 KiB.
	ToolOutput int

	// MaxResult bounds the max_result of tools. Default tool.MaxResult, 4 MiB.
	MaxResult int

	// AnswerMemory is the memory for tool answers and long model responses of all turns, in bytes: the calls of a
	// turn start when the memory for their results is free. A response that gets none while it arrives fails. Default
	// 256 MiB.
	AnswerMemory int64

	// FileMemory is the memory for the contents of uploaded files in model calls, in bytes. A call takes three times
	// the size of its files, or all of the memory if that is less, and waits until it is free. The calls of one
	// tenant take at most half of the memory together; only a call without others of its tenant may take more.
	// Default 256 MiB.
	FileMemory int64

	// ViewMemory is the memory for what models see of runs, for views above 256 KiB, in bytes: a turn continues when
	// twice the size of its view is free, or all of the memory if that is less, and waits or is released until then.
	// Default 512 MiB.
	ViewMemory int64

	// EventFeed publishes the committed events of runs as messages, after their turns. The bus must
	// have a feed.
	EventFeed bool

	// Without disables optimisations. Runs end in the same way without them.
	Without Optimisations
}

// Optimisations make a worker faster or smaller. None of them changes the outcome of a run. In Config.Without,
// true disables one.
type Optimisations struct {
	// EagerClaims: a commit also claims the turn that follows.
	EagerClaims bool

	// Sticky: the message of a turn that this worker has claimed eagerly goes to its own queue.
	Sticky bool

	// Quarantine: a worker executes few turns at once whose earlier workers were lost.
	Quarantine bool
}

// periods returns the times of the protocol.
func (c Config) periods() upkeep.Periods {
	return upkeep.Periods{
		Lease: c.LeaseDuration, RedeliveryDelay: c.RedeliveryDelay, Sweep: c.SweepInterval, Heartbeat: c.HeartbeatInterval, LateResults: c.LateResults,
	}
}

// Defaults returns c with the defaults of all fields that are zero.
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
	if c.WebhookClient == nil {
		c.WebhookClient = guard.Public()
	}
	c.Version = cmp.Or(c.Version, build.Version())
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 5
	}
	if c.MaxAbandoned == 0 {
		c.MaxAbandoned = 100
	}
	if c.ModelPrompt == 0 {
		c.ModelPrompt = 64 << 20
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
	if c.FileMemory == 0 {
		c.FileMemory = 256 << 20
	}
	if c.ViewMemory == 0 {
		c.ViewMemory = 512 << 20
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
		errs = append(errs, errors.New("the worker's ID is empty: set TURNPIKE_WORKER_ID (in Go, WorkerOptions.ID)"))
	}
	if c.Slots < 0 {
		errs = append(errs, fmt.Errorf("WorkerOptions.Slots, the maximum number of turns in flight, is %d: set 1 or more, or 0 for the default", c.Slots))
	}
	if c.MaxAttempts < 0 {
		errs = append(errs, fmt.Errorf("WorkerOptions.MaxAttempts, the attempts of a turn after which its run fails, is %d: set 1 or more, or 0 for the default", c.MaxAttempts))
	}
	if c.MaxNoisyTurns < 0 {
		errs = append(errs, fmt.Errorf("the number of turns of noisy tenants that may run at once is %d: set 1 or more (TURNPIKE_NOISY_TURNS)", c.MaxNoisyTurns))
	}
	if c.MaxResult < 0 {
		errs = append(errs, fmt.Errorf("the maximum size of a result is %d bytes: set 1 or more (TURNPIKE_MAX_RESULT; in Go, MaxResult)", c.MaxResult))
	}
	if c.AnswerMemory < 0 {
		errs = append(errs, fmt.Errorf("the memory for answers is %d MiB: set 1 or more (TURNPIKE_ANSWERS_MIB)", c.AnswerMemory>>20))
	}
	if c.FileMemory < 0 {
		errs = append(errs, fmt.Errorf("the memory for files is %d MiB: set 1 or more (TURNPIKE_FILE_MEMORY_MIB)", c.FileMemory>>20))
	}
	if c.ViewMemory < 0 {
		errs = append(errs, fmt.Errorf("the memory for views is %d MiB: set 1 or more (TURNPIKE_VIEWS_MIB)", c.ViewMemory>>20))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"LeaseDuration", c.LeaseDuration}, {"RedeliveryDelay", c.RedeliveryDelay}, {"SweepInterval", c.SweepInterval},
		{"HeartbeatInterval", c.HeartbeatInterval}, {"ShutdownGrace", c.ShutdownGrace},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s of the worker is %s, which is negative: set 0 or more", d.name, d.value))
		}
	}
	errs = append(errs, definition.Secrets{Dir: c.SecretsDir}.CheckDir())
	if c.MockResponses != nil && c.Providers["scripted"] == nil {
		errs = append(errs, errors.New("mock responses are set, but the provider \"scripted\" is not registered: register it, or unset DEBUG_MOCK_RESPONSES"))
	}
	return errors.Join(errs...)
}
