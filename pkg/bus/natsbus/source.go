package natsbus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// source is a consumer whose messages a puller takes. The puller's mu guards its fields.
//
// The puller implements the pull protocol itself. The client library's iterator, with a
// buffer for one message, sometimes skips a pull when a message arrives before the iterator
// has counted it, and then stalls until it misses its heartbeat ten seconds later. A message
// that arrives while no caller waits stays in the iterator's buffer until the ack wait ends.
type source struct {
	spec   consumerSpec
	number int // of the source
	place  int // among the sources

	is       sourceState
	returned bool      // it has returned a message to the server
	listed   bool      // in the puller's list of sources that take turns
	left     bool      // in the puller's list of sources that it leaves to other workers
	request  int       // number of the latest request
	open     int       // messages that requests may still bring
	due      time.Time // when the request counts as lost, or the puller retries the source
	repaired bool      // false while the puller repairs its streams
}

// sourceState is the state of a source.
type sourceState int

const (
	isDry     sourceState = iota // no request is open, and it has no messages as far as known
	inTurn                       // no request is open, and it may have messages
	asking                       // its request is for present messages only
	listening                    // its request waits for messages
	refused                      // its last request was refused
	gone                         // the puller no longer serves it
)

const (
	// pullExpiry is the time that the server keeps a waiting request open. It may have lost
	// the request without notice, so it is short.
	pullExpiry = 5 * time.Second

	// expiryPerSource bounds the number of requests that expire per second if there are many
	// sources, and longestExpiry the time that they are then open.
	expiryPerSource = 50 * time.Millisecond
	longestExpiry   = time.Minute

	// askPatience is the time limit of a request for present messages.
	askPatience = 500 * time.Millisecond

	// returnExpiry is the time that a request waits for a returned message: the server may
	// process the request before it has processed the message.
	returnExpiry = 50 * time.Millisecond

	// pullPause is the time between requests that fail.
	pullPause = 200 * time.Millisecond

	// farewell is the time that Close waits for messages that the server has already sent.
	farewell = 2 * time.Second
)

// run processes messages from the server, until Close.
func (p *puller) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer close(p.done)
	defer p.b.nc.RemoveStatusListener(p.status)
	defer p.drain()
	defer p.alarm.Stop()
	defer cancel()
	for {
		select {
		case m := <-p.msgs:
			p.mu.Lock()
			if status := statusOf(m); status == "" {
				p.came(m)
			} else {
				p.ended(ctx, m, status)
			}
			p.schedule()
			p.mu.Unlock()
		case <-p.alarm.C:
			p.expire()
		case st := <-p.status:
			p.connected(st)
		case <-p.quit:
			return
		}
	}
}

// request asks for n messages of a source. If the request cannot be sent, the puller pauses, and
// returns false. The caller holds mu.
func (p *puller) request(s *source, as sourceState, n int) bool {
	s.request++
	subject := fmt.Sprintf("%sCONSUMER.MSG.NEXT.%s.%s", p.b.api, s.spec.stream, s.spec.config.Durable)
	expiry := max(pullExpiry, min(longestExpiry, time.Duration(len(p.sources))*expiryPerSource))
	if p.leaves && p.b.slots.where(time.Now()).workers >= leastListeners {
		expiry = max(expiry, listenerExpiry+rand.N(listenerExpiry/2)) //nolint:gosec // not a secret
	}
	body, patience := fmt.Sprintf(`{"batch":%d,"expires":%d}`, n, expiry.Nanoseconds()), expiry+time.Second
	switch {
	case as == asking && s.returned:
		body, patience = fmt.Sprintf(`{"batch":%d,"expires":%d}`, n, returnExpiry.Nanoseconds()), askPatience
		s.returned = false
	case as == asking:
		body, patience = fmt.Sprintf(`{"batch":%d,"no_wait":true}`, n), askPatience
	}
	if err := p.b.nc.PublishRequest(subject, fmt.Sprintf("%s.%d.%d", p.inbox, s.number, s.request), []byte(body)); err != nil {
		p.queue(s, true)
		if p.b.nc.IsClosed() {
			p.fail(fmt.Errorf("%w: %w", bus.ErrClosed, err))
			return false
		}
		p.paused = time.Now().Add(pullPause)
		p.wakeAt(p.paused)
		return false
	}
	s.is = as
	p.expect(s, s.open+n)
	s.due = time.Now().Add(patience)
	p.wakeAt(s.due)
	return true
}

// expect records the number of messages that the requests of a source may still bring. The caller
// holds mu.
func (p *puller) expect(s *source, open int) {
	open = max(0, open)
	if s.is == asking {
		p.asked += open - s.open
	}
	s.open = open
}

// wakeAt sets the alarm to a time, unless it is already earlier. The caller holds mu.
func (p *puller) wakeAt(at time.Time) {
	if p.due.IsZero() || at.Before(p.due) {
		p.due = at
		p.alarm.Reset(time.Until(at))
	}
}

// expire ends the requests that were not answered in time, and the pauses that are over.
func (p *puller) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.due = time.Time{}
	if !p.paused.IsZero() {
		if now.Before(p.paused) {
			p.wakeAt(p.paused)
		} else {
			p.paused = time.Time{}
		}
	}
	for _, s := range p.sources {
		if s.is != asking && s.is != listening && s.is != refused {
			continue
		}
		if s.is == refused && !s.repaired {
			s.due = now.Add(pullPause)
		}
		if now.Before(s.due) {
			p.wakeAt(s.due)
			continue
		}
		p.expect(s, 0)
		p.queue(s, false)
	}
	p.review()
	p.schedule()
}

// connected drops the requests: the server that had them is not the one that is connected now.
func (p *puller) connected(st nats.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st == nats.CLOSED {
		p.fail(fmt.Errorf("%w: %w", bus.ErrClosed, nats.ErrConnectionClosed))
	}
	p.paused = time.Time{}
	for _, s := range p.sources {
		if s.is == asking || s.is == listening {
			p.expect(s, 0)
			p.queue(s, true)
		}
	}
	p.schedule()
}

// ended processes a status answer: the request has ended. The caller holds mu.
func (p *puller) ended(ctx context.Context, m *nats.Msg, status string) {
	first, second, _ := strings.Cut(strings.TrimPrefix(m.Subject, p.inbox+"."), ".")
	number, err := strconv.Atoi(first)
	s := p.numbers[number]
	if err != nil || s == nil || s.is == refused {
		return
	}
	fine := status == "408" || status == "404" // expired, or no messages
	if left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); second != strconv.Itoa(s.request) && fine {
		if err == nil && len(p.sources) == 1 {
			p.expect(s, s.open-left)
		}
		return // an older request: those ended before the latest
	}
	p.expect(s, 0)
	if fine {
		p.queue(s, false)
		return
	}
	s.is, s.repaired, s.due = refused, false, time.Now().Add(pullPause)
	p.wakeAt(s.due)
	description := m.Header.Get("Description")
	p.repairs.Go(func() {
		p.repair(ctx, s.spec, status, description)
		p.mu.Lock()
		defer p.mu.Unlock()
		s.repaired = true
	})
}

// statusOf returns the code of a status answer, "" for a message.
func statusOf(m *nats.Msg) string {
	if len(m.Data) > 0 || m.Reply != "" { // a message has a subject for its ack
		return ""
	}
	return m.Header.Get("Status")
}

// repair handles an answer that reports a fault. It creates a missing queue: the sweepers republish
// its turns.
func (p *puller) repair(ctx context.Context, spec consumerSpec, status, description string) {
	b := p.b
	log := b.log.With("stream", spec.stream, "consumer", spec.config.Durable)
	log.Debug("pull refused", "status", status, "description", description)
	if status != "503" && !strings.Contains(description, "Deleted") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if _, err := b.js.Consumer(ctx, spec.stream, spec.config.Durable); !isMissing(err) {
		return
	}
	if b.isDrained(spec.stream) {
		return // no process publishes to it, and the one that found it empty deletes it
	}
	err := b.restore(ctx)
	if spec.tenant != "" && spec.tenant != state.DefaultTenant {
		err = b.followTenants(ctx) // another process may have deleted it with its tenant
		if err == nil && !b.exists(spec.stream) {
			return
		}
		if err == nil {
			err = b.ensureTenant(ctx, spec.tenant, spec.kind)
		}
	}
	if err != nil {
		log.Warn("missing NATS streams not created, this process retries", "error", err, "hint", createHint)
		return
	}
	log.Warn("NATS streams or consumers were missing and were created again; workers publish the turns again", "hint", "check whether NATS lost its JetStream directory")
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

// drain returns the messages that the server has already sent.
func (p *puller) drain() {
	drained := make(chan struct{})
	// A connection that closes in the meantime calls it a second time.
	closed := sync.OnceFunc(func() { close(drained) })
	p.sub.SetClosedHandler(func(string) { closed() })
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
		case <-bye.C: // an unreachable server does not answer
			return
		}
	}
}
