package onestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// aliveFor is the time for which a process counts as alive after its last heartbeat, unless it announced that it
	// leaves.
	aliveFor = 10 * time.Second

	// listenFor is the time within which a process receives a heartbeat of every other process.
	listenFor = 1200 * time.Millisecond

	// lookInterval is the time between two comparisons of the stores, and lookTimeout bounds one read of the id.
	lookInterval, lookTimeout = time.Second, 2 * time.Second

	// reportAfter is the number of comparisons after which different stores are reported: after a store has lost its
	// id, each process needs one to read the new one.
	reportAfter = 3

	// warnInterval is the minimum time between two warnings about messages of missing runs.
	warnInterval = time.Minute
)

// Remedy says what to do about processes with different stores.
const Remedy = "set the same TURNPIKE_REDIS_URL, with the same database, in every process, or use another TURNPIKE_PREFIX or NATS server; a variable whose name is misspelt has no effect"

// ErrDiffers reports that a run was not recorded as lost because another live process has another store.
var ErrDiffers = errors.New("no run is recorded as lost while processes of the deployment keep their runs in different stores")

// Identity identifies a store.
type Identity struct {
	Kind string // Redis, JetStream, or "" if unknown
	ID   string // of the store among those of its kind; "" if unknown, or if the bus has only one of the kind
}

// Of returns the store named by a heartbeat.
func Of(h bus.Heartbeat) Identity { return Identity{h.Store, h.StoreID} }

func (i Identity) String() string {
	if i.ID == "" {
		return i.Kind
	}
	return fmt.Sprintf("%s (id %s)", i.Kind, i.ID)
}

// Differs reports whether i and o are known to be different stores.
func (i Identity) Differs(o Identity) bool {
	if i.Kind == "" || o.Kind == "" {
		return false
	}
	return i.Kind != o.Kind || i.ID != "" && o.ID != "" && i.ID != o.ID
}

// Watch compares the store of one process with those that heartbeats name. It is safe for concurrent use.
type Watch struct {
	read func(ctx context.Context) (id string, err error)
	log  *slog.Logger

	mu       sync.Mutex
	own      Identity
	heard    map[string]process
	since    time.Time // the first call of Heartbeats; zero before it
	differs  int       // comparisons in a row that found another store
	warnedAt time.Time
}

type process struct {
	store    Identity
	at       time.Time
	interval time.Duration // see bus.Heartbeat
}

// NewWatch returns a watch of a process whose store is of a kind. read returns the id of the store, and creates a
// missing one; it is nil for a kind whose store needs no id, because a bus has only one.
func NewWatch(kind string, read func(ctx context.Context) (id string, err error), log *slog.Logger) *Watch {
	return &Watch{read: read, log: log, own: Identity{Kind: kind}, heard: map[string]process{}}
}

// Run calls Look every second until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.Look(ctx)
		}
	}
}

// Look reads the id of the store if it is unknown, or if another process names another store: a store that has lost its
// data has a new id. It then logs whether the processes have different stores, when that has changed.
func (w *Watch) Look(ctx context.Context) {
	_, _, differs := w.other()
	w.mu.Lock()
	known := w.own.ID != ""
	w.mu.Unlock()
	if w.read != nil && (differs || !known) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		id, err := w.read(ctx)
		cancel()
		if err == nil {
			w.mu.Lock()
			w.own.ID = id
			w.mu.Unlock()
		} else {
			w.log.Debug("id of the store not read", "error", err)
		}
	}
	w.report()
}

// report logs that the stores differ, or do so no longer.
func (w *Watch) report() {
	name, other, differs := w.other()
	w.mu.Lock()
	before, own := w.differs, w.own
	if w.differs++; !differs {
		w.differs = 0
	}
	now := w.differs
	w.mu.Unlock()
	switch {
	case now == reportAfter:
		w.log.Error("processes of this deployment keep their runs in different stores; no run is recorded as lost meanwhile", "store", own.String(), "other_store", other.String(), "process", name, "hint", Remedy)
	case before >= reportAfter && now == 0:
		w.log.Info("all processes of this deployment keep their runs in the same store again", "store", own.String())
	}
}

// other returns a live process with another store than this process has.
func (w *Watch) other() (name string, store Identity, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.heard)) {
		p := w.heard[name]
		if time.Since(p.at) > aliveFor {
			delete(w.heard, name)
		} else if w.own.Differs(p.store) {
			return name, p.store, true
		}
	}
	return "", Identity{}, false
}

func (w *Watch) hear(h bus.Heartbeat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Leaving {
		delete(w.heard, h.Worker)
		return
	}
	w.heard[h.Worker] = process{Of(h), time.Now(), h.Interval}
}

// Bus returns b with the store of this process in the heartbeats that it sends. Heartbeats that arrive through it
// show the stores of others.
func (w *Watch) Bus(b bus.Bus) bus.Bus { return &watchedBus{b, w} }

type watchedBus struct {
	bus.Bus

	watch *Watch
}

// SendHeartbeat implements bus.Membership.
func (b *watchedBus) SendHeartbeat(h bus.Heartbeat) {
	b.watch.mu.Lock()
	h.Store, h.StoreID = b.watch.own.Kind, b.watch.own.ID
	b.watch.mu.Unlock()
	b.Bus.SendHeartbeat(h)
}

// Heartbeats implements bus.Membership.
func (b *watchedBus) Heartbeats(ctx context.Context, fn func(bus.Heartbeat)) (stop func(), err error) {
	b.watch.mu.Lock()
	if b.watch.since.IsZero() {
		b.watch.since = time.Now()
	}
	b.watch.mu.Unlock()
	return b.Bus.Heartbeats(ctx, func(h bus.Heartbeat) {
		b.watch.hear(h)
		fn(h)
	})
}

// Store wraps s. While a live process has another store, a Claim of a run that s does not have answers ClaimBehind, so
// that the message is delivered again, and a Create that records a run as lost returns ErrDiffers. Claim does the same
// until heartbeats of all processes can have arrived.
func (w *Watch) Store(s state.Store) state.Store { return &store{s, w} }

type store struct {
	state.Store

	watch *Watch
}

// Claim implements state.Turns.
func (s *store) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	c, err := s.Store.Claim(ctx, r)
	if err == nil && c.Outcome == state.ClaimMissing && s.watch.elsewhere(r.Run) {
		return &state.Claim{Outcome: state.ClaimBehind, Now: c.Now}, nil
	}
	return c, err
}

// elsewhere reports whether a run that the store does not have may be in the store of another process.
func (w *Watch) elsewhere(run state.RunID) bool {
	name, other, differs := w.other()
	w.mu.Lock()
	own, warn := w.own, differs && time.Since(w.warnedAt) >= warnInterval
	if warn {
		w.warnedAt = time.Now()
	}
	listen := listenFor
	for _, p := range w.heard {
		listen = max(listen, listenFor+p.interval)
	}
	young := !w.since.IsZero() && time.Since(w.since) < listen
	w.mu.Unlock()
	if warn {
		w.log.Warn("a turn message names a run that the store of this process does not have; it stays in the queue, since another process has another store", "run_id", run, "store", own.String(), "other_store", other.String(), "process", name, "hint", Remedy)
	}
	return differs || young
}

// Create implements state.Runs.
func (s *store) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.State.Transition.Reason == state.EndLost {
		if name, other, differs := s.watch.other(); differs {
			s.watch.mu.Lock()
			own := s.watch.own
			s.watch.mu.Unlock()
			return state.Created{}, fmt.Errorf("%w: the process %s in %s, this one in %s: %s", ErrDiffers, name, other, own, Remedy)
		}
	}
	return s.Store.Create(ctx, n)
}
