// Package membership makes a gateway a member of its deployment: it sends heartbeats, and receives those of other
// processes.
package membership

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// heartbeatInterval is the time between two heartbeats of a gateway.
	heartbeatInterval = 300 * time.Millisecond

	// listenFor is the time within which a gateway receives a heartbeat of every other process. Workers use the same
	// time.
	listenFor = 4 * heartbeatInterval
)

// Bus has the methods of bus.Bus that a Member needs.
type Bus interface {
	SendHeartbeat(b bus.Heartbeat)
	Heartbeats(ctx context.Context, fn func(bus.Heartbeat)) (stop func(), err error)
}

// Fleet records the heartbeats of workers. *service.Fleet implements it.
type Fleet interface {
	Hear(b bus.Heartbeat, now time.Time)
}

// Member sends the heartbeats of a gateway, and receives those of all processes.
type Member struct {
	bus       Bus
	setFormat func(format int)
	fleet     Fleet
	random    io.Reader
}

// New returns a member that passes the heartbeats that it receives to fleet, and calls setFormat with the newest
// format of runs that every process can read. It generates its name from random.
func New(b Bus, setFormat func(format int), fleet Fleet, random io.Reader) *Member {
	return &Member{bus: b, setFormat: setFormat, fleet: fleet, random: random}
}

// Run sends heartbeats with the newest format that this process can read, and calls setFormat, until ctx ends. Then
// it sends a last heartbeat, which announces that this process leaves. Gateways hold no leases, so workers use these
// heartbeats only for the format. The error reports that it could not subscribe or read random.
func (m *Member) Run(ctx context.Context) error {
	var random [6]byte
	if _, err := io.ReadFull(m.random, random[:]); err != nil {
		return fmt.Errorf("generate the name of the gateway: %w", err)
	}
	own := bus.Heartbeat{Worker: "gateway-" + hex.EncodeToString(random[:]), Gateway: true, Format: state.Format}
	formats := bus.NewFormats(state.Format, m.setFormat)
	received := make(chan struct{}, 1) // has a token if an own heartbeat has arrived
	stop, err := m.bus.Heartbeats(ctx, func(b bus.Heartbeat) {
		formats.Hear(b, time.Now())
		m.fleet.Hear(b, time.Now())
		if b.Worker == own.Worker {
			select {
			case received <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to heartbeats: %w", err)
	}
	defer stop()
	defer func() {
		own.Leaving = true
		m.bus.SendHeartbeat(own)
	}()
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	since, last := time.Now(), time.Now()
	for {
		m.bus.SendHeartbeat(own)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		select {
		case <-received:
			last = now
		default:
		}
		if now.Sub(last) > 2*heartbeatInterval {
			since = now // own heartbeats do not arrive, so others may have been lost too
		}
		formats.Decide(now, now.Sub(since) >= listenFor+formats.Longest())
	}
}
