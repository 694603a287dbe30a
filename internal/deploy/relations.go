package deploy

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/worker"
)

// leastHeartbeat is the shortest period of heartbeats: a busy worker must not look dead.
const leastHeartbeat = 20 * time.Millisecond

// relations refuses settings that are valid individually but contradict each other. The
// errors name both settings and the remedy.
func relations(d Config, w worker.Config) error {
	w = w.Defaults()
	lease, dead := d.withDefaults().Lease, upkeep.MissedHeartbeats*w.HeartbeatInterval
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if w.HeartbeatInterval < leastHeartbeat {
		refuse("heartbeat is %s, want at least %s: raise TURNPIKE_HEARTBEAT", w.HeartbeatInterval, leastHeartbeat)
	}
	if lease <= dead {
		refuse("lease is %s, want more than %s, in which a worker that sends a heartbeat every %s is found dead: raise TURNPIKE_LEASE or lower TURNPIKE_HEARTBEAT, else leases run out first",
			lease, dead, w.HeartbeatInterval)
	}
	if w.LateResults > 0 && w.LateResults <= w.HeartbeatInterval {
		refuse("late results are awaited for %s, want more than one heartbeat of %s: raise TURNPIKE_LATE_RESULTS or lower TURNPIKE_HEARTBEAT, since a worker that was paused needs that long to come back", w.LateResults, w.HeartbeatInterval)
	}
	if w.ShutdownGrace < 0 {
		refuse("shutdown grace is %s, want 0 or more: TURNPIKE_SHUTDOWN_GRACE", w.ShutdownGrace)
	}
	if n := d.MaxAckPending * cmp.Or(d.TurnStreams, 1); n > 0 && n < w.Slots {
		refuse("max ack pending is %d on %d streams of turns, want at least the %d slots of this worker: raise TURNPIKE_MAX_ACK_PENDING or lower TURNPIKE_SLOTS, else slots stay empty",
			d.MaxAckPending, cmp.Or(d.TurnStreams, 1), w.Slots)
	}
	return errors.Join(errs...)
}
