package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/internal/turnstile"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config is the configuration of a Service. Fields without a default are required.
type Config struct {
	// Known is what definitions may name. Its MaxResult and ModelExtra restrict only definitions that are saved from
	// now on, not stored ones.
	Known agent.Known

	// Lookup finds resources that a definition refers to and that the deployment lacks. New sets its Agents.
	Lookup lookup.Finder

	Prefix string // prefix of the subjects of the deployment
	Tenant string // the default tenant

	// MaxBody is the maximum size of a submission in a message, in a batch or of a delivery, in bytes.
	MaxBody int64

	// MaxFile is the maximum size of an uploaded file, in bytes. Default: DefaultMaxFile.
	MaxFile int64

	Retention agent.Retention // the zero value keeps runs for ever
	Restore   *restore.Review // nil: no decision about the store is needed

	// RedeliveryDelay is the time after which the sweeper publishes the turn of a run again if no worker has taken it.
	RedeliveryDelay time.Duration

	// Audited reports that callers are authenticated. If false, the service writes no audit.
	Audited bool

	// Keys authenticates callers by API key. Default: a new set over the same store.
	Keys *access.Keys

	// Secret returns the value of a secret that senders use to sign deliveries, if the policy of the tenant allows the
	// secret. If nil, hooks cannot have secrets and are disabled.
	Secret func(tenant, name string, p policy.Policy) (string, error)

	// Streams are the streams that triggers may read. If nil, triggers are disabled.
	Streams Streams

	// Tokens authenticates users by token. Default: a new set over the same store.
	Tokens *access.Tokens

	// Changed is called with each run that the service has created or changed, by several goroutines at once. It must
	// not block. Optional.
	Changed func(tenant string, id state.RunID)

	Tracer trace.Tracer // nil: no spans; runs keep the trace context of the caller

	// Random is the source of the ids of runs and signals. It must be safe for concurrent use.
	Random io.Reader

	Logger   *slog.Logger
	Registry *prometheus.Registry
}

// Service makes the checks and changes that callers request; it has one part for each kind of request. The parts are
// safe for concurrent use. Service has many fields because there are many kinds of request.
type Service struct {
	Runs        *Runs
	Submissions *Submissions
	Batches     *Batches
	Signals     *Signals
	Agents      *Agents
	Drafts      *Drafts
	Letters     *Letters
	Webhooks    *Webhooks
	Tenants     *Tenants
	Keys        *Keys
	Tokens      *Tokens
	Hooks       *Hooks
	Triggers    *Triggers
	Schedules   *Schedules
	Memory      *Memory
	Evaluations *Evaluations
	Files       *Files
	Audit       *Audit
	Restores    *Restores
	Fleet       *Fleet
	Stats       *Stats

	core *core
	stop func()
}

// New returns a service over a store and a bus. What a request reads and writes in the store counts against the budget
// of its context, if that has one, see [WithBudget]; its audit entry may take up to two seconds more. The error reports
// metrics that cfg.Registry refuses. The caller must call Close.
func New(store state.Store, b bus.Bus, cfg Config) (*Service, error) {
	own := store // of reads that requests share, which have a limit of their own
	store = budgetStore{store}
	if cfg.Changed == nil {
		cfg.Changed = func(string, state.RunID) {}
	}
	if cfg.MaxFile == 0 {
		cfg.MaxFile = DefaultMaxFile
	}
	k := &core{
		files: file.New(store, b),
		cfg:   cfg, store: store, bus: b, log: cfg.Logger, tenants: access.NewTenants(store, cfg.Tenant), ids: ids{random: cfg.Random}, tracer: cfg.Tracer,
		outbox: newOutbox(cfg.Logger, outboxMessages), reading: make(chan struct{}, concurrentReads), quit: make(chan struct{}),
		submitted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_runs_submitted_total", Help: "Accepted runs by source."}, []string{"source"}),
	}
	k.clock.ask = store.Now
	k.dispatch = dispatch.New(b, k.noisy.full)
	cleaner := retention.New(store, b, retention.Config{Keep: cfg.Retention, Tenant: cfg.Tenant, Logger: cfg.Logger, Random: cfg.Random})
	heard := &workers{}
	waiting := newLag(b, own, heard)
	for _, c := range []prometheus.Collector{k.submitted, k.outbox.sizes, k.outbox.lost, newDeletions(cleaner.Stats), waiting} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	if err := registerWaiting(cfg.Registry, cfg.Restore); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	defs := newDefinitions(k, own)
	s := &Service{core: k, stop: sync.OnceFunc(func() { close(k.quit) })}
	s.Runs = &Runs{core: k, cleaner: cleaner}
	s.Drafts = &Drafts{core: k, defs: defs}
	s.Agents = &Agents{core: k, defs: defs, drafts: s.Drafts}
	s.Submissions = &Submissions{core: k, defs: defs, largeForks: turnstile.New(1, forkWait)}
	s.Signals = &Signals{core: k, defs: defs}
	s.Batches = &Batches{core: k}
	delivered := &deliveries{core: k, submissions: s.Submissions, signals: s.Signals}
	s.Hooks, s.Triggers = newHooks(delivered), newTriggers(delivered)
	if err := cfg.Registry.Register(s.Triggers.outcomes); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s.Schedules = &Schedules{core: k, submissions: s.Submissions, runs: s.Runs}
	s.Letters = &Letters{core: k, submissions: s.Submissions, triggers: s.Triggers}
	s.Webhooks = &Webhooks{core: k}
	s.Memory = newMemory(k)
	s.Evaluations = &Evaluations{core: k}
	s.Files = newFiles(k)
	s.Tenants = newTenants(k, s.Schedules, s.Hooks, s.Triggers, s.Memory, s.Webhooks, s.Evaluations)
	keys := cfg.Keys
	if keys == nil {
		keys = access.NewKeys(store)
	}
	s.Keys = &Keys{core: k, keys: keys}
	s.Tokens = &Tokens{core: k, tokens: tokensOf(cfg.Tokens, store, keys, k.tenants)}
	s.Audit = &Audit{core: k}
	s.Stats = &Stats{core: k}
	s.Restores = &Restores{core: k}
	s.Fleet = &Fleet{core: k, workers: heard, lag: waiting}
	return s, nil
}

// Stop makes reads of logs that must wait for their turn, now or later, fail with ErrStopped. It may be called several
// times.
func (s *Service) Stop() { s.stop() }

// Close waits up to two seconds until the bus has all messages that the service must publish, and drops the rest: the
// sweeper of a worker publishes their turns. An attempt that has begun may end after Close. The caller must not use the
// service afterwards.
func (s *Service) Close() { s.core.outbox.close() }

// core is what all parts of a service share. It has many methods because every part reads runs, checks callers and
// makes problems in the same way.
type core struct {
	cfg       Config
	store     state.Store
	bus       bus.Bus
	log       *slog.Logger
	tenants   *access.Tenants
	files     *file.Files
	clock     clock
	ids       ids
	noisy     noisy
	dispatch  *dispatch.Dispatcher
	outbox    *outbox
	tracer    trace.Tracer // nil: no spans
	submitted *prometheus.CounterVec
	reading   chan struct{} // has a slot for each concurrent read of a log
	quit      chan struct{}
}

// parseID returns the name of a run as its id, or a problem.
func parseID(name string) (state.RunID, error) {
	id, err := state.ParseRunID(name)
	if err != nil {
		return "", problem(badRequest, api.CodeInvalidID, "%q: %v", name, err)
	}
	return id, nil
}

// load returns the run with the id name, if the caller may see it. For a run that the caller may not see, the error is
// that of a run that does not exist: state.ErrNotFound, or restore.ErrWaiting while the deployment waits for the
// decision about restored data. For a run of any tenant that was deleted within state.MarkerLifetime (24 hours) the
// error is state.ErrDeleted. An invalid id is a problem. With an error the caller must not use the run.
func (k *core) load(ctx context.Context, c access.Caller, name string) (state.State, error) {
	id, err := parseID(name)
	if err != nil {
		return state.State{}, err
	}
	st, err := k.store.Load(ctx, id)
	if err == nil && st.Tenant != c.Tenant {
		err = runNotFound(id)
	}
	if err == nil {
		err = k.reaches(ctx, c, st)
	}
	if err == nil {
		traceRun(ctx, st)
	}
	if waiting := k.cfg.Restore.Err(); waiting != nil && errors.Is(err, state.ErrNotFound) && !errors.Is(err, state.ErrDeleted) {
		return st, fmt.Errorf("run %s is not in the store: %w", id, waiting)
	}
	return st, err
}

// publish sends the messages that follow a stored change of a run. It waits for the bus for outboxPatience at most.
// send must satisfy the conditions of outbox.post.
func (k *core) publish(ctx context.Context, send func(context.Context) error) {
	k.outbox.await(ctx, k.outbox.post(send))
}

// guarded is Guarded with the log of the service.
func (k *core) guarded(fn func() error) func() error { return Guarded(k.log, fn) }

// Guarded returns a function that calls fn and converts a panic to an error, which it logs with the stack. It is for
// goroutines: an uncaught panic would end the process.
func Guarded(log *slog.Logger, fn func() error) func() error {
	return func() (err error) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			log.Error("a background task panicked", "panic", p, "stack", string(debug.Stack()), "hint", "report this bug in Turnpike with the stack")
			err = problem(internal, api.CodeInternal, `internal error, a bug in Turnpike: report it with the stack that is logged as "a background task panicked" by the gateway, or by the program that embeds Turnpike`)
		}()
		return fn()
	}
}

// ErrStopped is the error of a read that waits for its turn when the service stops.
var ErrStopped = errors.New("this gateway is shutting down, so it reads nothing more: retry; another gateway answers, or this one after its restart")

// concurrentReads is the number of concurrent reads of logs for streams and for whole histories.
// The limit leaves capacity for other requests when many readers arrive at once.
const concurrentReads = 8

// InTurn calls read, as soon as fewer than eight (concurrentReads) others run in InTurn, and returns its error. If the
// service stops or ctx ends while InTurn waits, it returns ErrStopped or the error of ctx.
func (k *core) InTurn(ctx context.Context, read func() error) error {
	select {
	case k.reading <- struct{}{}:
		defer func() { <-k.reading }()
		return read()
	case <-k.quit:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
