package worker

import (
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// tenants counts the turns under way here by tenant. What a store sees of a crowd is a
// shard of it; a worker whose slots are taken by one tenant knows as much as all of
// them, and knows it sooner.
type tenants struct {
	slots int

	mu    sync.Mutex
	turns map[string]int
}

func newTenants(slots int) *tenants { return &tenants{slots: slots, turns: map[string]int{}} }

func (t *tenants) enter(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns[tenant]++
}

func (t *tenants) leave(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turns[tenant]--; t.turns[tenant] == 0 {
		delete(t.turns, tenant)
	}
}

// crowd reports whether a tenant has half of its even share of the slots, or more.
func (t *tenants) crowd(tenant string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.turns[tenant]
	return n > state.Crowd && 2*n*len(t.turns) >= t.slots
}
