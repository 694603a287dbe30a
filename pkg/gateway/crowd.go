package gateway

import (
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// crowd remembers what the store said of the runs that were created last. A store sees
// one shard of a crowd, so the first runs on each shard look as if they were alone: when
// one of five or more is crowded, all are.
type crowd struct {
	mu    sync.Mutex
	level int
}

const (
	crowdUp   = 4 // for a run that was crowded; each other one takes 1 away
	crowdFull = 64
)

// note takes in what the store said of a new run.
func (c *crowd) note(run state.State) {
	if run.Status != state.Queued {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if run.Crowded {
		c.level = min(c.level+crowdUp, crowdFull)
	} else {
		c.level = max(c.level-1, 0)
	}
}

// full reports whether the runs that are created now are of a crowd.
func (c *crowd) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level > crowdFull/2
}
