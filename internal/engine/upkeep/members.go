package upkeep

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
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
// make a live worker look dead. Members checks this again before each part of an eviction.
//
// Each heartbeat goes to all workers, so in a large fleet a worker without leases sends fewer, each with its interval:
// it counts as dead later, and no turn waits for that. When it claims a run it sends the next one at once.
//
// Members is safe for concurrent use.
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

	own       *heartbeats
	count     atomic.Int64 // see Count
	overShare atomic.Bool  // see OverShare
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
	m := &Members{
		self: self, store: store, bus: b, leases: leases, sweeper: sweeper, periods: periods, log: log,
		formats: bus.NewFormats(state.Format, store.SetFormat), seen: map[string]member{}, evicting: map[string]bool{},
	}
	m.own = &heartbeats{self: self, store: store, bus: b, leases: leases, periods: periods, members: m.Count, log: log}
	return m
}

// member is the last heartbeat of a worker.
type member struct {
	at           time.Time
	later        time.Duration // how much later than that of a busy worker its next heartbeat may come
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
	running.Go(func() { m.own.send(ctx) })
	running.Go(func() { m.own.write(ctx) })
	m.watch(ctx)
}

// Stop notifies the other members that this worker takes no further turns.
func (m *Members) Stop() { m.own.stopping.Store(true) }

// Leave notifies the other members that this worker stops.
func (m *Members) Leave() { m.bus.SendHeartbeat(bus.Heartbeat{Worker: m.self.ID, Leaving: true}) }

func (m *Members) hear(h bus.Heartbeat) {
	h.Interval = min(h.Interval, max(longestInterval, m.periods.Heartbeat)) // no worker names a longer one
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
	other := member{at: time.Now(), later: max(0, h.Interval-m.periods.Heartbeat), takesOver: takesOver(h), slots: h.Slots}
	for _, n := range h.Turns {
		other.turns += n
	}
	m.seen[h.Worker] = other
	if !other.takesOver {
		m.leases.AllowEager(false)
	}
}

// watch looks for dead workers until ctx ends.
func (m *Members) watch(ctx context.Context) {
	defer m.evicts.Wait()
	every := m.periods.Heartbeat
	since, evicted := time.Now(), false
	for {
		began := time.Now()
		if !clock.Pause(ctx, every) {
			return
		}
		// A worker that was paused, or misses its own heartbeats, cannot tell a dead peer from a
		// lost subscription. It evicts none until it has listened for a while again.
		if time.Since(began) > 2*every || m.deaf(2*every) {
			since, evicted = time.Now(), false
		}
		listened := time.Since(since)
		known := listened >= m.unreachableAfter()+m.formats.Longest()
		m.allowEagerClaims(known)
		m.formats.Decide(time.Now(), known)
		if listened < m.unreachableAfter() {
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

// Count returns the number of workers that send heartbeats, this one included.
func (m *Members) Count() int { return max(1, int(m.count.Load())) }

// Alone reports whether no other worker sends heartbeats.
func (m *Members) Alone() bool { return m.Count() == 1 }

// OverShare reports whether this worker had more than its share of the turns in flight, by the latest heartbeats of
// all workers. The share is in proportion to the slots, with a quarter and some turns to spare.
func (m *Members) OverShare() bool { return m.overShare.Load() }

// compare updates Count and OverShare. The caller holds mu.
func (m *Members) compare() {
	count, slots, turns := 0, 0, 0
	for _, other := range m.seen {
		count, slots, turns = count+1, slots+other.slots, turns+other.turns
	}
	share := turns * m.self.Slots / max(1, slots)
	m.overShare.Store(m.seen[m.self.ID].turns > share+share/4+max(1, m.self.Slots/32))
	m.count.Store(int64(count))
}

// deaf reports whether the worker has received none of its own heartbeats for d.
func (m *Members) deaf(d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.seen[m.self.ID]
	return time.Since(own.at) > d+own.later
}

// unreachableAfter is the longest gap between the heartbeats of a live worker with leases.
func (m *Members) unreachableAfter() time.Duration {
	return MissedHeartbeats * m.periods.Heartbeat
}

// evictors is the number of workers that evict a dead one at the same time. More join them later, in case these do
// nothing or the dead worker had many leases: an eviction asks every shard of the store.
const evictors = 4

// unreachable returns the other workers whose last heartbeat is older than unreachableAfter, and which this worker must
// evict now.
func (m *Members) unreachable() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var unheard []string
	for id := range m.seen {
		if id != m.self.ID && m.unheard(id) && m.silence(id) > m.unreachableAfter()*time.Duration(1+m.rank(id)/evictors) {
			unheard = append(unheard, id)
		}
	}
	slices.Sort(unheard)
	return unheard
}

// rank returns the number of live workers that evict a dead one before this worker does. The order differs from one dead
// worker to another. The caller holds mu.
func (m *Members) rank(dead string) (rank int) {
	own := order(dead, m.self.ID)
	for id := range m.seen {
		if id != m.self.ID && !m.unheard(id) && order(dead, id) < own {
			rank++
		}
	}
	return rank
}

func order(dead, id string) uint64 {
	sum := sha256.Sum256([]byte(dead + "\x00" + id)) // a simpler hash orders similar names alike
	return binary.BigEndian.Uint64(sum[:])
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
func (m *Members) unheard(id string) bool { return m.silence(id) > m.unreachableAfter() }

// silence returns the time since the last heartbeat of a worker, less that by which its interval is longer than usual.
// The caller holds mu.
func (m *Members) silence(id string) time.Duration {
	other := m.seen[id]
	return time.Since(other.at) - other.later
}

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
	m.mu.Lock()
	late := m.rank(id) >= evictors && runs == 0
	m.mu.Unlock()
	level := slog.LevelWarn
	if late { // others have evicted and logged it
		level = slog.LevelDebug
	}
	m.log.Log(ctx, level, "a worker is unreachable; other workers resume its turns", "dead_worker", id, "runs", runs, "hint", "if you did not stop it, find out whether its process ended, was paused, or lost its connections to NATS and the store")
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
