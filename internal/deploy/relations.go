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
		refuse("heartbeat is %s, the minimum is %s: raise TURNPIKE_HEARTBEAT", w.HeartbeatInterval, leastHeartbeat)
	}
	if lease <= dead {
		refuse("lease is %s and must be more than %s, the time after which a worker with a heartbeat every %s counts as dead: raise TURNPIKE_LEASE or lower TURNPIKE_HEARTBEAT",
			lease, dead, w.HeartbeatInterval)
	}
	if w.LateResults > 0 && w.LateResults <= w.HeartbeatInterval {
		refuse("the wait for late results is %s and must be longer than one heartbeat of %s, which a paused worker needs to return: raise TURNPIKE_LATE_RESULTS or lower TURNPIKE_HEARTBEAT", w.LateResults, w.HeartbeatInterval)
	}
	if w.ShutdownGrace < 0 {
		refuse("shutdown grace is %s: set TURNPIKE_SHUTDOWN_GRACE to 0 or more", w.ShutdownGrace)
	}
	if n := d.MaxAckPending * cmp.Or(d.TurnStreams, 1); n > 0 && n < w.Slots {
		refuse("max ack pending is %d on %d streams of turns, fewer than the %d slots of this worker, so slots would stay empty: raise TURNPIKE_MAX_ACK_PENDING or lower TURNPIKE_SLOTS",
			d.MaxAckPending, cmp.Or(d.TurnStreams, 1), w.Slots)
	}
	return errors.Join(errs...)
}
