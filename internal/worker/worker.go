package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/internal/engine/turn"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/internal/tool/memorytool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Worker pulls turns from the bus and takes them. Any number of workers share the runs of a deployment;
// none of them has state that the others need.
//
// It has more fields than most types because it assembles the parts of a worker.
type Worker struct {
	cfg     Config
	store   state.Store
	bus     bus.Bus
	log     *slog.Logger
	metrics *metrics
	tracer  trace.Tracer // nil: no spans
	agents  *definition.Agents
	effects *effect.Performer
	taker   *turn.Taker

	dispatch  *dispatch.Dispatcher
	leases    *upkeep.Leases
	members   *upkeep.Members
	sweeper   *upkeep.Sweeper
	finalizer *upkeep.Finalizer
	feed      *upkeep.Feed // nil: the deployment has none

	slots      *admission.Slots
	tenants    *admission.Tenants
	quarantine *admission.Quarantine // nil: taken out
	answers    *admission.Answers
	views      *admission.Answers
	random     random.Source

	queues map[bus.QueueKey]bus.TurnQueue // of the lanes
	own    bus.TurnQueue                  // of the runs that are sticky to this worker; nil: it has none

	inFlight atomic.Int64 // turns
	clock    *clock.Clock
	webhooks *webhook.Sender
	calls    *timelimit.Calls // of tools, hooks and models
	turns    sync.WaitGroup
	released chan struct{} // closed by Release
	release  func()
}

// tracerName is the instrumentation scope of a worker's spans and metrics.
const tracerName = "github.com/turnpike-dev/turnpike/internal/worker"

// New returns a worker that reads turns from b and keeps runs in store. The error reports invalid settings, or
// metrics that cfg.Registry already has.
func New(store state.Store, b bus.Bus, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Kinds[toolspec.Memory] == nil {
		cfg.Kinds = cfg.Kinds.With(tool.Kinds{toolspec.Memory: memorytool.New(store)})
	}
	calls, answers, views := &timelimit.Calls{}, admission.NewAnswers(cfg.AnswerMemory), admission.NewAnswers(cfg.ViewMemory)
	m, err := newMetrics(cfg.Registry, calls, answers, views, cfg.Restore)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, bus: b,
		log:      cfg.Logger.With("worker", cfg.ID),
		metrics:  m,
		tenants:  admission.NewTenants(cfg.Slots, cfg.MaxNoisyTurns),
		answers:  answers,
		views:    views,
		random:   random.Source{R: cfg.Random},
		calls:    calls,
		clock:    &clock.Clock{},
		released: make(chan struct{}),
	}
	w.slots = admission.NewSlots(cfg.Slots, w.tenants.Shared)
	w.release = sync.OnceFunc(func() { close(w.released) })
	if !cfg.Without.Quarantine {
		w.quarantine = admission.NewQuarantine(cfg.Slots, cfg.MaxAttempts)
	}
	w.store, w.dispatch = store, dispatch.New(b, w.tenants.Noisy)
	if cfg.Tracer != nil {
		w.tracer = cfg.Tracer.Tracer(tracerName)
	}
	w.agents = definition.New(store, definition.Config{
		Kinds: cfg.Kinds, Hooks: cfg.Hooks, Providers: cfg.Providers, Loops: cfg.Loops, Policy: cfg.Policy,
		Secrets: definition.Secrets{Dir: cfg.SecretsDir, Getenv: cfg.Getenv}, Keys: cfg.Keys, Patience: cfg.LeaseDuration / 2, Calls: calls, Log: w.log,
	})
	w.keepUp()
	if w.effects, err = effect.New(w.effectConfig()); err != nil {
		return nil, err
	}
	if w.webhooks, err = webhook.NewSender(store, b, webhook.Config{
		Client: cfg.WebhookClient, Times: cfg.WebhookTimes, Worker: cfg.ID, Grants: w.agents, Registry: cfg.Registry, Log: w.log,
	}); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if w.taker, err = turn.New(w.store, w.bus, w.turnConfig()); err != nil {
		return nil, err
	}
	return w, nil
}

// turnConfig returns the configuration of this worker's turns.
func (w *Worker) turnConfig() turn.Config {
	return turn.Config{
		Worker: w.cfg.ID, MaxAttempts: w.cfg.MaxAttempts, CheckpointBytes: w.cfg.CheckpointBytes, Periods: w.cfg.periods(),
		Effects: w.effects, Agents: w.agents, Dispatch: w.dispatch, Quarantine: w.quarantine, Next: w.nextTurn, MayStay: w.mayStay,
		Views: w.views, WaitForViews: max(1, w.cfg.Slots/100),
		Upkeep: turn.Upkeep{Leases: w.leases, Members: w.members, Finalizer: w.finalizer, Feed: w.feed},
		Clock:  w.clock, Random: w.random, Tracer: w.tracer, Registry: w.cfg.Registry, Log: w.log,
	}
}

// effectConfig returns the configuration of the effects of this worker's turns.
func (w *Worker) effectConfig() effect.Config {
	cfg := w.cfg
	c := effect.Config{
		Worker: cfg.ID,
		Models: effect.Models{
			Providers: cfg.Providers, Mock: cfg.MockResponses, Prices: cfg.Prices, RateLimits: cfg.RateLimits, Breakers: cfg.Breakers, Prompt: cfg.ModelPrompt, Output: cfg.ModelOutput,
			Files: file.New(w.store, w.bus), Memory: admission.NewAnswers(cfg.FileMemory), Answers: w.answers,
		},
		Tools: effect.Tools{
			Kinds: cfg.Kinds, Output: cfg.ToolOutput, MaxResult: cfg.MaxResult, Answers: w.answers, ProbeMargin: cfg.ProbeMargin, ProbeRetry: cfg.SweepInterval,
			Files: file.New(w.store, w.bus), Log: w.store,
		},
		Hooks: cfg.Hooks, Trace: effect.Trace{Tracer: w.tracer, Content: cfg.TraceContent},
		Agents: w.agents, Leases: w.leases, Quotas: w.store, Live: w.bus,
		Clock: w.clock, Calls: w.calls, Random: w.random, Registry: cfg.Registry, Log: w.log,
	}
	if cfg.Meter != nil {
		c.Trace.Meter = cfg.Meter.Meter(tracerName)
	}
	return c
}

// keepUp makes the parts of the worker that maintain the deployment outside its turns.
func (w *Worker) keepUp() {
	cfg := w.cfg
	periods := cfg.periods()
	if cfg.EventFeed {
		w.feed = upkeep.NewFeed(w.store, w.bus, w.log)
	}
	w.leases = upkeep.NewLeases(w.store, periods, !cfg.Without.EagerClaims, w.log)
	w.finalizer = upkeep.NewFinalizer(w.store, w.bus, upkeep.FinalizerConfig{
		Dispatch: w.dispatch, Agents: w.agents, Clock: w.clock, Feed: w.feed, Tracer: w.tracer,
		RedeliveryDelay: cfg.RedeliveryDelay, ToolOutput: cfg.ToolOutput, Log: w.log,
	})
	w.sweeper = upkeep.NewSweeper(w.store, w.bus, w.dispatch, w.finalizer, periods, w.metrics.swept, w.log)
	self := upkeep.Self{ID: cfg.ID, Version: cfg.Version, Slots: cfg.Slots, Quarantined: func() int { return w.quarantine.Deferred(time.Now()) }}
	w.members = upkeep.NewMembers(self, w.store, w.bus, w.leases, w.sweeper, periods, w.log)
}

// Run takes turns until ctx ends, then stops pulling, lets turns in flight finish within the shutdown grace, releases
// the rest, and returns nil. The attempt at a released turn does not count, unless the store does not answer. Run
// returns an error only if it cannot subscribe or open its queues at the start. It must be called once.
func (w *Worker) Run(ctx context.Context) error {
	// Turns outlive ctx: they end by themselves, or when stop is called.
	turnCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	writing, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	w.taker.Start(writing)

	watchers, err := w.bus.Watchers(turnCtx)
	if err != nil {
		return fmt.Errorf("subscribe to watched runs: %w", err)
	}
	defer watchers.Stop()
	w.effects.Start(turnCtx, watchers)

	stopAborts, err := w.bus.Aborts(turnCtx, w.leases.HearAbort)
	if err != nil {
		return fmt.Errorf("subscribe to aborts: %w", err)
	}
	defer stopAborts()

	stopListening, err := w.members.Join(turnCtx)
	if err != nil {
		return fmt.Errorf("subscribe to heartbeats: %w", err)
	}
	defer stopListening()

	if err := w.openQueues(ctx); err != nil {
		return err
	}
	w.openSticky(ctx)
	w.members.EvictFormerSelf(ctx)

	background, stopBackground := context.WithCancel(turnCtx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stopBackground()
	running.Go(func() { w.leases.Run(background) })
	running.Go(func() { w.members.Run(background) })
	running.Go(func() { w.webhooks.Run(background) })
	running.Go(func() { upkeep.FoldFigures(background, w.store, w.log) })
	if w.feed != nil {
		running.Go(func() { w.feed.Run(background) })
	}

	ended := w.pullUntil(ctx, turnCtx)
	w.finish(writing, ended, stop, abandon)
	return nil
}

// Release ends the shutdown grace: once the context of Run has ended, Run no longer waits for turns in flight
// and releases them. It may be called at any time, and more than once.
func (w *Worker) Release() { w.release() }

// openQueues opens the queues of the lanes: all, or none.
func (w *Worker) openQueues(ctx context.Context) error {
	queues := map[bus.QueueKey]bus.TurnQueue{}
	for _, key := range bus.QueueKeys() {
		queue, err := w.bus.Turns(ctx, key)
		if err != nil {
			err = fmt.Errorf("subscribe to %s turns: %w", key, err)
			for _, opened := range queues {
				err = errors.Join(err, opened.Close())
			}
			return err
		}
		queues[key] = queue
	}
	w.queues = queues
	return nil
}

// pullUntil takes turns from the queues, and sweeps, until ctx ends. It returns the time of that end.
func (w *Worker) pullUntil(ctx, turnCtx context.Context) (ended time.Time) {
	pulling, pullCtx := errgroup.WithContext(ctx)
	for key, queue := range w.queues {
		pulling.Go(func() error {
			w.pull(pullCtx, turnCtx, key, queue)
			return queue.Close()
		})
	}
	if w.own != nil {
		pulling.Go(func() error {
			w.pullSticky(pullCtx, turnCtx)
			return nil
		})
	}
	pulling.Go(func() error {
		w.sweeper.Run(pullCtx, w.members.Count, w.refreshQuotas)
		return nil
	})
	w.log.Info("worker started", "slots", w.cfg.Slots)
	<-ctx.Done()
	w.leases.StopEager()
	w.members.Stop()
	ended = time.Now()
	if err := pulling.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		w.log.Warn("queues of turns not closed", "error", err, "hint", "no action needed: NATS redelivers the fetched messages")
	}
	return ended
}

// releaseTimeout bounds the last writes of a worker whose shutdown grace has ended. If the store does not answer within
// it, the leases expire by themselves.
const releaseTimeout = 5 * time.Second

// finish waits for the turns in flight until the shutdown grace has passed since ended, or until Release. If some are
// left, it calls stop, which makes them release their leases, and waits for them. If it has not returned
// releaseTimeout after the grace or Release, it calls abandon, which ends writing, the context of the writes. Meanwhile
// it gives back the turns of the worker's own queue.
func (w *Worker) finish(writing context.Context, ended time.Time, stop context.CancelCauseFunc, abandon func()) {
	left := time.Until(ended.Add(w.cfg.ShutdownGrace))
	last := time.AfterFunc(left+releaseTimeout, abandon)
	defer last.Stop()
	finished := make(chan struct{})
	go func() { w.turns.Wait(); w.effects.Wait(); close(finished) }()
	var draining sync.WaitGroup
	if w.own != nil {
		draining.Go(func() {
			w.drainSticky(writing, finished)
			w.check(w.own.Close(), "close the queue of this worker")
		})
	}
	grace := time.NewTimer(left)
	defer grace.Stop()
	select {
	case <-finished:
	case <-grace.C:
		stop(effect.ErrShutdown)
		<-finished
	case <-w.released:
		last.Reset(releaseTimeout)
		stop(effect.ErrShutdown)
		<-finished
	}
	draining.Wait()
	w.leases.ReleaseEager(writing, ended.Add(-w.cfg.RedeliveryDelay))
	if w.feed != nil {
		w.feed.FlushAll(writing)
	}
	w.members.Leave()
	w.log.Info("worker stopped")
}

// pull starts a turn for each message of one queue.
func (w *Worker) pull(ctx, turnCtx context.Context, key bus.QueueKey, queue bus.TurnQueue) {
	for {
		d, err := w.next(ctx, key, queue)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, bus.ErrClosed) {
				return
			}
			w.log.Warn("turn messages not received from NATS; the worker retries", "error", err, "queue", key, "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation")
			if !clock.Pause(ctx, w.cfg.SweepInterval) {
				return
			}
			continue
		}
		w.start(turnCtx, d)
	}
}

// start starts a turn, which has a slot.
func (w *Worker) start(turnCtx context.Context, d bus.TurnDelivery) {
	w.inFlight.Add(1)
	load := w.tenants.Enter(d.Turn().Tenant, d.Turn().Noisy) // before the next turn asks for a slot
	w.turns.Go(func() {
		defer w.slots.Release()
		defer w.inFlight.Add(-1)
		defer load.Leave()
		w.taker.Take(turnCtx, d, load)
	})
}

// slotWait bounds how long a puller that has waited for a slot keeps it while it requests a message: longer than the
// bus takes to answer, and short compared to a turn. It also bounds how long a message that has arrived waits for a
// slot.
const slotWait = 2 * time.Millisecond

// next returns a message of a queue, with a slot for it. It requests at most as many messages of that queue as the
// worker has free slots, and of a queue for noisy tenants at most as many as may work, so that messages beyond that go
// to idle workers. If other queues take the slots before that, and none becomes free soon, it returns the message to the
// bus, and waits for another one.
func (w *Worker) next(ctx context.Context, key bus.QueueKey, queue bus.TurnQueue) (bus.TurnDelivery, error) {
	for {
		if key.Noisy && w.tenants.Free() == 0 {
			queue.SetPrefetch(0)
			if err := w.tenants.Await(ctx); err != nil {
				return nil, err
			}
		}
		waited, err := w.slot(ctx, key, queue)
		if err != nil {
			return nil, err
		}
		ahead := w.cfg.Slots - int(w.inFlight.Load())
		if key.Noisy {
			ahead = min(ahead, w.tenants.Free(), w.slots.Free(key)+1) // this one has a slot
		}
		queue.SetPrefetch(ahead - 1)
		if waited {
			// Other pullers want this slot. If this one released it before the queue has
			// answered, each queue would get every other slot, regardless of its weight.
			brief, cancel := context.WithTimeout(ctx, slotWait)
			d, err := queue.Next(brief)
			cancel()
			if err == nil {
				return d, nil
			}
		}
		w.slots.Release()
		d, err := queue.Next(ctx)
		if err != nil {
			return nil, err
		}
		if w.slots.TryAcquire(key) {
			return d, nil
		}
		// The other queues have taken all slots since. If none becomes free soon, another worker
		// gets the message.
		queue.SetPrefetch(0)
		brief, cancel := context.WithTimeout(ctx, slotWait)
		err = w.slots.Acquire(brief, key)
		cancel()
		if err == nil {
			return d, nil
		}
		w.check(d.Nak(0), "nak")
	}
}

// refreshQuotas reads which models providers have paused at any worker.
func (w *Worker) refreshQuotas(ctx context.Context) {
	if err := w.effects.RefreshQuotas(ctx, w.members.Alone()); err != nil && ctx.Err() == nil {
		w.log.Warn("rate limits of models not read from the store; the worker retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
	}
}

// slot takes a slot, and reports whether it had to wait. While all slots are taken, this worker requests no
// message of the queue.
func (w *Worker) slot(ctx context.Context, key bus.QueueKey, queue bus.TurnQueue) (waited bool, err error) {
	if w.slots.TryAcquire(key) {
		return false, nil
	}
	queue.SetPrefetch(0)
	return true, w.slots.Acquire(ctx, key)
}

// check logs an error that changes nothing: a lost nak delays the next delivery.
func (w *Worker) check(err error, what string) {
	if err != nil {
		w.log.Debug(what, "error", err)
	}
}
