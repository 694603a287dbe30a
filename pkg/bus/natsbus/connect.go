// Package natsbus is the bus on NATS JetStream.
//
// Streams, for the prefix turnpike:
//
//	TURNPIKE_TURNS    turnpike.turn.<lane>.<shard>  work queue, one durable consumer a lane
//	TURNPIKE_SUBMIT   turnpike.submit.<agent>       work queue
//	TURNPIKE_CONTROL  turnpike.abort.<run_id>       work queue, heard by core subscriptions too
//	TURNPIKE_EVENTS   turnpike.events.<run_id>      kept for three days
//	TURNPIKE_DEAD     turnpike.dead.<lane>          kept for good
//
// and without a stream: turnpike.live.<run_id>, turnpike.presence.<worker>.
package natsbus

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect opens a connection that never gives up, notices a dead server within
// half a minute, and buffers nothing while it is away: a publish that cannot be
// sent fails at once instead of haunting the stream later.
func Connect(url, name string, opts ...nats.Option) (*nats.Conn, error) {
	opts = append([]nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(200*time.Millisecond, time.Second),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(5 * time.Second),
		nats.ReconnectOnFlusherError(),
		nats.IgnoreAuthErrorAbort(), // rotated credentials may need a while to be known everywhere
		nats.DrainTimeout(20 * time.Second),
	}, opts...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}
