// Package membership makes a gateway a member of its deployment: it sends heartbeats, and receives those
// of other processes.
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

	// listenFor is the time after which a gateway has received a heartbeat of every other process.
	// Workers wait for each other as long.
	listenFor = 4 * heartbeatInterval
)

// Bus is what a Member needs of a bus. The methods are those of bus.Bus.
type Bus interface {
	SendHeartbeat(b bus.Heartbeat)
	Heartbeats(ctx context.Context, fn func(bus.Heartbeat)) (stop func(), err error)
}

// Fleet records the heartbeats of workers. *service.Fleet implements it.
type Fleet interface {
	Hear(b bus.Heartbeat, now time.Time)
}

// Member sends the heartbeats of a gateway.
type Member struct {
	bus       Bus
	setFormat func(format int)
	fleet     Fleet
	random    io.Reader
}

// New returns a member that passes received heartbeats to fleet, and calls setFormat with the newest
// format that every process can read. It reads its name from random.
func New(b Bus, setFormat func(format int), fleet Fleet, random io.Reader) *Member {
	return &Member{bus: b, setFormat: setFormat, fleet: fleet, random: random}
}

// Run reports to other processes the formats that this one can read, and to the store those that all
// can, until ctx ends. Workers count a gateway of a newer build as a worker without leases. Run returns
// an error if it cannot subscribe.
func (m *Member) Run(ctx context.Context) error {
	var random [6]byte
	if _, err := io.ReadFull(m.random, random[:]); err != nil {
		return fmt.Errorf("generate the name of the gateway: %w", err)
	}
	own := bus.Heartbeat{Worker: "gateway-" + hex.EncodeToString(random[:]), Gateway: true, Format: state.Format}
	formats := bus.NewFormats(state.Format, m.setFormat)
	received := make(chan struct{}, 1) // its own heartbeats
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
			since = now // it misses its own heartbeats, so it may have missed others
		}
		formats.Decide(now, now.Sub(since) >= listenFor)
	}
}
