package gateway

import (
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// noisy remembers what the store said of the runs that were created last. A store sees
// one shard of a tenant's runs, so the first runs on each shard look as if they were alone:
// when one in five or more is of a noisy tenant, all are.
type noisy struct {
	mu    sync.Mutex
	level int
}

const (
	noisyUp   = 4 // for a run of a noisy tenant; each other one takes 1 away
	noisyFull = 64
)

// note takes in what the store said of a new run.
func (c *noisy) note(run state.Created) {
	if run.State.Status != state.Queued {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if run.Noisy {
		c.level = min(c.level+noisyUp, noisyFull)
	} else {
		c.level = max(c.level-1, 0)
	}
}

// full reports whether the runs that are created now are of noisy tenants.
func (c *noisy) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level > noisyFull/2
}
