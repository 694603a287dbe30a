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

	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/bus"
)

const (
	// outboxMessages is the maximum number of messages that wait in an outbox. With some 300 bytes each, they take 30
	// MB.
	outboxMessages = 100_000

	// outboxDirect is the maximum number of messages that are being sent at once for requests, outside the queue.
	outboxDirect = 256

	// outboxPart is the number of messages that the outbox sends at once before it checks the results, and outboxProbe
	// is that number while the bus is unavailable. Messages sent at once may overtake each other. With 50 ms to the
	// bus, the outbox sends some 5,000 messages a second.
	outboxPart  = 256
	outboxProbe = 8

	// outboxTimeout bounds one attempt. An attempt that times out may have stored its message: the stream drops a
	// second message with the same id.
	outboxTimeout = 2 * time.Second

	// outboxPatience limits how long a request waits for its messages. The store already has the change, and the outbox
	// sends the message even if the request stops waiting.
	outboxPatience = 50 * time.Millisecond

	// outboxMinDelay and outboxMaxDelay bound the delay between attempts while the bus is unavailable.
	outboxMinDelay = 50 * time.Millisecond
	outboxMaxDelay = time.Second

	// outboxRefusals is the number of times that the bus may refuse a message, while it stores others, before the
	// outbox drops the message.
	outboxRefusals = 5

	// outboxFlush bounds how long close waits for the messages.
	outboxFlush = 2 * time.Second
)

// outbox sends the messages that follow changes of runs. It repeats a message until the bus has stored it, usually the
// oldest messages first. A message may be lost with this process, be refused by the bus too often, or not fit into the
// outbox. The store has the change, so workers find it later: the sweeper of a worker publishes the turn.
//
// While messages wait, outbox adds a new one behind them: runs that clients submit while the bus is unavailable start
// before later ones. outbox has many fields because one lock guards the queue, the state of the bus, and the goroutine
// that sends.
type outbox struct {
	log  *slog.Logger
	most int // maximum number of messages that wait

	sizes prometheus.GaugeFunc
	lost  prometheus.Counter

	closing sync.Once

	mu      sync.Mutex
	last    uint64    // the number of the latest letter
	taken   uint64    // the number of messages that the bus has stored
	waiting []*letter // by number
	direct  int       // letters that are being sent outside waiting
	pumping bool      // a goroutine sends the letters in waiting
	away    bool      // the latest attempts have failed
	since   time.Time // when away became true
	slow    bool      // a caller has waited outboxPatience in vain, and no attempt has succeeded since
	full    bool      // a full queue was logged since the bus became unavailable
	idle    chan struct{}
	quit    chan struct{}
}

// letter is a message that is not stored yet. A closure per message takes about as much memory as its fields would.
type letter struct {
	number   uint64
	taken    uint64 // outbox.taken at the latest attempt that failed
	refusals int
	sent     bool
	send     func(context.Context) error
	tried    chan struct{} // closed after the first attempt; nil if no caller waits for it
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

// post adds a message, and returns a channel that is closed when its first attempt is over or the message is dropped,
// or that is closed already while the bus is unavailable or slow. send must be idempotent, and must not reference the
// memory of its request.
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

// wasTried releases the callers that wait for the first attempt.
func (l *letter) wasTried() {
	if l.tried != nil {
		close(l.tried)
		l.tried = nil
	}
}

// wait adds a letter to the queue at its number. The caller holds mu.
func (o *outbox) wait(l *letter) {
	if len(o.waiting) >= o.most {
		o.drop(l)
		if !o.full {
			o.full = true
			o.log.Warn("the queue of messages for NATS is full, further messages are dropped: their runs start, continue or stop later, when a worker finds the change in the store", "waiting", len(o.waiting), "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation; turnpike_outbox_dropped_total counts these messages")
		}
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

// drop gives a letter up: the sweeper publishes its turn. The caller holds mu.
func (o *outbox) drop(l *letter) {
	l.wasTried()
	o.lost.Inc()
}

// restoreHint is the remedy for messages that are not published because the deployment waits for a decision.
const restoreHint = "run `turnpike restore status`, then accept or abandon: docs/how-to/restore-the-store.md"

// failed records that the bus is unavailable. The caller holds mu.
func (o *outbox) failed(err error) {
	if !o.away {
		o.away, o.since = true, time.Now()
		message, hint := "NATS accepts no messages, this gateway retries", "run `turnpike doctor`: NATS may be unreachable, have no storage left or refuse the operation"
		if errors.Is(err, restore.ErrWaiting) {
			message, hint = "no turns are published until an operator decides about the older copy of the store, this gateway retries", restoreHint
		}
		o.log.Warn(message, "error", err, "hint", hint)
	}
}

func (o *outbox) try(l *letter) error {
	ctx, cancel := context.WithTimeout(context.Background(), outboxTimeout)
	defer cancel()
	return l.send(ctx)
}

// pump sends the queue until it is empty or the outbox is closed.
func (o *outbox) pump() {
	delay, from := outboxMinDelay, uint64(0)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	o.mu.Lock()
	pause := o.away // the failed attempt was just now
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

// part returns the next letters to send, at most outboxPart, in order: those with numbers from the argument on, or the
// oldest if there are none. If it returns no letters, the caller must end the pump.
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

// settle removes from the queue the letters that were sent, those that the bus has refused too often, and those that a
// closed bus can no longer store. It returns the number of the letter to continue at, and whether to pause before. As
// long as all attempts fail it continues with the next letters, because the bus may refuse only some, such as those for
// a stream without a leader; otherwise with the oldest.
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
				message, hint := "NATS refuses a message, which was dropped", "run `turnpike doctor`: a stream may have no leader; turnpike_outbox_dropped_total counts these messages"
				if errors.Is(errs[i], restore.ErrWaiting) {
					message, hint = "a message was dropped while the deployment waits for a decision about the older copy of the store", restoreHint
				}
				o.log.Warn(message+": its run starts, continues or stops later, when a worker finds the change in the store", "error", errs[i], "hint", hint)
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

// rest wakes flush if no letter is left. The caller holds mu.
func (o *outbox) rest() {
	if o.idle != nil && o.direct == 0 && len(o.waiting) == 0 {
		close(o.idle)
		o.idle = nil
	}
}

// close waits up to outboxFlush until the bus has all messages, and ends the goroutine that sends them. Later calls do
// nothing.
func (o *outbox) close() { o.closing.Do(o.flush) }

// flush does the work of close.
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

// await waits until the first attempts are over, at most outboxPatience in total.
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
