package upkeep

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// MissedHeartbeats is the number of heartbeats that a worker may miss before the others consider it
// dead.
const MissedHeartbeats = 4

// evictPart is the number of a dead worker's leases ended at once. Other workers evict further
// parts at the same time.
const evictPart = 256

type memberStore interface {
	SetFormat(format int)
	Heartbeat(ctx context.Context, worker string, lasts time.Duration) error
	Alive(ctx context.Context, worker string) (bool, error)
	Owners(ctx context.Context) ([]string, error)
	Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error)
}

type memberBus interface {
	SendHeartbeat(h bus.Heartbeat)
	Heartbeats(ctx context.Context, fn func(bus.Heartbeat)) (stop func(), err error)
}

// Members are the workers of the deployment, as their heartbeats show them. Members detects a dead worker, usually long
// before its leases end, and evicts it: it ends the leases, so that other workers continue the turns. It also evicts a
// worker that was only paused; the store then refuses what that worker writes under the leases, except results of its
// calls (state.Turns.Record).
//
// A heartbeat goes to the other workers and to the store. A worker counts as dead when for MissedHeartbeats intervals
// neither this worker nor the store has received a heartbeat from it, so a slow subscriber or a slow bus alone does not
// make a live worker look dead. Members checks this again before each part of an eviction. Members is safe for
// concurrent use.
type Members struct {
	self    Self
	store   memberStore
	bus     memberBus
	leases  *Leases
	sweeper *Sweeper
	periods Periods
	log     *slog.Logger
	formats *bus.Formats

	mu       sync.Mutex
	seen     map[string]member
	evicting map[string]bool
	evicts   sync.WaitGroup

	others, overShare atomic.Bool // see Alone and OverShare
}

// Self is the content of a worker's heartbeats.
type Self struct {
	ID      string
	Version string
	Slots   int

	// Quarantined returns the number of turns that wait in the worker's quarantine; nil stands for none.
	Quarantined func() int
}

// NewMembers returns the membership of a deployment as the worker self sees it, initially empty.
// sweeper publishes the turns of evicted workers.
func NewMembers(self Self, store memberStore, b memberBus, leases *Leases, sweeper *Sweeper, periods Periods, log *slog.Logger) *Members {
	return &Members{
		self: self, store: store, bus: b, leases: leases, sweeper: sweeper, periods: periods, log: log,
		formats: bus.NewFormats(state.Format, store.SetFormat), seen: map[string]member{}, evicting: map[string]bool{},
	}
}

// member is the last heartbeat of a worker.
type member struct {
	at           time.Time
	takesOver    bool
	slots, turns int
}

// takesOver reports whether a worker can take over this worker's eager claims. A worker does not
// claim runs of a newer format than it can read, so such a turn would wait for the end of the
// lease.
func takesOver(h bus.Heartbeat) bool { return h.Format >= state.Format }

// Join receives the heartbeats of all workers, this one included, until stop is called. Run needs it.
func (m *Members) Join(ctx context.Context) (stop func(), err error) {
	return m.bus.Heartbeats(ctx, m.hear)
}

// Run sends heartbeats and evicts dead workers until ctx ends. The caller calls Join first.
func (m *Members) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { m.sendHeartbeats(ctx) })
	running.Go(func() { m.writeHeartbeats(ctx) })
	m.watch(ctx)
}

// Leave notifies the other members that this worker stops.
func (m *Members) Leave() { m.bus.SendHeartbeat(bus.Heartbeat{Worker: m.self.ID, Leaving: true}) }

func (m *Members) hear(h bus.Heartbeat) {
	m.formats.Hear(h, time.Now())
	if h.Gateway {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.Leaving {
		delete(m.seen, h.Worker)
		return
	}
	other := member{at: time.Now(), takesOver: takesOver(h), slots: h.Slots}
	for _, n := range h.Turns {
		other.turns += n
	}
	m.seen[h.Worker] = other
	if !other.takesOver {
		m.leases.AllowEager(false)
	}
}

// sendHeartbeats sends heartbeats on the bus until ctx ends. It runs in a separate goroutine, so that
// nothing delays it.
func (m *Members) sendHeartbeats(ctx context.Context) {
	for {
		h := bus.Heartbeat{Worker: m.self.ID, Format: state.Format, Slots: m.self.Slots, Turns: m.leases.Lanes(), Version: m.self.Version}
		if m.self.Quarantined != nil {
			h.Quarantined = m.self.Quarantined()
		}
		m.bus.SendHeartbeat(h)
		if !clock.Pause(ctx, m.periods.Heartbeat) {
			return
		}
	}
}

// writeHeartbeats writes heartbeats to the store, which may answer slowly.
func (m *Members) writeHeartbeats(ctx context.Context) {
	for {
		within, cancel := context.WithTimeout(ctx, m.unreachableAfter())
		debug(m.log, m.store.Heartbeat(within, m.self.ID, m.unreachableAfter()), "heartbeat")
		cancel()
		if !clock.Pause(ctx, m.periods.Heartbeat) {
			return
		}
	}
}

// watch looks for dead workers until ctx ends.
func (m *Members) watch(ctx context.Context) {
	defer m.evicts.Wait()
	every := m.periods.Heartbeat
	ready, evicted := time.Now().Add(m.unreachableAfter()), false
	for {
		began := time.Now()
		if !clock.Pause(ctx, every) {
			return
		}
		// A worker that was paused, or misses its own heartbeats, cannot tell a dead peer from a
		// lost subscription. It evicts none until it has listened for a while again.
		if time.Since(began) > 2*every || m.deaf(2*every) {
			ready, evicted = time.Now().Add(m.unreachableAfter()), false
		}
		listened := !time.Now().Before(ready)
		m.allowEagerClaims(listened)
		m.formats.Decide(time.Now(), listened)
		if !listened {
			continue
		}
		if !evicted {
			// A lease owner without a single heartbeat died before this worker listened.
			evicted = m.evictUnheard(ctx)
		}
		m.evict(ctx, m.unreachable())
	}
}

// allowEagerClaims allows eager claims if this worker knows all members, and each of them can take
// over such claims.
func (m *Members) allowEagerClaims(known bool) {
	m.mu.Lock() // so that the "no" of hear is not overwritten
	defer m.mu.Unlock()
	for other := range maps.Values(m.seen) {
		known = known && other.takesOver
	}
	m.compare()
	m.leases.AllowEager(known)
}

// Alone reports whether no other worker sends heartbeats.
func (m *Members) Alone() bool { return !m.others.Load() }

// OverShare reports whether this worker had more than its share of the turns in flight, by the latest heartbeats of
// all workers. The share is in proportion to the slots, with a quarter and some turns to spare.
func (m *Members) OverShare() bool { return m.overShare.Load() }

// compare updates Alone and OverShare. The caller holds mu.
func (m *Members) compare() {
	slots, turns := 0, 0
	for _, other := range m.seen {
		slots, turns = slots+other.slots, turns+other.turns
	}
	share := turns * m.self.Slots / max(1, slots)
	m.overShare.Store(m.seen[m.self.ID].turns > share+share/4+max(1, m.self.Slots/32))
	m.others.Store(len(m.seen) > 1)
}

// deaf reports whether the worker has received none of its own heartbeats for d.
func (m *Members) deaf(d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.seen[m.self.ID].at) > d
}

// unreachableAfter is the longest gap between the heartbeats of a live worker.
func (m *Members) unreachableAfter() time.Duration {
	return MissedHeartbeats * m.periods.Heartbeat
}

// unreachable returns the other workers whose last heartbeat is older than unreachableAfter.
func (m *Members) unreachable() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var unheard []string
	for id, other := range m.seen {
		if id != m.self.ID && time.Since(other.at) > m.unreachableAfter() {
			unheard = append(unheard, id)
		}
	}
	slices.Sort(unheard)
	return unheard
}

// evictUnheard evicts lease owners whose heartbeats this worker has never received. It
// reports whether it could read the owners.
func (m *Members) evictUnheard(ctx context.Context) bool {
	owners, err := m.store.Owners(ctx)
	if err != nil {
		m.log.Warn("the workers that hold leases could not be read from the store; this worker retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
		return false
	}
	m.mu.Lock()
	unheard := slices.DeleteFunc(owners, func(id string) bool { _, heard := m.seen[id]; return heard })
	m.mu.Unlock()
	slices.Sort(unheard)
	m.evict(ctx, unheard)
	return true
}

// evict ends the leases of dead workers and publishes their turns, each worker in a separate goroutine.
func (m *Members) evict(ctx context.Context, workers []string) {
	for _, id := range workers {
		m.mu.Lock()
		busy := m.evicting[id]
		m.evicting[id] = true
		m.mu.Unlock()
		if busy {
			continue
		}
		m.evicts.Go(func() {
			done := m.takeUp(ctx, id)
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.evicting, id)
			if _, heard := m.seen[id]; !heard && !done {
				m.seen[id] = member{takesOver: true} // if it does anything at all
			}
			if done && m.unheard(id) {
				delete(m.seen, id)
			}
		})
	}
}

// unheard reports whether a worker is still unreachable. The caller holds mu.
func (m *Members) unheard(id string) bool { return time.Since(m.seen[id].at) > m.unreachableAfter() }

// Back reports whether this worker has received a heartbeat of a worker within MissedHeartbeats intervals. A worker
// that was evicted and is back was paused or cut off, or was restarted under its id. It may be this worker. Back
// returns false for "".
func (m *Members) Back(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return id != "" && !m.unheard(id)
}

// dead reports whether a worker is dead, as far as this worker can determine. The error is that of the store.
func (m *Members) dead(ctx context.Context, id string) (bool, error) {
	if m.deaf(m.unreachableAfter() / 2) {
		return false, nil
	}
	alive, err := m.store.Alive(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	return err == nil && !alive && m.unheard(id), err
}

// takeUp evicts a worker, part by part, as long as it is dead. It reports whether the eviction is
// complete.
func (m *Members) takeUp(ctx context.Context, id string) bool {
	runs, more := 0, true
	for more {
		dead, err := m.dead(ctx, id)
		var due []state.Due
		if dead {
			due, err = m.store.Evict(ctx, id, evictPart, m.periods.RedeliveryDelay)
			runs += len(due)
			m.sweeper.Republish(ctx, due, dispatch.Evicted(id))
		}
		if err != nil {
			m.log.Warn("leases of a dead worker not ended in the store; this worker retries", "error", err, "dead_worker", id, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
			return false
		}
		if !dead {
			m.log.Debug("worker may be alive, and is not evicted", "unheard_worker", id)
			return false
		}
		more = len(due) >= evictPart
	}
	m.log.Warn("a worker is unreachable; other workers resume its turns", "dead_worker", id, "runs", runs, "hint", "if you did not stop it, find out whether its process ended, was paused, or lost its connections to NATS and the store")
	return true
}

// EvictFormerSelf ends leases that an earlier process with this worker's id has left, and publishes their turns. The
// other workers receive heartbeats with that id again, and so do not evict it. EvictFormerSelf must be called before
// this worker claims a turn. It logs an error of the store. Leases that the store did not end expire.
func (m *Members) EvictFormerSelf(ctx context.Context) {
	runs := 0
	for {
		due, err := m.store.Evict(ctx, m.self.ID, evictPart, m.periods.RedeliveryDelay)
		runs += len(due)
		m.sweeper.Republish(ctx, due, dispatch.Evicted(""))
		if err != nil {
			m.log.Warn("leases that this worker had before its restart not ended; when they have expired, workers continue the turns", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
		}
		if err != nil || len(due) < evictPart {
			break
		}
	}
	if runs > 0 {
		m.log.Info("turns that this worker had before its restart are resumed", "runs", runs)
	}
}
