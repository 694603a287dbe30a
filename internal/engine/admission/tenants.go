package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// sharedFor bounds how long a worker counts as shared after it has taken turns of two tenants in a row.
const sharedFor = time.Hour

// Tenants counts the turns in flight on this worker by tenant. Each shard of the store counts only its own runs of a
// tenant, so a worker whose slots are filled by one tenant detects that earlier than the shards do. Tenants is safe for
// concurrent use.
//
// On a worker that several tenants share, Tenants also limits how many turns from the queues for noisy tenants work at
// the same time: Await and Work wait for a place. Enter, and Work when its context ends, may exceed the limit. A turn
// works while it is claimed and while it is committed. In between it rests, although it also writes its journal: mostly
// it waits for a model, a tool or a hook. Without this limit a turn of another tenant would get a slot at once, but
// would then wait behind all of those turns at the store, at the bus and for the processor.
type Tenants struct {
	slots, maxWorking int

	mu      sync.Mutex
	turns   map[string]count
	working int             // turns from the queues for noisy tenants
	waiting []chan struct{} // turns that wait until they may work; closed when counted in working
	latest  string          // the tenant of the latest turn
	shared  time.Time       // the last time that a turn was of another tenant than the turn before it
}

// count is the number of turns that a tenant has in flight, and how many of them work.
type count struct{ turns, working int }

// NewTenants returns the count for a worker with that many slots, on which up to maxWorking turns
// from the queues for noisy tenants work at once.
func NewTenants(slots, maxWorking int) *Tenants {
	return &Tenants{slots: slots, maxWorking: maxWorking, turns: map[string]count{}}
}

// Turn is a turn in flight. One goroutine uses it.
type Turn struct {
	of     *Tenants
	tenant string
	noisy  bool // from a queue for noisy tenants
	rests  bool
}

// Enter counts a turn of a tenant until Leave, as working; noisy means that it is from a queue for
// noisy tenants. Enter does not wait: see Await.
func (t *Tenants) Enter(tenant string, noisy bool) *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tenant != t.latest && t.latest != "" {
		t.shared = time.Now()
	}
	t.latest = tenant
	u := &Turn{of: t, tenant: tenant, noisy: noisy}
	u.count(1, 1)
	if noisy {
		t.working++
	}
	return u
}

// Leave ends the count that Enter has begun. It must be called once.
func (u *Turn) Leave() {
	u.Rest()
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.count(-1, 0)
}

// Rest records that the turn waits for something outside the deployment.
func (u *Turn) Rest() {
	if u.rests {
		return
	}
	u.rests = true
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.count(0, -1)
	if u.noisy {
		u.of.release()
	}
}

// Work marks the turn as working again. A turn from a queue for noisy tenants first waits until it may work, or until
// ctx ends. In both cases it counts as working afterwards, because the caller must still commit or release it.
func (u *Turn) Work(ctx context.Context) {
	if !u.rests {
		return
	}
	u.rests = false
	if u.noisy {
		u.of.acquire(ctx)
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.count(0, 1)
}

// TryWork marks the turn as working again if it need not wait for that. It reports whether the turn is working.
func (u *Turn) TryWork() bool {
	if !u.rests {
		return true
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	if u.noisy {
		if !u.of.mayWork() {
			return false
		}
		u.of.working++
	}
	u.rests = false
	u.count(0, 1)
	return true
}

// count adds to the count of the turn's tenant. The caller holds mu.
func (u *Turn) count(turns, working int) {
	c := u.of.turns[u.tenant]
	c.turns, c.working = c.turns+turns, c.working+working
	if u.of.turns[u.tenant] = c; c.turns == 0 {
		delete(u.of.turns, u.tenant)
	}
}

// Await waits until one more turn from the queues for noisy tenants may work, or until ctx ends, and returns ctx.Err().
// It reserves nothing, so another turn may take that place first. Calls of Await and Work that wait are served in the
// order of their arrival.
func (t *Tenants) Await(ctx context.Context) error {
	t.acquire(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release()
	return ctx.Err()
}

// Free returns the number of further turns from the queues for noisy tenants that may work now; all slots if
// tenants do not share the worker.
func (t *Tenants) Free() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isShared() {
		return t.slots
	}
	return max(0, t.maxWorking-t.working)
}

// acquire counts one more turn from the queues for noisy tenants as working: as soon as it may work, or when
// ctx ends.
func (t *Tenants) acquire(ctx context.Context) {
	t.mu.Lock()
	if t.mayWork() {
		t.working++
		t.mu.Unlock()
		return
	}
	counted := make(chan struct{})
	t.waiting = append(t.waiting, counted)
	t.mu.Unlock()
	select {
	case <-counted:
		return
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, counted); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.working++
	}
}

// release ends the count of one such turn, and counts turns that wait, in the order of their arrival, while they may
// work. The caller holds mu.
func (t *Tenants) release() {
	t.working--
	for len(t.waiting) > 0 && t.mayWork() {
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
		t.working++
	}
}

// mayWork reports whether one more turn from the queues for noisy tenants may work now. The caller
// holds mu.
func (t *Tenants) mayWork() bool { return !t.isShared() || t.working < t.maxWorking }

// Shared reports whether tenants share the worker.
func (t *Tenants) Shared() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isShared()
}

// isShared reports whether tenants share the worker. The caller holds mu.
func (t *Tenants) isShared() bool { return !t.shared.IsZero() && time.Since(t.shared) < sharedFor }

// Noisy reports whether a tenant has more than state.NoisyAbove turns in flight here and, in addition, at least half of
// an even share of the slots or, on a worker that tenants share, at least half of maxWorking working turns. The even
// share is that among the tenants with turns in flight here.
func (t *Tenants) Noisy(tenant string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.turns[tenant]
	return c.turns > state.NoisyAbove && (2*c.turns*len(t.turns) >= t.slots || t.isShared() && 2*c.working >= t.maxWorking)
}
