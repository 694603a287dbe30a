package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Deployment is this process's connection to a store and a bus. NewWorker and
// NewGateway make parts that share them; any number of processes may do so.
type Deployment struct {
	// Store and Bus may be replaced, by a wrapper of them, before the first part is
	// made.
	Store state.Store
	Bus   bus.Bus

	// NATS is the connection of Config.NATS, or the one that Open made; nil if there is neither.
	NATS *nats.Conn

	watch  *restore.Watch // nil: the store and the bus are one
	review *restore.Review

	setKeys func(natsbus.Keys) // of the bus; nil: the caller has given a bus

	cfg    Config
	mu     sync.Mutex
	closer []func()
}

// Open connects to NATS and to the store, unless cfg has them, and creates missing streams. It tries to raise
// replicas and size limits of existing streams that are too low, and to set the age of events. It checks the settings of
// what it opened and of a Store that is a state.Checker: the error has a line for each fatal finding, and Open logs the
// others, although some of these may lose runs when a server fails. Errors never contain credentials. ctx bounds the
// call, without the attempt to connect to NATS, and not the deployment. If the error is nil, the caller must call Close.
func Open(ctx context.Context, cfg Config) (*Deployment, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Deployment{cfg: cfg, NATS: cfg.NATS}
	if d.NATS == nil && cfg.NATSURL != "" {
		options, err := cfg.NATSLogin.Options()
		if err != nil {
			return nil, err
		}
		nc, err := natsbus.Connect(cfg.NATSURL, cfg.Name, append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			cfg.Logger.Warn("NATS reported an error", "error", err, "hint", "check the permissions of the NATS user (docs/reference/nats.md#permissions) and the load of this process")
		}))...)
		if err != nil {
			return nil, natslogin.Advise(err, fmt.Sprintf("start nats-server with -js at %s, or set TURNPIKE_NATS_URL (in Go, NATS.URL) to its address", natsbus.Hosts(cfg.NATSURL)))
		}
		d.NATS = nc
		d.OnClose(nc.Close)
	}
	err := d.open(ctx)
	if err == nil {
		err = d.monitor()
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Deployment) open(ctx context.Context) error {
	cfg := d.cfg
	b, findings, err := d.openBus(ctx)
	if err != nil {
		return err
	}
	if d.Store = cfg.Store; d.Store == nil {
		if d.Store, err = d.openStore(ctx); err != nil {
			return err
		}
	}
	if c, ok := d.Store.(state.Checker); ok {
		findings = append(findings, c.Check(ctx)...)
	}
	if err := d.settled(findings); err != nil {
		return err
	}
	var id func(context.Context) (string, error)
	if redis, ok := d.Store.(*redisstore.Store); ok && cfg.Store == nil && b != nil {
		id = redis.ID
		d.warnOfTwoStores(ctx)
		d.guard(ctx, redis, b)
	}
	if cfg.Store == nil && b != nil {
		d.compareStores(ctx, id)
	}
	d.Bus = &describedBus{d.Bus, map[string]string{
		"TURNPIKE_LEASE": cfg.Lease.String(), "TURNPIKE_EVENT_FEED": map[bool]string{false: "off", true: "on"}[cfg.EventFeed],
		"TURNPIKE_NATS_REPLICAS": strconv.Itoa(cfg.Replicas), "TURNPIKE_MAX_RESULT": strconv.Itoa(cmp.Or(cfg.MaxResult, tool.MaxResult)),
	}}
	return nil
}

// openStore opens the store on Redis or JetStream, which Close closes.
func (d *Deployment) openStore(ctx context.Context) (state.Store, error) {
	cfg := d.cfg
	if cfg.RedisURL != "" {
		store, err := redisstore.Open(ctx, redisstore.Config{URL: cfg.RedisURL, Login: cfg.RedisLogin, Prefix: cfg.Prefix, Confirm: cfg.RedisConfirm})
		if err != nil {
			return nil, err
		}
		d.OnClose(func() { _ = store.Close() })
		return store, nil
	}
	store, err := patiently(ctx, func(ctx context.Context) (*natsstore.Store, error) {
		return natsstore.Open(ctx, d.NATS, natsstore.Config{Prefix: cfg.Prefix, Domain: cfg.NATSDomain, Replicas: cfg.Replicas, Logger: cfg.Logger})
	})
	if err != nil {
		return nil, err
	}
	d.OnClose(func() { _ = store.Close() })
	return store, nil
}

// openBus opens the bus on NATS and checks its settings. It returns nil if the caller has given one.
func (d *Deployment) openBus(ctx context.Context) (*natsbus.Bus, []state.Finding, error) {
	cfg := d.cfg
	if cfg.Bus != nil {
		d.Bus = cfg.Bus
		return nil, nil, nil
	}
	keys, err := cfg.Keys()
	if err != nil {
		return nil, nil, err
	}
	b, err := patiently(ctx, func(ctx context.Context) (*natsbus.Bus, error) {
		cfg.StreamLimits.EventsAge = cmp.Or(time.Duration(cfg.Retention.Events), cfg.StreamLimits.EventsAge)
		return natsbus.Open(ctx, d.NATS, natsbus.Config{
			Prefix: cfg.Prefix, Domain: cfg.NATSDomain, Replicas: cfg.Replicas, AckWait: cfg.AckWait(), EventFeed: cfg.EventFeed, Limits: cfg.StreamLimits,
			TurnStreams: cfg.TurnStreams, MaxAckPending: cfg.MaxAckPending, Keys: keys, Logger: cfg.Logger,
		})
	})
	if err != nil {
		return nil, nil, err
	}
	d.Bus, d.setKeys = b, b.SetKeys
	d.OnClose(func() { _ = b.Close() })
	return b, b.Check(ctx), nil
}

// ReloadKeys reads Config.BusKeys again, for keys in a file that has changed. If they cannot be read or are not valid,
// it returns an error and the previous keys stay. It has no effect on a bus that the caller has given.
func (d *Deployment) ReloadKeys() error {
	if d.setKeys == nil {
		return nil
	}
	keys, err := d.cfg.Keys()
	if err != nil {
		return err
	}
	d.setKeys(keys)
	return nil
}

// settled returns an error if a finding is fatal, and logs the others.
func (d *Deployment) settled(findings []state.Finding) error {
	if err := check.Err(findings); err != nil {
		return fmt.Errorf("this process does not start, since a check failed:\n%w", err)
	}
	for _, f := range findings {
		if !f.OK {
			d.cfg.Logger.Warn("a check found a problem", "check", f.Name, "found", f.Detail, "hint", f.Remedy)
		}
	}
	return nil
}

// guard makes the deployment wait for an operator if Redis is an older copy of itself. If Redis or NATS does
// not answer, the process still starts, and checks again later.
func (d *Deployment) guard(ctx context.Context, store *redisstore.Store, b *natsbus.Bus) {
	d.watch = restore.NewWatch(store, b, d.cfg.Logger)
	d.review = restore.NewReview(d.watch, store, b)
	if err := d.watch.Look(ctx); err != nil {
		d.cfg.Logger.Warn("cannot check whether the store was replaced by an older copy of its data, this process retries", "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
	}
	d.Store, d.Bus = d.watch.Store(store), d.watch.Bus(b)
	d.background(ctx, d.watch.Run)
}

// describedBus is a bus whose heartbeats have the settings that must be the same in every process.
type describedBus struct {
	bus.Bus

	settings map[string]string
}

// SendHeartbeat implements bus.Membership.
func (b *describedBus) SendHeartbeat(h bus.Heartbeat) {
	h.Settings = b.settings
	b.Bus.SendHeartbeat(h)
}

// compareStores protects runs from processes that keep theirs in another store; id returns the id of the store, and is
// nil for JetStream.
func (d *Deployment) compareStores(ctx context.Context, id func(context.Context) (string, error)) {
	watch := onestore.NewWatch(d.cfg.StoreKind(), id, d.cfg.Logger)
	watch.Look(ctx)
	d.Store, d.Bus = watch.Store(d.Store), watch.Bus(d.Bus)
	d.background(ctx, watch.Run)
}

// background calls run until Close.
func (d *Deployment) background(ctx context.Context, run func(context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	d.OnClose(func() { stop(); <-done })
}

// warnOfTwoStores warns if JetStream has a stream for checkpoints under this prefix, too. Then another
// process, such as a `turnpike dev`, may work without Redis, and each of the two processes would receive
// turn messages for runs that only the other's store has. It ignores failures of the check.
func (d *Deployment) warnOfTwoStores(ctx context.Context) {
	if stream := StateStream(ctx, d.NATS, d.cfg); stream != "" {
		d.cfg.Logger.Warn("JetStream has a stream for the runs of this deployment, but this process keeps its runs in Redis", "prefix", d.cfg.Prefix, "stream", stream, "hint", "set the same TURNPIKE_REDIS_URL (in Go, Redis.URL) in every process, or use another prefix or NATS server; delete the stream if it is unused")
	}
}

// StateStream returns the name of the stream with the checkpoints of a deployment, or "" if there is none or the check
// fails.
func StateStream(ctx context.Context, nc *nats.Conn, cfg Config) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	js, err := natsbus.JetStream(nc, cfg.NATSDomain)
	if err != nil {
		return ""
	}
	stream, err := js.StreamNameBySubject(ctx, cfg.Prefix+".state.>")
	if err != nil {
		return ""
	}
	return stream
}

// patiently calls open up to five times while it times out: a cluster does not answer requests about a stream
// that another process has just created until the stream has a leader.
func patiently[T any](ctx context.Context, open func(context.Context) (T, error)) (opened T, err error) {
	for range 5 {
		opened, err = open(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
	}
	return opened, err
}

// Config returns the settings of the deployment, with defaults filled in.
func (d *Deployment) Config() Config { return d.cfg }

// OnClose makes Close call f, before it closes what was opened earlier. It is safe for concurrent use.
func (d *Deployment) OnClose(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closer = append(d.closer, f)
}

// Close calls the functions of OnClose and closes the connections that Open made, the latest first. Run and Serve of
// the workers and gateways of the deployment must have returned before. A second call closes nothing.
func (d *Deployment) Close() {
	d.mu.Lock()
	closer := d.closer
	d.closer = nil
	d.mu.Unlock()
	for i := len(closer) - 1; i >= 0; i-- {
		closer[i]()
	}
}
