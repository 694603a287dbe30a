package natsbus

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// SendHeartbeat implements bus.Membership. The message repeats the worker's name, because not every
// name fits into the subject.
func (b *Bus) SendHeartbeat(h bus.Heartbeat) {
	b.slots.sends(h)
	data, err := json.Marshal(h)
	if err == nil {
		err = b.publishSigned(b.subject("presence", token(h.Worker)), data)
	}
	if err == nil && h.Leaving {
		err = b.nc.FlushTimeout(time.Second) // the last message before the connection closes
	}
	if err != nil {
		b.log.Debug("heartbeat", "error", err)
	}
}

// Unverified calls fn with the name of the worker or gateway for each heartbeat that this process cannot verify: it is
// unsigned or signed with another key, or this process has no keys and the heartbeat is signed. The rules for fn and
// stop are those of bus.Events.Watch.
func (b *Bus) Unverified(ctx context.Context, fn func(worker string)) (stop func(), err error) {
	hearing := b.hearing()
	return b.listen(ctx, []string{b.subject("presence", "*")}, func(m *nats.Msg) {
		noKeys := b.signer.Load() == nil && m.Header.Get(headerMAC) != ""
		var h bus.Heartbeat
		if (noKeys || !hearing.believe(m)) && json.Unmarshal(m.Data, &h) == nil && h.Worker != "" {
			fn(h.Worker)
		}
	})
}

// Heartbeats implements bus.Membership.
func (b *Bus) Heartbeats(ctx context.Context, fn func(bus.Heartbeat)) (func(), error) {
	hearing := b.hearing()
	return b.listen(ctx, []string{b.subject("presence", "*")}, func(m *nats.Msg) {
		var h bus.Heartbeat
		if hearing.believe(m) && json.Unmarshal(m.Data, &h) == nil && h.Worker != "" {
			if b.slots.hear(h, time.Now()) {
				b.look()
			}
			fn(h)
		}
	})
}
