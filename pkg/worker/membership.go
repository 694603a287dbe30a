package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/dispatch"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// missedHeartbeats is how many heartbeats a worker may miss before it is dead.
const missedHeartbeats = 4

// members are the workers of the deployment, as their heartbeats tell. It notices that one
// is dead long before its leases run out. A worker that was only paused is evicted, too,
// and fenced by its tokens.
type members struct {
	w    *Worker
	stop func()

	formats *bus.Formats

	mu   sync.Mutex
	seen map[string]member
}

// member is the last heartbeat of a worker.
type member struct {
	at        time.Time
	takesOver bool
}

// takesOver reports whether a worker takes over whatever this one may have claimed eagerly.
// A run of a format that it cannot read it leaves alone, and the claim would run out like
// that of a worker which died.
func takesOver(h bus.Heartbeat) bool {
	return h.EagerClaims && max(h.Format, state.OldFormat) >= state.Format
}

func (w *Worker) joinMembers(ctx context.Context) (*members, error) {
	m := &members{w: w, seen: map[string]member{}, formats: bus.NewFormats(w.store.SetFormat)}
	stop, err := w.bus.Heartbeats(ctx, m.hear)
	m.stop = stop
	return m, err
}

func (m *members) hear(h bus.Heartbeat) {
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
	other := member{time.Now(), takesOver(h)}
	m.seen[h.Worker] = other
	if !other.takesOver {
		m.w.eager.allow(false)
	}
}

// sendHeartbeats sends heartbeats until ctx ends, whatever else the worker is busy with.
func (m *members) sendHeartbeats(ctx context.Context) {
	for {
		m.w.bus.SendHeartbeat(bus.Heartbeat{Worker: m.w.cfg.ID, EagerClaims: true, Format: state.Format})
		if !pause(ctx, m.w.cfg.HeartbeatEvery) {
			return
		}
	}
}

// watch looks for dead workers until ctx ends.
func (m *members) watch(ctx context.Context) {
	every := m.w.cfg.HeartbeatEvery
	ready, evicted := time.Now().Add(missedHeartbeats*every), false
	for {
		began := time.Now()
		if !pause(ctx, every) {
			return
		}
		// Who was asleep, or does not hear itself, cannot tell silence from its own
		// deafness: it judges nobody until it has listened for a while again.
		if time.Since(began) > 2*every || m.deaf(2*every) {
			ready, evicted = time.Now().Add(missedHeartbeats*every), false
		}
		listened := !time.Now().Before(ready)
		m.allowEagerClaims(listened)
		m.formats.Decide(time.Now(), listened)
		if !listened {
			continue
		}
		if !evicted {
			// Whoever holds a lease and was not heard all the while died before this
			// worker listened.
			evicted = m.evictUnheard(ctx)
		}
		m.evict(ctx, m.unreachable(missedHeartbeats*every))
	}
}

// allowEagerClaims lets the worker claim eagerly if it knows all others, and each takes
// over what it has claimed.
func (m *members) allowEagerClaims(known bool) {
	m.mu.Lock() // against hear: its no is the last word
	defer m.mu.Unlock()
	for other := range maps.Values(m.seen) {
		known = known && other.takesOver
	}
	m.w.eager.allow(known)
}

// deaf reports whether the worker has not heard itself for d.
func (m *members) deaf(d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.seen[m.w.cfg.ID].at) > d
}

// unreachable forgets and returns the workers that were not heard for d.
func (m *members) unreachable(d time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var dead []string
	for id, other := range m.seen {
		if id != m.w.cfg.ID && time.Since(other.at) > d {
			dead = append(dead, id)
			delete(m.seen, id)
		}
	}
	slices.Sort(dead)
	return dead
}

// remember keeps a worker that could not be evicted among those that are silent,
// unless it was heard meanwhile.
func (m *members) remember(worker string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.seen[worker]; !ok {
		m.seen[worker] = member{takesOver: true} // if it does anything at all
	}
}

// evictUnheard evicts the owners of leases that were never heard, and reports
// whether it could look.
func (m *members) evictUnheard(ctx context.Context) bool {
	owners, err := m.w.store.Owners(ctx)
	if err != nil {
		m.w.log.Warn().Err(err).Str("hint", "is the store reachable? it is asked again").Msg("owners of leases not read")
		return false
	}
	m.mu.Lock()
	unheard := slices.DeleteFunc(owners, func(id string) bool { _, heard := m.seen[id]; return heard })
	m.mu.Unlock()
	slices.Sort(unheard)
	m.evict(ctx, unheard)
	return true
}

func (m *members) evict(ctx context.Context, workers []string) {
	for _, id := range workers {
		due, err := m.w.store.Evict(ctx, id, m.w.cfg.RedeliveryDelay)
		if err != nil {
			m.w.log.Warn().Err(err).Str("dead_worker", id).Str("hint", "it is tried again").Msg("eviction failed")
			m.remember(id)
			continue
		}
		m.w.log.Warn().Str("dead_worker", id).Int("runs", len(due)).Str("hint", "its turns are taken up here and elsewhere").Msg("worker is dead")
		m.w.republish(ctx, due, dispatch.Evicted)
	}
}

// evictFormerSelf takes up what a process of this worker's id had in flight when it died:
// the others hear the id again and see nobody missing.
func (w *Worker) evictFormerSelf(ctx context.Context) {
	due, err := w.store.Evict(ctx, w.cfg.ID, w.cfg.RedeliveryDelay)
	if err != nil {
		w.log.Warn().Err(err).Str("hint", "leases from before the restart run out by themselves").Msg("eviction failed")
	}
	if len(due) > 0 {
		w.log.Info().Int("runs", len(due)).Msg("turns from before the restart are taken up")
	}
	w.republish(ctx, due, dispatch.Evicted)
}
