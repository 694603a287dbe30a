package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// puller hands out the messages of one consumer. It asks the server for one
// message at a time and only when somebody waits: whatever it held beyond that,
// an idle worker elsewhere would lack.
//
// It speaks the pull protocol itself. The client library's iterator, with room for
// one message, skips a pull now and then when a message outruns its bookkeeping, and
// then stands still until its heartbeat is missed ten seconds later.
type puller struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	subject string // of the consumer's next message
	closed  chan struct{}
	stop    func()

	mu    sync.Mutex // one caller of next at a time
	until time.Time  // when the request that is open expires; zero is none
}

// pullExpiry is how long the server keeps a request open. After a reconnect it may
// have forgotten it, so it is short.
const pullExpiry = 5 * time.Second

func (b *Bus) pull(c jetstream.Consumer) (*puller, error) {
	info := c.CachedInfo()
	sub, err := b.nc.SubscribeSync(b.nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	p := &puller{
		nc: b.nc, sub: sub, closed: make(chan struct{}),
		subject: fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", info.Stream, info.Name),
	}
	p.stop = sync.OnceFunc(func() {
		close(p.closed)
		// What the server has sent already goes back at once.
		_ = sub.Drain()
		for {
			m, err := sub.NextMsg(50 * time.Millisecond)
			if err != nil {
				return
			}
			_ = m.Nak()
		}
	})
	if err := b.onClose(p.stop); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with this call
		select {
		case <-p.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		m, err := p.once(ctx)
		switch {
		case p.isClosed():
			if m != nil {
				_ = m.Nak()
			}
			return nil, bus.ErrClosed
		case ctx.Err() != nil && m == nil:
			return nil, ctx.Err()
		case errors.Is(err, nats.ErrConnectionClosed):
			return nil, bus.ErrClosed
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			// The server is away, or turned the request down: again in a moment.
			pause(ctx, 100*time.Millisecond)
		case m != nil:
			return m, nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (p *puller) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// once opens a request if none is open, and waits for its answer. Neither a message
// nor an error means that the request has expired.
func (p *puller) once(ctx context.Context) (*nats.Msg, error) {
	if time.Now().After(p.until) {
		req := fmt.Sprintf(`{"batch":1,"expires":%d}`, pullExpiry.Nanoseconds())
		if err := p.nc.PublishRequest(p.subject, p.sub.Subject, []byte(req)); err != nil {
			return nil, err
		}
		p.until = time.Now().Add(pullExpiry + time.Second)
	}
	waitCtx, cancel := context.WithDeadline(ctx, p.until)
	defer cancel()
	m, err := p.sub.NextMsgWithContext(waitCtx)
	if err != nil {
		return nil, err
	}
	p.until = time.Time{}
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
		if status == "408" || status == "404" {
			return nil, nil //nolint:nilnil // expired, as the comment says
		}
		return nil, fmt.Errorf("pull: status %s %s", status, m.Header.Get("Description"))
	}
	return m, nil
}

// Close gives back what is held and ends the pull.
func (p *puller) Close() error {
	p.stop()
	return nil
}

type delivery struct{ msg *nats.Msg }

// Ack removes the message for good.
func (d delivery) Ack() error { return d.msg.Ack() }

// InProgress starts the ack wait anew.
func (d delivery) InProgress() error { return d.msg.InProgress() }

// Delivered counts the deliveries of the message.
func (d delivery) Delivered() int {
	meta, err := d.msg.Metadata()
	if err != nil {
		return 1
	}
	return int(meta.NumDelivered) //nolint:gosec // no message is delivered 2^63 times
}

// Nak asks for another delivery.
func (d delivery) Nak(delay time.Duration) error {
	if delay <= 0 {
		return d.msg.Nak()
	}
	return d.msg.NakWithDelay(delay)
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
		t, err := decodeTurn(m.Data)
		if err == nil {
			t.Priority = q.lane
			t.Repair = m.Header.Get(headerRepair) != ""
			t.TraceParent = m.Header.Get(headerTrace)
			return turnDelivery{delivery{m}, t}, nil
		}
		letter := bus.DeadLetter{Lane: q.lane, Cause: "malformed turn message: " + err.Error(), At: state.At(time.Now()), Data: string(m.Data)}
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

func (m message) Key() string               { return lastToken(m.msg.Subject) }
func (m message) Data() []byte              { return m.msg.Data }
func (m message) Header(name string) string { return m.msg.Header.Get(name) }

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
