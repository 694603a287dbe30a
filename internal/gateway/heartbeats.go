package gateway

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
	// heartbeatEvery is the period of a gateway's heartbeats.
	heartbeatEvery = 300 * time.Millisecond

	// listenFor is how long a gateway listens before it takes it that it knows everybody:
	// as long as workers wait for each other.
	listenFor = 4 * heartbeatEvery
)

// sendHeartbeats tells the other processes what this one can read, and the store what they can, until
// ctx ends. Workers take a gateway of a newer build for one of them, which holds no leases.
func (g *Gateway) sendHeartbeats(ctx context.Context) error {
	var random [6]byte
	if _, err := io.ReadFull(g.cfg.Random, random[:]); err != nil {
		return fmt.Errorf("name the gateway: %w", err)
	}
	own := bus.Heartbeat{Worker: "gateway-" + hex.EncodeToString(random[:]), Gateway: true, Format: state.Format}
	formats := bus.NewFormats(state.Format, g.store.SetFormat)
	heard := make(chan struct{}, 1) // its own heartbeats
	stop, err := g.bus.Heartbeats(ctx, func(b bus.Heartbeat) {
		formats.Hear(b, time.Now())
		g.service.Fleet.Hear(b, time.Now())
		if b.Worker == own.Worker {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return fmt.Errorf("listen for heartbeats: %w", err)
	}
	defer stop()
	defer func() {
		own.Leaving = true
		g.bus.SendHeartbeat(own)
	}()
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	since, last := time.Now(), time.Now()
	for {
		g.bus.SendHeartbeat(own)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		select {
		case <-heard:
			last = now
		default:
		}
		if now.Sub(last) > 2*heartbeatEvery {
			since = now // deaf: it may have missed somebody
		}
		formats.Decide(now, now.Sub(since) >= listenFor)
	}
}
