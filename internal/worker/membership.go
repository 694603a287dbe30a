package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// MissedHeartbeats is how many heartbeats a worker may miss before it is dead.
const MissedHeartbeats = 4

// evictPart is how many leases of a dead worker are ended at once. Others who evict it get
// parts of their own meanwhile.
const evictPart = 256

// members are the workers of the deployment, as their heartbeats tell. It notices that one
// is dead long before its leases run out. A worker that was only paused is evicted, too,
// and fenced by its tokens.
//
// A heartbeat goes to the other workers and to the store. Dead is who was not heard for a
// while, and has not reached the store either: neither a slow listener nor a slow bus can
// fake that. It is looked at anew before each part of an eviction.
type members struct {
	w    *Worker
	stop func()

	formats *bus.Formats

	mu       sync.Mutex
	seen     map[string]member
	evicting map[string]bool
	evicts   sync.WaitGroup
}

// member is the last heartbeat of a worker.
type member struct {
	at        time.Time
	takesOver bool
}

// takesOver reports whether a worker can take over any turn that this one claims eagerly.
// It leaves runs of a newer format than it can read alone, and such a claim would last until
// the lease ends.
func takesOver(h bus.Heartbeat) bool { return h.Format >= state.Format }

func (w *Worker) joinMembers(ctx context.Context) (*members, error) {
	m := &members{w: w, seen: map[string]member{}, evicting: map[string]bool{}, formats: bus.NewFormats(state.Format, w.store.SetFormat)}
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
		m.w.bus.SendHeartbeat(bus.Heartbeat{Worker: m.w.cfg.ID, Format: state.Format, Slots: m.w.cfg.Slots, Turns: m.w.leases.byLane(), Version: m.w.cfg.Version})
		if !pause(ctx, m.w.cfg.HeartbeatInterval) {
			return
		}
	}
}

// writeHeartbeats writes to the store, which may be slow to answer, that the worker is alive.
func (m *members) writeHeartbeats(ctx context.Context) {
	for {
		within, cancel := context.WithTimeout(ctx, MissedHeartbeats*m.w.cfg.HeartbeatInterval)
		m.w.check(m.w.store.Heartbeat(within, m.w.cfg.ID, MissedHeartbeats*m.w.cfg.HeartbeatInterval), "heartbeat")
		cancel()
		if !pause(ctx, m.w.cfg.HeartbeatInterval) {
			return
		}
	}
}

// watch looks for dead workers until ctx ends.
func (m *members) watch(ctx context.Context) {
	defer m.evicts.Wait()
	every := m.w.cfg.HeartbeatInterval
	ready, evicted := time.Now().Add(m.unreachableAfter()), false
	for {
		began := time.Now()
		if !pause(ctx, every) {
			return
		}
		// Who was asleep, or does not hear itself, cannot tell silence from its own
		// deafness: it judges nobody until it has listened for a while again.
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
			// Whoever holds a lease and was not heard all the while died before this
			// worker listened.
			evicted = m.evictUnheard(ctx)
		}
		m.evict(ctx, m.unreachable())
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

// unreachableAfter is for how long a worker that is alive may not be heard.
func (m *members) unreachableAfter() time.Duration {
	return MissedHeartbeats * m.w.cfg.HeartbeatInterval
}

// unreachable returns the workers that were not heard for too long.
func (m *members) unreachable() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var unheard []string
	for id, other := range m.seen {
		if id != m.w.cfg.ID && time.Since(other.at) > m.unreachableAfter() {
			unheard = append(unheard, id)
		}
	}
	slices.Sort(unheard)
	return unheard
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

// evict takes up what workers had in flight, each beside the others.
func (m *members) evict(ctx context.Context, workers []string) {
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

// unheard reports whether a worker still is unreachable. The caller holds mu.
func (m *members) unheard(id string) bool { return time.Since(m.seen[id].at) > m.unreachableAfter() }

// back reports whether a worker that was found dead is heard again: it, perhaps this one, was
// only paused.
func (m *members) back(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return id != "" && !m.unheard(id)
}

// dead reports whether a worker is, as far as this one can tell now.
func (m *members) dead(ctx context.Context, id string) (bool, error) {
	if m.deaf(m.unreachableAfter() / 2) {
		return false, nil
	}
	alive, err := m.w.store.Alive(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	return err == nil && !alive && m.unheard(id), err
}

// takeUp evicts a worker, part by part, as long as it is dead. It reports whether nothing
// is left to do.
func (m *members) takeUp(ctx context.Context, id string) bool {
	runs, more := 0, true
	for more {
		dead, err := m.dead(ctx, id)
		var due []state.Due
		if dead {
			due, err = m.w.store.Evict(ctx, id, evictPart, m.w.cfg.RedeliveryDelay)
			runs += len(due)
			m.w.republish(ctx, due, dispatch.Evicted(id))
		}
		if err != nil {
			m.w.log.Warn().Err(err).Str("dead_worker", id).Str("hint", "is the store reachable? it is tried again").Msg("eviction failed")
			return false
		}
		if !dead {
			m.w.log.Debug().Str("unheard_worker", id).Msg("worker may be alive, and is not evicted")
			return false
		}
		more = len(due) >= evictPart
	}
	m.w.log.Warn().Str("dead_worker", id).Int("runs", runs).Str("hint", "its turns are taken up here and elsewhere").Msg("worker is dead")
	return true
}

// evictFormerSelf takes up what a process of this worker's id had in flight when it died:
// the others hear the id again and see nobody missing.
func (w *Worker) evictFormerSelf(ctx context.Context) {
	runs := 0
	for {
		due, err := w.store.Evict(ctx, w.cfg.ID, evictPart, w.cfg.RedeliveryDelay)
		runs += len(due)
		w.republish(ctx, due, dispatch.Evicted(""))
		if err != nil {
			w.log.Warn().Err(err).Str("hint", "leases from before the restart run out by themselves").Msg("eviction failed")
		}
		if err != nil || len(due) < evictPart {
			break
		}
	}
	if runs > 0 {
		w.log.Info().Int("runs", runs).Msg("turns from before the restart are taken up")
	}
}
