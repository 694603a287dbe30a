package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

const (
	// outboxMessages is the number of messages that wait in an outbox at most. With some 300 bytes
	// each, they take 30 MB.
	outboxMessages = 100_000

	// outboxDirect is the number of messages that requests may have on their way to the bus
	// before others wait in line.
	outboxDirect = 256

	// outboxPart is the number of messages that the outbox sends at once, before it looks what
	// became of them, and outboxProbe that number while the bus is away. Messages of one part may
	// overtake each other. With 50 ms to the bus, parts carry some 5,000 messages a second.
	outboxPart  = 256
	outboxProbe = 8

	// outboxTimeout bounds one try. A try that runs out of time may have stored its message: the
	// stream drops the second message with the same id.
	outboxTimeout = 2 * time.Second

	// outboxPatience limits how long a request waits for its messages. The store already has the
	// change, and the outbox sends the message even if the request stops waiting.
	outboxPatience = 50 * time.Millisecond

	// outboxMinDelay and outboxMaxDelay are the delays between tries while the bus is away.
	outboxMinDelay = 50 * time.Millisecond
	outboxMaxDelay = time.Second

	// outboxRefusals is the number of times that the bus may refuse a message although it has
	// stored others since the previous try.
	outboxRefusals = 5

	// outboxFlush bounds how long Close waits for messages on their way.
	outboxFlush = 2 * time.Second
)

// outbox sends the messages that follow changes of runs. It repeats a message until the bus has stored it,
// the oldest messages first. The store has the changes, so a message that the outbox loses with its
// process, or has no capacity for, is published by the sweeper of a worker.
//
// A message waits behind all that wait already: runs that clients submit while the bus is away start before
// those that come later. It has many fields because one lock guards the queue, what is known of the bus,
// and the goroutine that sends.
type outbox struct {
	log  *slog.Logger
	most int // messages that may wait

	sizes prometheus.GaugeFunc
	lost  prometheus.Counter

	closing sync.Once

	mu      sync.Mutex
	last    uint64    // the number of the latest letter
	taken   uint64    // how many messages the bus has stored
	waiting []*letter // by number
	direct  int       // letters that are tried outside waiting
	pumping bool      // a goroutine sends what waits
	away    bool      // the latest tries have failed
	since   time.Time // when away became true
	slow    bool      // a caller has waited in vain, and no try has succeeded since
	full    bool      // the log has a line about lost messages since the bus is away
	idle    chan struct{}
	quit    chan struct{}
}

// letter is a message on its way. A closure per message takes about as much memory as its fields.
type letter struct {
	number   uint64
	taken    uint64 // outbox.taken at the latest try that failed
	refusals int
	sent     bool
	send     func(context.Context) error
	tried    chan struct{} // closed after the first try; nil if no caller waits for that
}

func newOutbox(log *slog.Logger, most int) *outbox {
	o := &outbox{log: log, most: most, quit: make(chan struct{})}
	o.sizes = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_outbox_messages", Help: "Messages that this gateway repeats until the bus has stored them."}, func() float64 {
		o.mu.Lock()
		defer o.mu.Unlock()
		return float64(len(o.waiting))
	})
	o.lost = prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_outbox_dropped_total", Help: "Messages that this gateway left to the sweeper of a worker."})
	return o
}

// tried is a closed channel, for letters that no caller waits for.
var tried = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// post takes a message in, and returns a channel that is closed when its first try is over, or at
// once while the bus is away or slow. send must be harmless when it is repeated, and must keep nothing of
// the request that it is for in memory.
func (o *outbox) post(send func(context.Context) error) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	l := &letter{number: o.last, send: send}
	if o.away {
		o.wait(l)
		return tried
	}
	first := tried
	if !o.slow {
		first = make(chan struct{})
		l.tried = first
	}
	if o.pumping || o.direct >= outboxDirect {
		o.wait(l)
		return first
	}
	o.direct++
	go func() {
		err := o.try(l)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.direct--
		l.wasTried()
		if err != nil {
			o.failed(err)
			o.wait(l)
		} else {
			o.slow = false
			o.taken++
		}
		o.rest()
	}()
	return first
}

// wasTried releases the callers that wait for the first try.
func (l *letter) wasTried() {
	if l.tried != nil {
		close(l.tried)
		l.tried = nil
	}
}

// wait puts a letter in line by its number. The caller holds mu.
func (o *outbox) wait(l *letter) {
	if len(o.waiting) >= o.most {
		o.drop(l)
		return
	}
	at := len(o.waiting)
	for at > 0 && o.waiting[at-1].number > l.number {
		at--
	}
	o.waiting = slices.Insert(o.waiting, at, l)
	if !o.pumping {
		o.pumping = true
		go o.pump()
	}
}

// drop leaves a letter to the sweeper. The caller holds mu.
func (o *outbox) drop(l *letter) {
	l.wasTried()
	o.lost.Inc()
	if !o.full {
		o.full = true
		o.log.Warn("the queue of messages for NATS is full: a message was dropped, a worker's sweeper publishes it instead", "waiting", len(o.waiting), "hint", "check that NATS is reachable; turnpike_outbox_dropped_total counts these messages")
	}
}

// failed notes that the bus is away. The caller holds mu.
func (o *outbox) failed(err error) {
	if !o.away {
		o.away, o.since = true, time.Now()
		o.log.Warn("NATS accepts no messages, this gateway retries", "error", err, "hint", "check that NATS is reachable and its disk is not full")
	}
}

func (o *outbox) try(l *letter) error {
	ctx, cancel := context.WithTimeout(context.Background(), outboxTimeout)
	defer cancel()
	return l.send(ctx)
}

// pump sends what waits until nothing does, or the outbox is closed.
func (o *outbox) pump() {
	delay, from := outboxMinDelay, uint64(0)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	o.mu.Lock()
	pause := o.away // the try that failed is not long ago
	o.mu.Unlock()
	for {
		if pause {
			timer.Reset(delay)
			delay = min(2*delay, outboxMaxDelay)
			select {
			case <-timer.C:
			case <-o.quit:
			}
		}
		part := o.part(from)
		if len(part) == 0 {
			return
		}
		errs := make([]error, len(part))
		var group errgroup.Group
		for i, l := range part {
			group.Go(func() error {
				errs[i] = o.try(l)
				return nil
			})
		}
		_ = group.Wait()
		from, pause = o.settle(part, errs)
		if !pause {
			delay = outboxMinDelay
		}
	}
}

// part returns letters to send, in order: those from a sequence number on, or the oldest if no
// later one waits. If it returns nothing, the pump ends.
func (o *outbox) part(from uint64) []*letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.quit:
		o.waiting = nil
	default:
	}
	if len(o.waiting) == 0 {
		o.pumping = false
		o.rest()
		return nil
	}
	n := outboxPart
	if o.away {
		n = outboxProbe
	}
	first, _ := slices.BinarySearchFunc(o.waiting, from, func(l *letter, from uint64) int {
		if l.number < from {
			return -1
		}
		return 1
	})
	if first == len(o.waiting) {
		first = 0
	}
	return slices.Clone(o.waiting[first:min(first+n, len(o.waiting))])
}

// settle takes the letters out that were sent. It returns where to continue, and whether to pause
// before that. As long as all tries fail the next letters have a turn: the bus may refuse one part
// of them, such as those for a stream without a leader. Otherwise the oldest have.
func (o *outbox) settle(part []*letter, errs []error) (from uint64, pause bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var failure error
	sent, before := 0, o.taken
	for i, l := range part {
		l.wasTried()
		if l.sent = errs[i] == nil || errors.Is(errs[i], bus.ErrClosed); l.sent {
			sent++
			continue
		}
		failure = errs[i]
		if l.taken < before {
			l.taken = before
			if l.refusals++; l.refusals > outboxRefusals {
				l.sent = true
				o.drop(l)
			}
		}
	}
	o.taken += uint64(sent)
	o.waiting = slices.DeleteFunc(o.waiting, func(l *letter) bool { return l.sent })
	if sent == 0 {
		o.failed(failure)
		return part[len(part)-1].number + 1, true
	}
	o.slow = false
	if o.away {
		o.away, o.full = false, false
		o.log.Info("NATS accepts messages again", "waiting", len(o.waiting), "away_ms", time.Since(o.since).Milliseconds())
	}
	return 0, failure != nil
}

// rest tells flush that nothing is on its way. The caller holds mu.
func (o *outbox) rest() {
	if o.idle != nil && o.direct == 0 && len(o.waiting) == 0 {
		close(o.idle)
		o.idle = nil
	}
}

// close waits up to outboxFlush until the bus has all messages, and ends the goroutine that sends
// them. Later calls do nothing.
func (o *outbox) close() { o.closing.Do(o.flush) }

// flush is close, once.
func (o *outbox) flush() {
	o.mu.Lock()
	o.idle = make(chan struct{})
	idle := o.idle
	o.rest()
	o.mu.Unlock()
	timer := time.NewTimer(outboxFlush)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
	close(o.quit)
}

// await waits until the first tries are over, for as long as a request may wait for them all.
func (o *outbox) await(ctx context.Context, firsts ...<-chan struct{}) {
	timer := time.NewTimer(outboxPatience)
	defer timer.Stop()
	for _, first := range firsts {
		select {
		case <-first:
		case <-timer.C:
			o.mu.Lock()
			o.slow = true
			o.mu.Unlock()
			return
		case <-ctx.Done():
			return
		}
	}
}
