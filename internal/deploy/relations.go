package deploy

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// leastHeartbeat is the shortest period of heartbeats: a busy worker must not look dead.
const leastHeartbeat = 20 * time.Millisecond

// CheckLease refuses a heartbeat interval below leastHeartbeat, and a lease that is not longer than the
// upkeep.MissedHeartbeats intervals after which a worker counts as dead. Gateways must also check both: they give the
// lease to the consumers of turns.
func CheckLease(lease, heartbeat time.Duration) error {
	var errs []error
	if heartbeat < leastHeartbeat {
		errs = append(errs, fmt.Errorf("heartbeat is %s, the minimum is %s: raise TURNPIKE_HEARTBEAT (in Go, HeartbeatInterval)", heartbeat, leastHeartbeat))
	}
	if dead := upkeep.MissedHeartbeats * heartbeat; lease <= dead {
		errs = append(errs, fmt.Errorf("lease is %s and must be more than %s, the time after which a worker with a heartbeat every %s counts as dead: raise TURNPIKE_LEASE or lower TURNPIKE_HEARTBEAT (in Go, LeaseDuration and HeartbeatInterval)",
			lease, dead, heartbeat))
	}
	return errors.Join(errs...)
}

// relations refuses settings that are valid individually but contradict each other. The
// errors name both settings and the remedy.
func relations(d Config, w worker.Config) error {
	most := cmp.Or(w.MaxResult, d.MaxResult, tool.MaxResult)
	w = w.Defaults()
	errs := []error{CheckLease(d.withDefaults().Lease, w.HeartbeatInterval)}
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if w.LateResults > 0 && w.LateResults <= w.HeartbeatInterval {
		refuse("the wait for late results is %s and must be longer than one heartbeat of %s, which a paused worker needs to return: raise TURNPIKE_LATE_RESULTS or lower TURNPIKE_HEARTBEAT (in Go, LateResults and HeartbeatInterval)", w.LateResults, w.HeartbeatInterval)
	}
	if w.ShutdownGrace < 0 {
		refuse("shutdown grace is %s: set TURNPIKE_SHUTDOWN_GRACE to more than 0 (in Go, ShutdownGrace)", w.ShutdownGrace)
	}
	if int64(most) > w.AnswerMemory {
		refuse("max result is %d bytes, more than the %d MiB of memory for all answers of this worker: lower TURNPIKE_MAX_RESULT (in Go, MaxResult) or raise TURNPIKE_ANSWERS_MIB", most, w.AnswerMemory>>20)
	}
	if n := d.MaxAckPending * cmp.Or(d.TurnStreams, 1); n > 0 && n < w.Slots {
		refuse("max ack pending is %d for each of %d streams of turns (TURNPIKE_TURN_STREAMS, which counts as 1 if it is not set), in total fewer than the %d slots of this worker, so slots could stay empty: raise TURNPIKE_MAX_ACK_PENDING or TURNPIKE_TURN_STREAMS, or lower TURNPIKE_SLOTS (in Go, NATS.MaxAckPending, NATS.TurnStreams and Slots)",
			d.MaxAckPending, cmp.Or(d.TurnStreams, 1), w.Slots)
	}
	return errors.Join(errs...)
}
