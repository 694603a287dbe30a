package natsbus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// puller delivers the messages of one queue, from a consumer of each stream that has some of them.
// It sends requests only while a caller waits. With one stream it requests no more messages than the
// waiting callers need and SetPrefetch permits in addition, so that idle workers elsewhere get the
// rest. With several it may receive more, because each stream without messages has a request open:
// see schedule. A message that fits neither a caller nor the prefetch returns to the server at once.
//
// One goroutine receives all answers, and schedule decides after each event which
// sources send a request. So no source waits for the answer of another one.
type puller struct {
	b      *Bus
	sub    *nats.Subscription
	inbox  string // a request is answered to <inbox>.<number of the source>.<number of the request>
	msgs   chan *nats.Msg
	status chan nats.Status
	alarm  *time.Timer
	quit   chan struct{} // closed by Close
	done   chan struct{} // closed when run has returned
	close  func()

	repairs sync.WaitGroup

	mu      sync.Mutex
	sources map[string]*source // by stream
	numbers map[int]*source    // by number
	last    int                // the highest number of a source
	due     time.Time          // time of the alarm
	turn    []*source          // probably have messages; the puller requests from the first one first
	dry     []*source          // have no messages and no open request
	left    []*source          // the same, and other workers wait for their messages
	leaves  bool               // some sources may be left to other workers
	asked   int                // messages that requests for present messages may still bring
	paused  time.Time          // no request is sent before then, because one could not be
	waiters []chan result      // each takes one result
	ahead   int                // maximum length of ready
	ready   []*nats.Msg        // while no caller waits
}

type result struct {
	msg *nats.Msg
	err error
}

// maxBatch is the maximum number of messages that the puller requests at once from sources that
// probably have some. A puller with one source sends its next request when half of the messages
// have arrived: the server serves open requests in turns, and skips a puller that has none open.
const maxBatch = 64

// pull opens a queue. buffer is the maximum number of messages received and not yet delivered.
func (b *Bus) pull(ctx context.Context, specs []consumerSpec, buffer int) (*puller, error) {
	p := &puller{
		b: b, inbox: b.nc.NewInbox(), msgs: make(chan *nats.Msg, buffer), alarm: time.NewTimer(pullExpiry),
		quit: make(chan struct{}), done: make(chan struct{}), sources: map[string]*source{}, numbers: map[int]*source{},
	}
	var err error
	if p.sub, err = b.nc.ChanSubscribe(p.inbox+".*.*", p.msgs); err != nil {
		return nil, fmt.Errorf("pull messages from NATS: %w", err)
	}
	p.status = b.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	go p.run(context.WithoutCancel(ctx)) // ends with Close
	end := sync.OnceFunc(p.end)
	forget, err := b.onClose(end)
	if err != nil {
		end()
		return nil, err
	}
	p.close = func() { forget(); end() }
	if err := p.serve(specs); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// serve makes the puller take messages from these consumers from now on, and from no others. The error is
// bus.ErrClosed after Close.
func (p *puller) serve(specs []consumerSpec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.quit:
		return bus.ErrClosed
	default:
	}
	wanted := make(map[string]bool, len(specs))
	for i, spec := range specs {
		wanted[spec.stream] = true
		if p.sources[spec.stream] == nil {
			p.last++
			s := &source{spec: spec, number: p.last}
			p.sources[spec.stream], p.numbers[s.number] = s, s
			p.queue(s, true) // until the state of the source is known
		}
		p.sources[spec.stream].place = i
	}
	for stream, s := range p.sources {
		switch {
		case !wanted[stream]: // the caller may be the goroutine that found its stream gone
			p.expect(s, 0)
			s.is = gone
			delete(p.sources, stream)
			delete(p.numbers, s.number)
		case s.open == 0 && s.is != refused:
			p.queue(s, true)
		}
	}
	p.schedule()
	return nil
}

// end returns the held messages to the server and stops pulling.
func (p *puller) end() {
	close(p.quit)
	p.SetPrefetch(0)
	<-p.done
	p.repairs.Wait()
	p.SetPrefetch(0)
}

// Close returns the held messages to the server and stops pulling.
func (p *puller) Close() error {
	p.close()
	return nil
}

// schedule sends the requests that callers wait for. The caller must
// hold mu, and call it after a change that may require a request.
//
// With several sources, the puller requests from those with messages in turn, and in total as many messages as its
// callers want and SetPrefetch permits, at most maxBatch. Every source that is dry gets a request that waits for
// messages to come, unless it is left to other workers; such a request never delays one to another source. For a single
// source see topUp.
func (p *puller) schedule() {
	if len(p.waiters) == 0 || !p.paused.IsZero() {
		return
	}
	all := min(len(p.waiters)+p.ahead, maxBatch)
	if len(p.sources) == 1 {
		p.topUp(all)
		return
	}
	for free := all - p.asked; free > 0 && len(p.turn) > 0; {
		s := p.turn[0]
		p.turn, s.listed = p.turn[1:], false
		if s.is != inTurn {
			continue
		}
		n := (free + len(p.turn)) / (len(p.turn) + 1)
		if !p.request(s, asking, n) {
			return
		}
		free -= n
	}
	share := 1
	if p.asked == 0 {
		share = (all + len(p.sources) - 1) / len(p.sources)
	}
	for len(p.dry) > 0 {
		s := p.dry[0]
		p.dry = p.dry[1:]
		switch {
		case s.is != isDry:
		case p.leaves && !p.b.slots.where(time.Now()).listens(s.place, len(p.sources)):
			p.leave(s)
		case !p.request(s, listening, share):
			return
		}
	}
}

// leave leaves a source that has no messages to other workers until the next review. The caller holds mu.
func (p *puller) leave(s *source) {
	if !s.left {
		s.left = true
		p.left = append(p.left, s)
	}
	p.wakeAt(time.Now().Add(reviewInterval))
}

// review makes schedule decide again about the sources that are left to other workers. The caller holds mu.
func (p *puller) review() {
	for _, s := range p.left {
		s.left = false
	}
	p.dry, p.left = append(p.dry, p.left...), nil
}

// topUp makes the only source bring as many messages as callers want. The caller holds mu.
func (p *puller) topUp(all int) {
	p.turn, p.dry = p.turn[:0], p.dry[:0]
	for _, s := range p.sources {
		s.listed = false
		if n := all - s.open; s.is != refused && n > 0 && 2*n >= all {
			p.request(s, listening, n)
		}
	}
}

// queue appends a source without a request to its list. The caller holds mu.
func (p *puller) queue(s *source, hasMessages bool) {
	if hasMessages {
		s.is = inTurn
		if !s.listed {
			s.listed = true
			p.turn = append(p.turn, s)
		}
		return
	}
	s.is = isDry
	p.dry = append(p.dry, s)
}

// SetPrefetch implements bus.TurnQueue.
func (p *puller) SetPrefetch(n int) {
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
		p.b.log.Debug("nak", "error", err) // delivered again after the ack wait
	}
}

// came processes a message from a source. The caller holds mu.
func (p *puller) came(m *nats.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		p.giveBack(m)
		return
	}
	s := p.sources[meta.Stream]
	if s == nil {
		p.giveBack(m)
		return
	}
	p.expect(s, s.open-1)
	taken := p.hand(m)
	has := !taken || meta.NumPending > 0
	s.returned = !taken
	switch {
	case len(p.sources) == 1 && s.is == listening: // schedule tops it up
	case (s.is == listening || s.is == asking) && s.open == 0, s.is == isDry && has:
		asked := s.is == asking
		p.queue(s, has)
		if asked && !taken { // the source keeps its place in turn
			last := len(p.turn) - 1
			copy(p.turn[1:], p.turn[:last])
			p.turn[0] = s
		}
	}
}

// hand gives a message to the caller that has waited longest, or buffers it for the next one, and returns true. If it
// can do neither, it returns the message to the server, and returns false. The caller holds mu.
func (p *puller) hand(m *nats.Msg) bool {
	switch {
	case len(p.waiters) > 0:
		p.waiters[0] <- result{msg: m}
		p.waiters = p.waiters[1:]
	case len(p.ready) < p.ahead:
		p.ready = append(p.ready, m)
	default:
		p.giveBack(m)
		return false
	}
	return true
}

// fail returns an error to all waiting callers. The caller holds mu.
func (p *puller) fail(err error) {
	for _, w := range p.waiters {
		w <- result{err: err}
	}
	p.waiters = nil
}

// take waits for a message. It returns the error of ctx, or bus.ErrClosed after Close or when the
// connection closes.
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
	p.schedule()
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
	// A message arrived at the same moment: pass it to the next caller, or return it.
	if r := <-w; r.msg != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hand(r.msg)
	}
	return nil, err
}

type delivery struct{ msg *nats.Msg }

// Ack requests the deletion of the message, and does not wait for the server.
func (d delivery) Ack() error { return d.msg.Ack() }

// InProgress restarts the ack wait.
func (d delivery) InProgress() error { return d.msg.InProgress() }

// Delivered returns the number of deliveries of the message; 1 if the server does not report it.
func (d delivery) Delivered() int {
	meta, err := d.msg.Metadata()
	if err != nil {
		return 1
	}
	return int(meta.NumDelivered) //nolint:gosec // no message is delivered 2^63 times
}

// PublishedAt returns the time at which the stream stored the message; now if the server does not
// report it.
func (d delivery) PublishedAt() time.Time {
	meta, err := d.msg.Metadata()
	if err != nil {
		return time.Now()
	}
	return meta.Timestamp
}

// Nak requests redelivery.
func (d delivery) Nak(delay time.Duration) error {
	if delay <= 0 {
		return d.msg.Nak()
	}
	return d.msg.NakWithDelay(delay)
}
