package turnpike

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// WorkerOptions configure a worker. The zero value of each field is its default.
type WorkerOptions struct {
	// ID names the worker in leases, logs and the audit. It must be unique in the deployment.
	// Default: the host with a random part.
	ID string

	// Slots bounds the turns in flight. Default 1000.
	Slots int

	// Keys holds API keys by provider, or references such as secret://NAME to them. A model uses one if its agent sets
	// neither api_key nor base_url. For a provider that is not in Keys, the key that FromEnv found applies.
	Keys map[string]string

	Prices     model.Prices     // by name of the model; default model.DefaultPrices
	RateLimits model.RateLimits // of all workers of the deployment together, and the same in each; default none

	// ShutdownGrace is the time in which turns in flight may finish after Run's context has ended. Default 20 s.
	ShutdownGrace time.Duration

	HeartbeatInterval time.Duration // at least 20 ms; a worker that misses four heartbeats is dead; default 300 ms
	SweepInterval     time.Duration // between two searches for due turns without a message; default 1 s
	RedeliveryDelay   time.Duration // after which the sweeper publishes a lost turn message again; default 5 s
	LateResults       time.Duration // wait for the results of calls of a lost worker; negative: no wait; default 3 s
	MaxAttempts       int           // claims of a turn without a commit after which its run ends poisoned; default 5
	SecretsDir        string        // one file for each secret://NAME; a tenant has a subdirectory; default none

	// WebhookClient sends events to the webhooks of runs. It must not follow redirects, and must refuse addresses that
	// only the worker can reach. Default: a client that reaches only public addresses, on port 443, with TLS.
	WebhookClient *http.Client
}

// Worker takes turns of runs. Any number of workers share the runs of a deployment.
type Worker struct {
	worker *worker.Worker
	stop   context.CancelFunc // ends Run
	ctx    context.Context    //nolint:containedctx // ended by stop

	mu      sync.Mutex
	started bool
	done    chan struct{} // closed when Run has returned
}

// NewWorker returns a worker that uses the models, tools, hooks and loops of Options. It takes no turns before Run. The
// error names settings of o that are invalid or contradict each other. With Options.Metrics, a Deployment has at most
// one worker: another call of NewWorker fails, even after Run has returned.
func (d *Deployment) NewWorker(o WorkerOptions) (*Worker, error) {
	keys := maps.Clone(d.o.keys)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, o.Keys)
	inner, err := d.core.NewWorker(worker.Config{
		ID: o.ID, Slots: o.Slots, Keys: keys, Prices: o.Prices, RateLimits: o.RateLimits, ShutdownGrace: o.ShutdownGrace, HeartbeatInterval: o.HeartbeatInterval,
		SweepInterval: o.SweepInterval, RedeliveryDelay: o.RedeliveryDelay, LateResults: o.LateResults, MaxAttempts: o.MaxAttempts, SecretsDir: o.SecretsDir, Getenv: d.o.getenv, WebhookClient: o.WebhookClient,
		Providers: d.o.Models, Kinds: d.kinds(), Hooks: hookspec.Kinds(d.o.Hooks).With(d.o.HookKinds), Loops: d.loops(),
	})
	if err != nil {
		return nil, onlyOne("worker", err)
	}
	w := &Worker{worker: inner, done: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w, nil
}

// onlyOne adds the remedy to err if the metrics of a second worker or gateway are already registered.
func onlyOne(what string, err error) error {
	if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); !twice {
		return err
	}
	return fmt.Errorf("turnpike: the registry in Options.Metrics has the metrics of a %s already, and takes those of one: open another Deployment with another registry: %w", what, err)
}

// Work makes a worker and runs it until ctx ends. The errors are those of NewWorker and [Worker.Run].
func (d *Deployment) Work(ctx context.Context, o WorkerOptions) error {
	w, err := d.NewWorker(o)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// errTwice reports a second Run.
var errTwice = errors.New("turnpike: Run was called twice: create another worker or gateway")

// Run takes turns until ctx ends or Stop is called. Then it lets turns in flight finish within ShutdownGrace, releases
// the others without counting an attempt, and returns nil. If the store does not answer then, Run returns a few seconds
// after the grace, and the leases expire. Run returns an error if it cannot subscribe at the start, or if it was called
// before.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errTwice
	}
	w.started = true
	w.mu.Unlock()
	defer close(w.done)
	if w.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	if err := w.worker.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Stop makes Run finish and waits until Run has returned. If ctx ends first, Run releases the turns in flight at once,
// and Stop returns the error of ctx after that. A worker that is stopped before Run takes no turns.
func (w *Worker) Stop(ctx context.Context) error {
	w.stop()
	w.mu.Lock()
	started := w.started
	w.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		w.worker.Release()
		<-w.done
		return ctx.Err()
	}
}

// Ready returns nil if the worker could take turns now: the store and the bus answer, the deployment does not wait for
// a decision about its store, and at most 100 calls of tools, hooks and models still run although they were cancelled
// or have exceeded their time limits. Otherwise the error names all causes. Ready does not say whether Run has been
// called or has returned.
func (w *Worker) Ready(ctx context.Context) error { return w.worker.Ready(ctx) }
