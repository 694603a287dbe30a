package turn

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// store is the part of a store that turns need.
type store interface {
	recorder

	Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error)
	Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error)
	Release(ctx context.Context, l state.Lease, delay time.Duration) error
	Load(ctx context.Context, id state.RunID) (state.State, error)
}

// notifier is the part of a bus that turns need, in addition to the messages that Dispatch publishes.
type notifier interface {
	NotifyAppended(tenant string, run state.RunID, from, to int64)
}

// Config has the dependencies and settings of a Taker. Quarantine, Upkeep.Feed and Tracer may be nil; all other
// fields but CheckpointBytes are required.
type Config struct {
	Worker      string // names the worker in leases and in the audit trail
	MaxAttempts int    // attempts at a turn; the next claim ends the run as poisoned

	// CheckpointBytes is the memory that the entries of a log after its last checkpoint may take, in addition to the
	// size of that checkpoint: above it a turn begins with the next one. 0 means the constant CheckpointBytes.
	CheckpointBytes int64

	Periods upkeep.Periods

	Effects    *effect.Performer
	Agents     *definition.Agents
	Upkeep     Upkeep
	Dispatch   *dispatch.Dispatcher
	Quarantine *admission.Quarantine

	// Next decides about the next turn of a run before a commit: whether the commit claims it eagerly, and whether its
	// message should then go to this worker's own queue. MayStay reports after the commit whether it may: noisy is what
	// the store says about the tenant.
	Next    func() (claim, sticky bool)
	MayStay func(tenant string, noisy bool) bool

	Views        *admission.Answers // memory for large views
	WaitForViews int                // turns of one tenant that may wait for it at once

	Clock    *clock.Clock
	Random   random.Source
	Tracer   trace.Tracer
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Upkeep are the parts of a worker's upkeep that turns use.
type Upkeep struct {
	Leases    *upkeep.Leases
	Members   *upkeep.Members
	Finalizer *upkeep.Finalizer
	Feed      *upkeep.Feed
}

// Taker takes the turns of a worker. It is safe for concurrent use.
type Taker struct {
	cfg     Config
	store   store
	bus     notifier
	metrics *metrics

	writing context.Context //nolint:containedctx // of the worker: it ends the writes that outlive their turns
}

// New returns a taker of the runs in store, and registers its metrics.
func New(store store, b notifier, cfg Config) (*Taker, error) {
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	if cfg.CheckpointBytes == 0 {
		cfg.CheckpointBytes = CheckpointBytes
	}
	return &Taker{cfg: cfg, store: store, bus: b, metrics: m, writing: context.Background()}, nil
}

// Start sets the context that bounds the writes of turns whose own context has ended. It must be called before Take;
// without it nothing but their timeouts bounds them.
func (k *Taker) Start(writing context.Context) { k.writing = writing }

// outlive returns a context for writes that must be made although ctx has ended. It ends after d, or with the writes
// of the worker.
func (k *Taker) outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	stop := context.AfterFunc(k.writing, cancel)
	return ctx, func() { stop(); cancel() }
}

// Take executes the turn of a delivery. It acknowledges or returns the message, or leaves it for the bus to redeliver,
// for example if it drops the turn or cannot publish what follows. Until the commit, the end of ctx ends the
// turn; with effect.ErrShutdown as its cause, Take releases the lease. A panic of the turn does not propagate:
// the lease expires and the attempt counts, so a turn that panics every time ends its run poisoned. load is
// that of the turn, from admission.Tenants.Enter; the caller ends it after Take.
func (k *Taker) Take(ctx context.Context, d bus.TurnDelivery, load *admission.Turn) {
	defer upkeep.Survive(k.cfg.Log, d.Turn().Run)
	k.debug(k.takeTurn(ctx, d, load), "answer turn message")
}

// debug logs an error that changes nothing, such as a lost ack: it means one more delivery.
func (k *Taker) debug(err error, message string) {
	if err != nil {
		k.cfg.Log.Debug(message, "error", err)
	}
}

// runLog returns the logger of a run. It copies the worker's attributes, so only code that logs
// calls it.
func (k *Taker) runLog(run state.RunID) *slog.Logger {
	return k.cfg.Log.With("run_id", run)
}
