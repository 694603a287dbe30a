package upkeep

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// fewMembers is the number of workers up to which all send heartbeats at the same intervals.
	fewMembers = 10

	// longestInterval is the longest interval of heartbeats of a worker without leases, unless those of all workers are
	// longer. A process counts for the format of runs for 10 s after its last heartbeat.
	longestInterval = 6 * time.Second
)

// heartbeats are those of this worker.
type heartbeats struct {
	self    Self
	store   memberStore
	bus     memberBus
	leases  *Leases
	periods Periods
	members func() int
	log     *slog.Logger

	stopping atomic.Bool
	busyAt   atomic.Int64 // the latest time, in Unix nanoseconds, at which this worker had leases
}

// interval returns the time until the next heartbeat, and a channel that is closed if the next one must be sent before
// that. The interval is longer than usual if this worker is one of many and has had no lease, not even an eager claim,
// for a while.
func (b *heartbeats) interval() (interval time.Duration, begins <-chan struct{}) {
	every, now := b.periods.Heartbeat, time.Now()
	idle, begins := b.leases.Idle()
	if !idle {
		b.busyAt.Store(now.UnixNano())
	}
	interval = max(every, min(longestInterval, every*time.Duration(b.members())/fewMembers))
	if interval == every || now.Sub(time.Unix(0, b.busyAt.Load())) < b.periods.RedeliveryDelay {
		return every, nil
	}
	return interval, begins
}

// send sends heartbeats on the bus until ctx ends. It runs in a separate goroutine, so that nothing delays it.
func (b *heartbeats) send(ctx context.Context) {
	for {
		interval, begins := b.interval()
		h := bus.Heartbeat{
			Worker: b.self.ID, Format: state.Format, Slots: b.self.Slots, Turns: b.leases.Lanes(), Version: b.self.Version, Stopping: b.stopping.Load(),
		}
		if interval > b.periods.Heartbeat {
			h.Interval = interval
		}
		if b.self.Quarantined != nil {
			h.Quarantined = b.self.Quarantined()
		}
		b.bus.SendHeartbeat(h)
		if !pauseForHints(ctx, begins, interval) {
			return
		}
	}
}

// write writes heartbeats to the store, which may answer slowly.
func (b *heartbeats) write(ctx context.Context) {
	for {
		interval, begins := b.interval()
		within, cancel := context.WithTimeout(ctx, MissedHeartbeats*b.periods.Heartbeat)
		debug(b.log, b.store.Heartbeat(within, b.self.ID, (MissedHeartbeats-1)*b.periods.Heartbeat+interval), "heartbeat")
		cancel()
		if !pauseForHints(ctx, begins, interval) {
			return
		}
	}
}
