package effect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ErrDrop and ErrRelease are errors that end the attempt at a turn. ErrDeadline and ErrShutdown are causes that
// end the context of a turn, as *upkeep.AbortError, *upkeep.InterruptError and state.ErrFenced are.
var (
	// ErrDrop leaves the run and the message of the turn as they are (I8): the lease expires and the attempt
	// counts.
	ErrDrop = errors.New("turn dropped")

	// ErrRelease makes the worker return the lease; the attempt does not count.
	ErrRelease = errors.New("turn released")

	// ErrDeadline is the cause when the run's deadline has passed.
	ErrDeadline = errors.New("run deadline has passed")

	// ErrShutdown is the cause when the turn has outlived the worker's shutdown grace.
	ErrShutdown = errors.New("the worker is shutting down")
)

// NotLoadedError reports that the agent of a run could not be loaded.
type NotLoadedError struct{ Err error }

func (e *NotLoadedError) Error() string { return "load agent: " + e.Err.Error() }
func (e *NotLoadedError) Unwrap() error { return e.Err }

// Config has the dependencies and settings of a Performer. Hooks, Trace, and the rate limits and breakers of
// Models may be zero; all other fields are required, except where their type says what nil means.
type Config struct {
	Worker string // names the worker in live events
	Models Models
	Tools  Tools
	Hooks  hook.Kinds
	Trace  Trace

	Agents *definition.Agents
	Leases fencer
	Quotas state.Quotas
	Live   publisher

	Clock    *clock.Clock
	Calls    *timelimit.Calls // counts calls that ignore their time limit
	Random   random.Source
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Trace selects the spans and OpenTelemetry metrics that a Performer makes.
type Trace struct {
	Tracer  trace.Tracer // nil: no spans
	Content bool         // spans contain prompts, answers, arguments and results
	Meter   metric.Meter // nil: no metrics of the conventions for generative AI
}

// fencer ends turns.
type fencer interface {
	// Fence ends a turn whose lease is over, or may be, and does not wait for the end.
	Fence(l *upkeep.Lease)
}

// Performer carries out the effects of a worker's turns. After Start it is safe for concurrent use.
type Performer struct {
	models models
	tools  tools
	hooks  hooks
	probes probes
	live   *live
}

// shared is what several kinds of effect use.
type shared struct {
	agents  *definition.Agents
	clock   *clock.Clock
	calls   *timelimit.Calls
	spans   spans
	live    *live
	metrics *metrics
	log     *slog.Logger
}

// New returns a performer and registers its metrics. Start must be called before its first turn.
func New(cfg Config) (*Performer, error) {
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	meters, err := newMeters(cfg.Trace.Meter, cfg.Models.Prices)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	s := &shared{
		agents: cfg.Agents, clock: cfg.Clock, calls: cfg.Calls, metrics: m, log: cfg.Log,
		spans: spans{tracer: cfg.Trace.Tracer, content: cfg.Trace.Content},
		live:  &live{worker: cfg.Worker, clock: cfg.Clock, bus: cfg.Live},
	}
	p := &Performer{
		models: models{
			shared: s, unsaved: admission.NewUnsaved(maxResponses), cfg: cfg.Models, meters: meters,
			breakers: model.NewBreakers(cfg.Models.Breakers), quotas: newQuotas(cfg.Quotas, cfg.Models.RateLimits, m, cfg.Random),
		},
		tools: tools{shared: s, cfg: cfg.Tools, leases: cfg.Leases, unsaved: admission.NewUnsaved(maxResults)},
		hooks: hooks{shared: s, kinds: cfg.Hooks, lifetime: context.Background(), aside: &sync.WaitGroup{}},
		live:  s.live,
	}
	p.probes = probes{shared: s, tools: &p.tools}
	return p, nil
}

// Start must be called once, before the first turn. watchers reports the runs that have readers of live events.
// When lifetime ends, the hooks that outlive their turns are cancelled.
func (p *Performer) Start(lifetime context.Context, watchers bus.Watchers) {
	h := &p.hooks
	h.lifetime, p.live.watchers = lifetime, watchers
}

// Wait waits for the hooks that outlive their turns. The caller must have ended all turns.
func (p *Performer) Wait() { p.hooks.aside.Wait() }

// RefreshQuotas reads from the store which rate limits providers have paused, at any worker. The caller repeats
// it regularly. alone reports that no other worker exists: then only this one pauses any, and RefreshQuotas reads
// nothing as long as it knows of none.
func (p *Performer) RefreshQuotas(ctx context.Context, alone bool) error {
	return p.models.quotas.refresh(ctx, alone)
}

// Do carries out one effect of a turn and returns the event that continues the loop. If the end of ctx cuts the
// effect short, the event is a loop.Aborted with all that is known of the effect; the caller adds the cause, the time
// and the signals. If Do returns an error, with or without the end of ctx, the caller must give up the attempt: the
// error wraps ErrDrop, is a *NotLoadedError or the error of a loop.GiveUp, or comes from the journal. A panic of a tool
// becomes its result, and one of a hook a failure of the hook; other panics propagate. Only the goroutine of the turn
// may call Do.
func (p *Performer) Do(ctx context.Context, t *Turn, effect loop.Effect) (loop.Event, error) {
	if _, ok := effect.(loop.CallModel); ok {
		return p.callModel(ctx, t, effect)
	}
	return p.carryOut(ctx, t, effect)
}

// callModel carries out a loop.CallModel. Its frame and that of Do are small because turns wait in them.
func (p *Performer) callModel(ctx context.Context, t *Turn, effect loop.Effect) (loop.Event, error) {
	ev, err := p.models.call(ctx, t, effect)
	if err == nil {
		err = p.hooks.observe(ctx, t, ev)
	}
	return ev, err
}

// carryOut carries out any other effect.
func (p *Performer) carryOut(ctx context.Context, t *Turn, effect loop.Effect) (loop.Event, error) {
	switch effect := effect.(type) {
	case loop.RunTools:
		return p.tools.run(ctx, t, effect)
	case loop.RunHooks:
		return p.hooks.run(ctx, t, effect)
	case loop.SwitchAgent:
		return p.tools.find(ctx, t, effect)
	case loop.GiveUp:
		return nil, effect.Err
	default:
		return nil, fmt.Errorf("%w: unknown effect %T", ErrDrop, effect)
	}
}

// ShowStarted publishes the live event that a turn has started, if the run is watched.
func (p *Performer) ShowStarted(t *Turn) {
	p.live.publish(t.Run.ID, p.live.event(t, state.LiveTurnStarted))
}

// agent returns the definition of the run. The error is a *NotLoadedError.
func (s *shared) agent(ctx context.Context, t *Turn) (*agent.Agent, error) {
	a, err := s.agents.Of(ctx, t.Run)
	if err != nil {
		return nil, &NotLoadedError{err}
	}
	return a, nil
}

// debug logs an error that changes nothing.
func (s *shared) debug(err error, message string) {
	if err != nil {
		s.log.Debug(message, "error", err)
	}
}
