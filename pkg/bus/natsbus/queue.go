package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// puller hands out the messages of one consumer. It asks the server for one
// message at a time and only when somebody waits: whatever it held beyond that,
// an idle worker elsewhere would lack.
type puller struct {
	it   jetstream.MessagesContext
	stop func()
}

func (b *Bus) pull(c jetstream.Consumer) (*puller, error) {
	it, err := c.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(30*time.Second), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	p := &puller{it: it, stop: sync.OnceFunc(func() {
		// What the server has sent already goes back at once.
		it.Drain()
		for {
			m, err := it.Next()
			if err != nil {
				return
			}
			_ = m.Nak()
		}
	})}
	if err := b.onClose(p.stop); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *puller) next(ctx context.Context) (jetstream.Msg, error) {
	for {
		m, err := p.it.Next(jetstream.NextContext(ctx))
		switch {
		case err == nil:
			return m, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil, bus.ErrClosed
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			// The server was away for a while; the iterator asks again.
			continue
		default:
			return nil, fmt.Errorf("next message: %w", err)
		}
	}
}

// Close gives back what is held and ends the pull.
func (p *puller) Close() error {
	p.stop()
	return nil
}

type delivery struct{ jetstream.Msg }

// Delivered counts the deliveries of the message.
func (d delivery) Delivered() int {
	meta, err := d.Metadata()
	if err != nil {
		return 1
	}
	return int(meta.NumDelivered) //nolint:gosec // no message is delivered 2^63 times
}

// Nak asks for another delivery.
func (d delivery) Nak(delay time.Duration) error {
	if delay <= 0 {
		return d.Msg.Nak()
	}
	return d.NakWithDelay(delay)
}

type turnQueue struct {
	*puller

	b    *Bus
	lane state.Priority
}

// Turns implements bus.Turns.
func (b *Bus) Turns(_ context.Context, lane state.Priority) (bus.TurnQueue, error) {
	c := b.lanes[lane]
	if c == nil {
		return nil, fmt.Errorf("no lane %q", lane)
	}
	p, err := b.pull(c)
	if err != nil {
		return nil, err
	}
	return turnQueue{p, b, lane}, nil
}

type turnDelivery struct {
	delivery

	turn bus.Turn
}

func (d turnDelivery) Turn() bus.Turn { return d.turn }

// Next implements bus.TurnQueue. What is no turn message ends as a dead letter.
func (q turnQueue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	for {
		m, err := q.next(ctx)
		if err != nil {
			return nil, err
		}
		t, err := decodeTurn(m.Data())
		if err == nil {
			t.Priority = q.lane
			t.Repair = m.Headers().Get(headerRepair) != ""
			t.TraceParent = m.Headers().Get(headerTrace)
			return turnDelivery{delivery{m}, t}, nil
		}
		letter := bus.DeadLetter{Lane: q.lane, Cause: "malformed turn message: " + err.Error(), At: state.At(time.Now()), Data: string(m.Data())}
		if err := q.b.DeadLetter(ctx, letter); err != nil {
			q.b.log.Warn().Err(err).Msg("dead letter")
			continue // delivered again after the ack wait
		}
		_ = m.Ack()
	}
}

func decodeTurn(data []byte) (bus.Turn, error) {
	var t bus.Turn
	if err := json.Unmarshal(data, &t); err != nil {
		return bus.Turn{}, err
	}
	if _, err := state.ParseRunID(string(t.Run)); err != nil {
		return bus.Turn{}, err
	}
	if t.Version < 0 {
		return bus.Turn{}, fmt.Errorf("version is %d", t.Version)
	}
	return t, nil
}

type queue struct{ *puller }

type message struct{ delivery }

func (m message) Key() string               { return lastToken(m.Subject()) }
func (m message) Header(name string) string { return m.Headers().Get(name) }

// Next implements bus.Queue.
func (q queue) Next(ctx context.Context) (bus.Message, error) {
	m, err := q.next(ctx)
	if err != nil {
		return nil, err
	}
	return message{delivery{m}}, nil
}

// Submissions implements bus.Intake.
func (b *Bus) Submissions(context.Context) (bus.Queue, error) {
	p, err := b.pull(b.submit)
	return queue{p}, err
}

// AbortRequests implements bus.Intake.
func (b *Bus) AbortRequests(context.Context) (bus.Queue, error) {
	p, err := b.pull(b.abort)
	return queue{p}, err
}
