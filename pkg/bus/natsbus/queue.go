package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// puller hands out the messages of one consumer. It asks the server only when
// somebody waits, and for no more than its caller has free slots for: whatever it held
// beyond that, an idle worker elsewhere would lack. A message for which there is no
// free slots any more goes back at once.
//
// It speaks the pull protocol itself. The client library's iterator, with a buffer for
// one message, skips a pull now and then when a message outruns its bookkeeping, and
// then stands still until its heartbeat is missed ten seconds later; and what comes
// while nobody calls it lies there until the ack wait is over.
type puller struct {
	b      *Bus
	spec   consumerSpec
	sub    *nats.Subscription
	inbox  string // requests are answered to <inbox>.<number>
	msgs   chan *nats.Msg
	status chan nats.Status

	mu      sync.Mutex
	waiters []chan result // each takes one result
	ahead   int           // how many messages may lie in ready
	ready   []*nats.Msg   // while nobody waits

	asked chan struct{} // holds a token if somebody may wait
	quit  chan struct{} // closed by Close
	done  chan struct{} // closed when run has returned
	close func()
}

type result struct {
	msg *nats.Msg
	err error
}

const (
	// pullExpiry is how long the server keeps a request open. It may have forgotten
	// it without a word, so it is short.
	pullExpiry = 5 * time.Second

	// maxBatch bounds what is asked for and has not come. When half of it has, the next
	// request goes out: the server deals messages out by turns to all that have one
	// open, and who asks only when the last has come is passed over meanwhile.
	maxBatch = 64

	// pullPause is the time between requests that fail.
	pullPause = 200 * time.Millisecond

	// farewell is how long Close waits for what the server has sent already.
	farewell = 2 * time.Second
)

func (b *Bus) pull(ctx context.Context, spec consumerSpec) (*puller, error) {
	p := &puller{
		b: b, spec: spec, inbox: b.nc.NewInbox(), msgs: make(chan *nats.Msg, 4*maxBatch),
		asked: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	end := sync.OnceFunc(func() {
		close(p.quit)
		<-p.done
	})
	forget, err := b.onClose(end)
	if err != nil {
		return nil, err
	}
	p.close = func() { forget(); end() }
	if p.sub, err = b.nc.ChanSubscribe(p.inbox+".*", p.msgs); err != nil {
		forget()
		close(p.done) // for a Close at the same time
		return nil, fmt.Errorf("pull: %w", err)
	}
	p.status = b.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	go p.run(context.WithoutCancel(ctx)) // ends with Close
	return p, nil
}

// run asks the server while somebody waits, until Close.
func (p *puller) run(ctx context.Context) {
	defer close(p.done)
	defer p.b.nc.RemoveStatusListener(p.status)
	defer p.leave()
	var (
		number int              // of the latest request
		open   int              // messages that all requests may still bring
		again  <-chan time.Time // ends the requests, or the pause after one that failed
		paused bool
	)
	timer := time.NewTimer(pullExpiry)
	defer timer.Stop()
	wait := func(d time.Duration) {
		timer.Reset(d)
		again = timer.C
	}
	pause := func() {
		paused = true
		wait(pullPause)
	}
	for {
		wanted := p.wanted()
		if n := wanted - open; !paused && n > 0 && 2*n >= wanted {
			number++
			if err := p.request(number, n); err == nil {
				open += n
				wait(pullExpiry + time.Second)
			} else if p.b.nc.IsClosed() {
				p.fail(fmt.Errorf("%w: %w", bus.ErrClosed, err))
			} else {
				pause() // the server is away
			}
		}
		select {
		case m := <-p.msgs:
			status := statusOf(m)
			if status == "" {
				open = max(0, open-1)
				p.hand(m)
				continue
			}
			if m.Subject == p.inbox+"."+strconv.Itoa(number) {
				open = 0 // older ones have ended before
			} else if left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
				open = max(0, open-left)
			}
			if status != "408" && status != "404" { // expired, or nothing there
				open = 0
				p.refused(ctx, status, m.Header.Get("Description"))
				pause()
			}
		case <-again:
			open, again, paused = 0, nil, false
		case s := <-p.status:
			// The server that had the requests is not the one we talk to now.
			open, again, paused = 0, nil, false
			if s == nats.CLOSED {
				p.fail(fmt.Errorf("%w: %w", bus.ErrClosed, nats.ErrConnectionClosed))
			}
		case <-p.asked:
		case <-p.quit:
			return
		}
	}
}

func (p *puller) request(number, n int) error {
	subject := fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", p.spec.stream, p.spec.config.Durable)
	body := fmt.Sprintf(`{"batch":%d,"expires":%d}`, n, pullExpiry.Nanoseconds())
	return p.b.nc.PublishRequest(subject, p.inbox+"."+strconv.Itoa(number), []byte(body))
}

// statusOf returns the code of an answer that is no message.
func statusOf(m *nats.Msg) string {
	if len(m.Data) > 0 || m.Reply != "" { // a message has a subject for its ack
		return ""
	}
	return m.Header.Get("Status")
}

// refused deals with an answer that says that something is wrong: a queue that is
// gone is made anew, since whatever was in it is found again by the sweepers.
func (p *puller) refused(ctx context.Context, status, description string) {
	log := p.b.log.With().Str("consumer", p.spec.config.Durable).Logger()
	log.Debug().Str("status", status).Str("description", description).Msg("pull refused")
	if status != "503" && !strings.Contains(description, "Deleted") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if _, err := p.b.js.Consumer(ctx, p.spec.stream, p.spec.config.Durable); !isMissing(err) {
		return
	}
	if err := p.b.ensure(ctx); err != nil {
		log.Warn().Err(err).Str("hint", "is JetStream on, and may this account make streams? it is tried again").Msg("streams not restored")
		return
	}
	log.Warn().Str("hint", "sweepers publish the turns again; did NATS lose its JetStream directory?").Msg("streams were missing and are made anew")
}

// isMissing reports whether a stream or consumer does not exist.
func isMissing(err error) bool {
	for _, missing := range []error{jetstream.ErrConsumerNotFound, jetstream.ErrConsumerDoesNotExist, jetstream.ErrStreamNotFound} {
		if errors.Is(err, missing) {
			return true
		}
	}
	return false
}

// leave gives back what the server has sent already.
func (p *puller) leave() {
	p.Ahead(0)
	drained := make(chan struct{})
	p.sub.SetClosedHandler(func(string) { close(drained) })
	if p.sub.Drain() != nil {
		return // the connection is closed
	}
	bye := time.NewTimer(farewell)
	defer bye.Stop()
	for {
		select {
		case m := <-p.msgs:
			p.giveBack(m)
		case <-drained:
			for {
				select {
				case m := <-p.msgs:
					p.giveBack(m)
				default:
					return
				}
			}
		case <-bye.C: // a server that is away does not answer
			return
		}
	}
}

func (p *puller) giveBack(m *nats.Msg) {
	if statusOf(m) != "" {
		return
	}
	if err := m.Nak(); err != nil {
		p.b.log.Debug().Err(err).Msg("nak") // delivered again after the ack wait
	}
}

// wanted is how many messages to ask for: none while nobody waits.
func (p *puller) wanted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiters) == 0 {
		return 0
	}
	return min(len(p.waiters)+p.ahead, maxBatch)
}

// Ahead implements bus.TurnQueue.
func (p *puller) Ahead(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = max(n, 0)
	for len(p.ready) > p.ahead {
		last := len(p.ready) - 1
		p.giveBack(p.ready[last])
		p.ready = p.ready[:last]
	}
}

// hand gives a message to whoever waits longest, keeps it for the next, or gives it
// back to the server.
func (p *puller) hand(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.waiters) > 0:
		p.waiters[0] <- result{msg: m}
		p.waiters = p.waiters[1:]
	case len(p.ready) < p.ahead:
		p.ready = append(p.ready, m)
	default:
		p.giveBack(m)
	}
}

// fail tells everybody who waits.
func (p *puller) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiters {
		w <- result{err: err}
	}
	p.waiters = nil
}

func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := make(chan result, 1)
	p.mu.Lock()
	if len(p.ready) > 0 {
		m := p.ready[0]
		p.ready = p.ready[1:]
		p.mu.Unlock()
		return m, nil
	}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()
	select {
	case p.asked <- struct{}{}:
	default:
	}
	var err error
	select {
	case r := <-w:
		return r.msg, r.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.quit:
		err = bus.ErrClosed
	}
	p.mu.Lock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
		p.mu.Unlock()
		return nil, err
	}
	p.mu.Unlock()
	// A message came at the same moment: to the next in line, or back.
	if r := <-w; r.msg != nil {
		p.hand(r.msg)
	}
	return nil, err
}

// Close gives back what is held and ends the pull.
func (p *puller) Close() error {
	p.close()
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
