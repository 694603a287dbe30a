package natsbus

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// puller hands out the messages of one queue, which come from a consumer of each stream
// that has some of them. It asks the servers only when somebody waits, and for no more than
// its caller has free slots for: whatever it held beyond that, an idle worker elsewhere
// would lack. A message for which there is no free slot any more goes back at once.
type puller struct {
	b     *Bus
	quit  chan struct{} // closed by Close
	close func()

	mu      sync.Mutex
	sources []*source
	next    int           // the source that is asked first, if not all are asked
	waiters []chan result // each takes one result
	ahead   int           // how many messages may lie in ready
	ready   []*nats.Msg   // while nobody waits
}

type result struct {
	msg *nats.Msg
	err error
}

// maxBatch bounds what is asked for and has not come. When half of it has, the next
// request goes out: the server deals messages out by turns to all that have one
// open, and who asks only when the last has come is passed over meanwhile.
const maxBatch = 64

func (b *Bus) pull(ctx context.Context, specs []consumerSpec) (*puller, error) {
	p := &puller{b: b, quit: make(chan struct{})}
	end := sync.OnceFunc(p.end)
	forget, err := b.onClose(end)
	if err != nil {
		return nil, err
	}
	p.close = func() { forget(); end() }
	if err := p.serve(ctx, specs); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// serve takes messages from these consumers from now on, and from no others. Calls must not
// overlap.
func (p *puller) serve(ctx context.Context, specs []consumerSpec) error {
	p.mu.Lock()
	var keep, drop []*source
	for _, s := range p.sources {
		if slices.ContainsFunc(specs, s.isOf) {
			keep = append(keep, s)
		} else {
			drop = append(drop, s)
		}
	}
	p.mu.Unlock()
	var err error
	for _, spec := range specs {
		if slices.ContainsFunc(keep, func(s *source) bool { return s.isOf(spec) }) {
			continue
		}
		var s *source
		if s, err = p.open(ctx, spec); err != nil {
			break
		}
		keep = append(keep, s)
	}
	p.mu.Lock()
	p.sources = keep
	p.wake()
	p.mu.Unlock()
	for _, s := range drop {
		go s.stop() // it may be what has noticed that its stream is gone
	}
	select {
	case <-p.quit: // by a Close at the same time, which has not seen the new ones
		for _, s := range keep {
			s.stop()
		}
		return bus.ErrClosed
	default:
	}
	return err
}

// end gives back what is held and ends the sources.
func (p *puller) end() {
	close(p.quit)
	p.Ahead(0)
	p.mu.Lock()
	sources := p.sources
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range sources {
		all.Go(s.stop)
	}
	all.Wait()
	p.Ahead(0)
}

// Close gives back what is held and ends the pull.
func (p *puller) Close() error {
	p.close()
	return nil
}

// wake has each source look whether it is to ask. The caller holds mu.
func (p *puller) wake() {
	for _, s := range p.sources {
		select {
		case s.asked <- struct{}{}:
		default:
		}
	}
}

// wanted is how many more messages a source is to be asked for: none while nobody waits. If
// now, it is asked for what it has, and not to wait for more.
//
// Asked for as many each as somebody waits for, several streams together would send more, and
// get it back. So while some of them are taken to have messages, as many are asked for of these,
// in turn, as are wanted.
func (p *puller) wanted(s *source) (n int, now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiters) == 0 {
		return 0, false
	}
	all := min(len(p.waiters)+p.ahead, maxBatch)
	share := all
	if len(p.sources) > 1 {
		few := all < len(p.sources)
		if few && !s.more && time.Since(s.dry) > lookAgain {
			s.more = true
		}
		full, open := 0, 0
		for _, o := range p.sources {
			if o.more {
				full, open = full+1, open+o.open
			}
		}
		switch {
		case full == 0:
			share = (all + len(p.sources) - 1) / len(p.sources)
		case s.more:
			share = all / full
			if p.before(s) < all%full {
				share++
			}
			return max(0, min(share-s.open, all-open)), true
		case few:
			return 0, false // the others have enough; it has its turn again
		default:
			share = 1
		}
	}
	if n = share - s.open; 2*n < share {
		n = 0
	}
	return max(n, 0), false
}

// before counts the sources with messages that are asked before s. The caller holds mu.
func (p *puller) before(s *source) int {
	n := 0
	for i := range p.sources {
		o := p.sources[(p.next+i)%len(p.sources)]
		if o == s {
			break
		}
		if o.more {
			n++
		}
	}
	return n
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

func (p *puller) giveBack(m *nats.Msg) {
	if statusOf(m) != "" {
		return
	}
	if err := m.Nak(); err != nil {
		p.b.log.Debug().Err(err).Msg("nak") // delivered again after the ack wait
	}
}

// came takes what a source has brought.
func (p *puller) came(s *source, m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.open = max(0, s.open-1)
	if len(p.sources) > 1 {
		meta, err := m.Metadata()
		more := err == nil && meta.NumPending > 0
		if !more {
			s.isDry()
		}
		s.more = more
		p.next = slices.Index(p.sources, s) + 1
	}
	p.hand(m)
}

// hand gives a message to whoever waits longest, keeps it for the next, or gives it
// back to the server. The caller holds mu.
func (p *puller) hand(m *nats.Msg) {
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

func (p *puller) take(ctx context.Context) (*nats.Msg, error) {
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
	p.wake()
	p.mu.Unlock()
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
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hand(r.msg)
	}
	return nil, err
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
