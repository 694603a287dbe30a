package admission

import (
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Tenants counts the turns in flight here by tenant. A store sees one shard of a tenant's
// runs; a worker whose slots are taken by one tenant knows as much as all shards together,
// and knows it sooner.
type Tenants struct {
	slots int

	mu    sync.Mutex
	turns map[string]int
}

// NewTenants returns the count for a worker with so many slots.
func NewTenants(slots int) *Tenants { return &Tenants{slots: slots, turns: map[string]int{}} }

// Enter counts a turn of a tenant until Leave.
func (t *Tenants) Enter(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns[tenant]++
}

// Leave ends what Enter has begun.
func (t *Tenants) Leave(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turns[tenant]--; t.turns[tenant] == 0 {
		delete(t.turns, tenant)
	}
}

// Noisy reports whether a tenant has half of its even share of the slots, or more.
func (t *Tenants) Noisy(tenant string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.turns[tenant]
	return n > state.NoisyAbove && 2*n*len(t.turns) >= t.slots
}
