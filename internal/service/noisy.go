package service

import (
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// noisy records, for each tenant, how often the store has marked the latest new runs of this gateway as noisy. Each
// shard of the store decides by its own runs of a tenant, so it does not mark the tenant's first runs there. If more
// than about one in five of a tenant's new runs are marked for a while, all turns of the tenant that this gateway
// publishes go to the queue for noisy tenants.
type noisy struct {
	mu     sync.Mutex
	levels map[string]int // only levels above zero
}

const (
	noisyUp      = 4 // added for a noisy run; other runs subtract 1
	noisyFull    = 64
	noisyTenants = 10_000 // at this number of tenants, all levels are reset
)

// note records whether the store has marked a new run as noisy.
func (c *noisy) note(run state.Created) {
	if run.State.Status != state.Queued {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tenant := run.State.Tenant
	switch level := c.levels[tenant]; {
	case run.Noisy:
		if c.levels == nil || len(c.levels) >= noisyTenants {
			c.levels = map[string]int{}
		}
		c.levels[tenant] = min(level+noisyUp, noisyFull)
	case level > 1:
		c.levels[tenant] = level - 1
	default:
		delete(c.levels, tenant)
	}
}

// full reports whether new runs of a tenant are treated as noisy.
func (c *noisy) full(tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.levels[tenant] > noisyFull/2
}
