package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
)

// Config tunes a Worker. The zero value of each field gives its default.
type Config struct {
	// ID names the worker in leases, logs and the audit trail. It must be unique
	// among the workers of a deployment. Required.
	ID string

	// Slots bounds the turns under way. Default 1000.
	Slots int

	// Providers by the name that agents use; see model.Described. MockResponses, if not nil, replace
	// the model of every agent (K8); they need the provider "scripted".
	Providers     map[string]model.Provider
	MockResponses []model.Scripted

	// Keys are references (secret://NAME) to the API keys of providers, by name, for
	// models that name neither a key nor an address of their own.
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

	// SecretsDir holds one file a secret, for references that no environment
	// variable answers.
	SecretsDir string

	// Tracer makes the spans of turns, model calls and tool calls. Default: none, at
	// no cost. TraceContent puts into them what was said: prompts, answers, arguments
	// and results, cut to size, never the value of a secret reference.
	Tracer       trace.TracerProvider
	TraceContent bool

	// Meter makes the metrics of the conventions for generative AI. Default: none, at no
	// cost.
	Meter metric.MeterProvider

	// Random is read for the tokens of leases, and for jitter, by several goroutines at
	// once. Two workers that read the same may both think that they hold a run. Default
	// crypto/rand.
	Random io.Reader

	Logger   zerolog.Logger
	Registry *prometheus.Registry // nil: a registry of its own

	// Lease is how long a claim holds without a renewal; renewals come at a third
	// of it. Default 25 s.
	Lease time.Duration

	// Grace is how long a due run is left to its message before the sweeper
	// publishes another. Default 5 s.
	Grace time.Duration

	// SweepEvery is the sweeper's period. Default 1 s.
	SweepEvery time.Duration

	// BeatEvery is the period of the presence signal; a worker that was silent
	// for four of them is gone. Default 300 ms.
	BeatEvery time.Duration

	// ShutdownGrace is how long Run lets turns finish after its context has
	// ended. Default 20 s.
	ShutdownGrace time.Duration

	// MaxAttempts is how often a turn is claimed without a commit before its run
	// ends poisoned. Default 5.
	MaxAttempts int

	// ToolOutput bounds the bytes of a tool's result. Default 128 KiB.
	ToolOutput int
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Lease, 25*time.Second)
	def(&c.Grace, 5*time.Second)
	def(&c.SweepEvery, time.Second)
	def(&c.BeatEvery, 300*time.Millisecond)
	def(&c.ShutdownGrace, 20*time.Second)
	if c.Slots == 0 {
		c.Slots = 1000
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 5
	}
	if c.ToolOutput == 0 {
		c.ToolOutput = 128 << 10
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
	if c.Lease < 0 || c.Grace < 0 || c.SweepEvery < 0 || c.BeatEvery < 0 || c.ShutdownGrace < 0 {
		errs = append(errs, errors.New("a duration is negative"))
	}
	if c.MockResponses != nil && c.Providers["scripted"] == nil {
		errs = append(errs, errors.New("mock responses need the provider \"scripted\""))
	}
	return errors.Join(errs...)
}

// Worker takes turns. Any number of workers share the runs of a deployment, and
// none of them keeps anything that the others lack.
type Worker struct {
	cfg     Config
	store   state.Store
	bus     bus.Bus
	log     zerolog.Logger
	metrics *metrics
	meters  *meters      // nil: none
	tracer  trace.Tracer // nil: no spans
	agents  *agents
	slots   *slots
	random  random
	stacks  *stacks

	suspects *suspects
	tenants  *tenants

	keeping  atomic.Bool // all other workers take over what this one keeps
	stopping atomic.Bool // it takes no more turns

	// breakers of the models that this worker asks.
	breakers *model.Breakers

	quotas *quotas

	held  held
	turns sync.WaitGroup
	taken atomic.Int64 // slots

	vouched vouched
}

// New returns a worker that reads turns from b and keeps runs in store.
func New(store state.Store, b bus.Bus, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	meters, err := newMeters(cfg.Meter)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	w := &Worker{
		cfg: cfg, store: store, bus: b,
		log:     cfg.Logger.With().Str("worker", cfg.ID).Logger(),
		metrics: m, meters: meters,
		slots:  newSlots(cfg.Slots),
		random: random{cfg.Random},

		suspects: newSuspects(cfg.Slots, cfg.MaxAttempts),
		tenants:  newTenants(cfg.Slots),
		breakers: model.NewBreakers(cfg.Breakers),
		quotas:   newQuotas(store, cfg.RateLimits, m, random{cfg.Random}),
	}
	w.stacks = newStacks(func() bool { return w.taken.Load() <= fewTurns })
	w.agents = newAgents(store, cfg, w.resolve)
	if cfg.Tracer != nil {
		w.tracer = cfg.Tracer.Tracer(tracerName)
	}
	return w, nil
}

// errShutdown is the cause with which turns end that outlive the shutdown grace.
var errShutdown = errors.New("worker shuts down")

// Run takes turns until ctx ends, then stops pulling, lets turns under way finish
// within the shutdown grace, hands back the rest without counting an attempt, and
// returns nil. It returns an error only if it cannot subscribe at the start.
func (w *Worker) Run(ctx context.Context) error {
	// Turns outlive ctx: they end by themselves, or when stop is called.
	turnCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)

	defer w.stacks.close()

	stopAborts, err := w.bus.Aborts(turnCtx, w.held.abort)
	if err != nil {
		return fmt.Errorf("subscribe to aborts: %w", err)
	}
	defer stopAborts()

	presence, err := w.watchPresence(turnCtx)
	if err != nil {
		return fmt.Errorf("subscribe to presence: %w", err)
	}
	defer presence.stop()

	w.evictFormerSelf(ctx)

	keeper, stopKeeper := context.WithCancel(turnCtx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stopKeeper()
	background.Go(func() { w.renewLeases(keeper) })
	background.Go(func() { presence.run(keeper) })

	pullable, stopPulling := context.WithCancel(ctx)
	defer stopPulling()
	pulling, pullCtx := errgroup.WithContext(pullable)
	for _, lane := range bus.Lanes() {
		queue, err := w.bus.Turns(ctx, lane)
		if err != nil {
			stopPulling()
			return errors.Join(fmt.Errorf("subscribe to %s turns: %w", lane, err), pulling.Wait())
		}
		pulling.Go(func() error {
			w.pull(pullCtx, turnCtx, lane, queue)
			return queue.Close()
		})
	}
	pulling.Go(func() error {
		w.sweep(pullCtx)
		return nil
	})
	w.log.Info().Int("slots", w.cfg.Slots).Msg("worker started")
	<-ctx.Done()
	w.stopping.Store(true)
	told := time.Now()
	if err := pulling.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		w.log.Warn().Err(err).Msg("queue close")
	}

	finished := make(chan struct{})
	go func() { w.turns.Wait(); close(finished) }()
	grace := time.NewTimer(w.cfg.ShutdownGrace)
	defer grace.Stop()
	select {
	case <-finished:
	case <-grace.C:
		stop(errShutdown)
		<-finished
	}
	w.handBack(context.WithoutCancel(ctx), told.Add(-w.cfg.Grace))
	w.bus.Beat(bus.Beat{Worker: w.cfg.ID, Gone: true})
	w.log.Info().Msg("worker stopped")
	return nil
}

// pull hands the messages of one lane to turns.
func (w *Worker) pull(ctx, turnCtx context.Context, lane bus.Lane, queue bus.TurnQueue) {
	for {
		d, err := w.next(ctx, lane, queue)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, bus.ErrClosed) {
				return
			}
			w.log.Warn().Err(err).Msg("next turn")
			if !pause(ctx, w.cfg.SweepEvery) {
				return
			}
			continue
		}
		w.taken.Add(1)
		w.turns.Go(func() {
			defer w.slots.release()
			defer w.taken.Add(-1)
			w.take(turnCtx, d)
		})
	}
}

// pause waits for d and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// check logs an error that changes nothing: a lost ack is one more delivery.
func (w *Worker) check(err error, what string) {
	if err != nil {
		w.log.Debug().Err(err).Msg(what)
	}
}

func now() state.Time { return state.At(time.Now()) }
