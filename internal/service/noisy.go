package service

import (
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// noisy remembers, for each tenant, the store's verdict on its latest runs. A store judges
// by one shard of a tenant's runs, so the first runs on each shard look alone. If at least
// one in five is noisy, noisy treats all runs of that tenant as such.
type noisy struct {
	mu     sync.Mutex
	levels map[string]int // above zero
}

const (
	noisyUp      = 4 // for a noisy run; each other one takes 1 away
	noisyFull    = 64
	noisyTenants = 10_000 // with more of them, all begin anew
)

// note records the store's verdict on a new run.
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

// full reports whether the runs of a tenant that are created now are noisy.
func (c *noisy) full(tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.levels[tenant] > noisyFull/2
}
