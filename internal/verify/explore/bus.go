package explore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ackWait is the time after which the bus redelivers an unacknowledged message.
const ackWait = 30011 * time.Millisecond

// queue is the content of the bus. deployment.mu guards it.
type queue struct {
	messages  []*message
	published map[string]bool // ids that the server remembers
	n         int
}

// message is one turn message.
type message struct {
	n         int
	turn      bus.Turn
	delivered int
	from      time.Time // it is not delivered before
	at        time.Time // of its publication
}

// wire is the bus as one process reaches it, without the methods that no process here calls.
type wire struct {
	bus.Bus

	p *process
}

func (w wire) request(what string, can []outcome) request {
	return request{name: w.p.name + ": " + what, can: can}
}

// Every tenant may publish here, no run has a file, and the explorer itself finds turns that no worker pulls.
func (wire) OpenTenant(context.Context, string) error              { return nil }
func (wire) CloseTenant(context.Context, string) error             { return nil }
func (wire) KeepTenants(context.Context, []string) error           { return nil }
func (wire) ObjectNames(context.Context, string) ([]string, error) { return nil, nil }
func (wire) Unpulled(context.Context) (map[string]bus.Unpulled, error) {
	return map[string]bus.Unpulled{}, nil
}

func (w wire) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	what := fmt.Sprintf("publish the turn after %s at %d", w.p.s.short(t.Run), t.Version)
	return ask0(ctx, w.p, w.request(what, publishes), func() error {
		w.p.s.publish(t, id)
		return nil
	})
}

// publish puts a turn message into the queue, unless the server remembers its id.
func (s *deployment) publish(t bus.Turn, id string) {
	s.checkPublished(t)
	if s.outcome == vanished {
		s.queue.published[t.Sticky+" "+id] = true
		return
	}
	id = t.Sticky + " " + id // each queue of a worker is in another stream than the lanes
	if s.queue.published[id] {
		return
	}
	s.queue.published[id] = true
	for range 1 + count(s.outcome == doubled) {
		s.queue.n++
		s.queue.messages = append(s.queue.messages, &message{n: s.queue.n, turn: t, at: time.Now()})
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w wire) Turns(_ context.Context, lane bus.QueueKey) (bus.TurnQueue, error) {
	return &turns{p: w.p, lane: lane}, nil
}

func (w wire) StickyTurns(_ context.Context, worker string) (bus.TurnQueue, error) {
	return &turns{p: w.p, worker: worker}, nil
}

// turns hands out the messages of a lane, or of a worker's own queue, to one process.
type turns struct {
	p      *process
	lane   bus.QueueKey
	worker string // empty for a lane
}

func (q *turns) SetPrefetch(int) {}
func (q *turns) Close() error    { return nil }

// has reports whether a turn belongs to the queue.
func (q *turns) has(t bus.Turn) bool {
	return t.Sticky == q.worker && (q.worker != "" || t.Queue() == q.lane)
}

// inLane reports whether a turn was published in its lane.
func (s *deployment) inLane(t bus.Turn) bool {
	return s.queue.published[fmt.Sprintf(" %s:%d", t.Run, t.Version)]
}

// unread returns the number of messages that a process may still receive. No process reads those in the own queue of a
// worker that died, or that has stopped and was cut off before it gave them back. The caller holds s.mu.
func (s *deployment) unread() (n int) {
	for _, m := range s.queue.messages {
		if m.turn.Sticky == "" || slices.ContainsFunc(s.processes, func(p *process) bool { return p.name == m.turn.Sticky && !p.dead && !p.leaves }) {
			n++
		}
	}
	return n
}

func (q *turns) first() *message {
	for _, m := range q.p.s.queue.messages {
		if q.has(m.turn) && !time.Now().Before(m.from) {
			return m
		}
	}
	return nil
}

// Next is not a step that could fail: a message without a delivery equals one whose worker dies
// before it claims.
func (q *turns) Next(ctx context.Context) (bus.TurnDelivery, error) {
	r := request{name: fmt.Sprintf("%s: next of %s", q.p.name, cmp.Or(q.worker, q.lane.String())), ready: func() bool { return q.first() != nil }}
	d, err := ask(ctx, q.p, r, func() (delivered, error) {
		m := q.first()
		m.delivered++
		m.from = time.Now().Add(ackWait)
		return delivered{m.n, m.delivered, m.turn}, nil
	})
	if err != nil {
		return nil, err
	}
	return &delivery{p: q.p, delivered: d}, nil
}

type delivered struct {
	N, Times int
	Message  bus.Turn
}

type delivery struct {
	delivered

	p *process
}

func (d *delivery) Turn() bus.Turn { return d.Message }
func (d *delivery) Delivered() int { return d.Times }

// with applies do to the message, unless it is gone or its ack wait has passed.
func (d *delivery) with(do func(m *message)) error {
	for _, m := range d.p.s.queue.messages {
		if m.n == d.N && m.delivered == d.Times {
			do(m)
		}
	}
	return nil
}

func (d *delivery) name(what string) string {
	return fmt.Sprintf("%s: %s the message for %s at %d", d.p.name, what, d.p.s.short(d.Message.Run), d.Message.Version)
}

// PublishedAt: no execution lasts until a message counts as old.
func (d *delivery) PublishedAt() time.Time { return time.Now() }

func (d *delivery) Ack() error {
	return ask0(context.Background(), d.p, request{name: d.name("acknowledge"), can: replies}, func() error {
		d.p.s.checkAcknowledged(d.p, d.Message)
		return d.with(func(m *message) {
			d.p.s.queue.messages = slices.DeleteFunc(slices.Clone(d.p.s.queue.messages), func(have *message) bool { return have == m })
		})
	})
}

func (d *delivery) Nak(delay time.Duration) error {
	return ask0(context.Background(), d.p, request{name: d.name("return"), can: replies}, func() error {
		d.p.s.answers(d.p, d.Message)
		return d.with(func(m *message) { m.from = time.Now().Add(delay) })
	})
}

// InProgress follows a renewal, and is not a separate step: losing it causes one more delivery.
func (d *delivery) InProgress() error {
	d.p.passes()
	d.p.s.mu.Lock()
	defer d.p.s.mu.Unlock()
	return d.with(func(m *message) { m.from = time.Now().Add(ackWait) })
}

func (w wire) Lag(context.Context) (int64, error) {
	w.p.passes()
	return 0, nil
}

// Backlog is not a separate step: without an answer, a sweeper continues as if nothing waited.
func (w wire) Backlog(context.Context) (state.Backlog, error) {
	w.p.passes()
	w.p.s.mu.Lock()
	defer w.p.s.mu.Unlock()
	var b state.Backlog
	for _, m := range w.p.s.queue.messages {
		if _, known := b[m.turn.Priority]; known || m.delivered > 0 || m.turn.Sticky != "" {
			continue
		}
		if b == nil {
			b = state.Backlog{}
		}
		b[m.turn.Priority] = m.at
	}
	if b != nil {
		w.p.overhears("backlog", b, nil)
	}
	return b, nil
}

func (w wire) PublishLive(state.RunID, []byte) { w.p.passes() }

// Watchers reports every run as watched, so that turns produce live events.
func (wire) Watchers(context.Context) (bus.Watchers, error) { return watchers{}, nil }

type watchers struct{}

func (watchers) Watched(state.RunID) bool { return true }
func (watchers) Stop()                    {}

// NotifyAppended sends a hint. The hint must not report more entries than the store has.
func (w wire) NotifyAppended(_ string, run state.RunID, _, to int64) {
	w.p.passes()
	w.p.s.mu.Lock()
	defer w.p.s.mu.Unlock()
	w.p.s.checkGrown(run, to)
}

func (w wire) PublishAbort(ctx context.Context, a bus.Abort) error {
	return ask0(ctx, w.p, w.request("publish the abort of "+w.p.s.short(a.Run), writes), func() error {
		w.p.s.sendAbort(a)
		return nil
	})
}

// sendAbort sends an abort to all listeners.
func (s *deployment) sendAbort(a bus.Abort) {
	for _, p := range s.processes {
		if p.dead || len(p.aborts) == 0 {
			continue
		}
		s.pending = append(s.pending, &call{
			p: p, name: fmt.Sprintf("%s: hear of the abort of %s", p.name, s.short(a.Run)), can: hearings, since: s.step,
			effect: func() (any, error) {
				if a.Version > 0 && !a.Interrupt { // otherwise the store may not have it yet
					p.aborted[a.Run] = true
				}
				for _, fn := range p.aborts {
					fn(a)
				}
				return a, nil
			},
			answer: make(chan answer, 1),
		})
	}
}

func (w wire) Aborts(_ context.Context, fn func(bus.Abort)) (func(), error) {
	w.p.s.mu.Lock()
	defer w.p.s.mu.Unlock()
	w.p.aborts = append(w.p.aborts, fn)
	return func() {}, nil
}

func (w wire) Reply(ctx context.Context, tenant, subject string, data []byte) error {
	return ask0(ctx, w.p, w.request("reply to "+subject, writes), func() error {
		w.p.s.checkReply(data)
		return nil
	})
}

func (wire) CheckReply(tenant, subject string) error {
	return bus.CheckReply("turnpike", tenant, subject)
}

func (w wire) DeadLetter(ctx context.Context, l bus.DeadLetter) error {
	return ask0(ctx, w.p, w.request(fmt.Sprintf("dead letter %s of %s", l.Kind, w.p.s.short(l.Run)), writes), func() error {
		w.p.s.letters = append(w.p.s.letters, l)
		return nil
	})
}

// PurgeRun deletes the dead letters of a run.
func (w wire) PurgeRun(ctx context.Context, _ string, run state.RunID, _ bool) error {
	return ask0(ctx, w.p, w.request("purge "+w.p.s.short(run), writes), func() error {
		w.p.s.letters = slices.DeleteFunc(w.p.s.letters, func(l bus.DeadLetter) bool { return l.Run == run })
		return nil
	})
}

// Deleted is a hint to readers.
func (w wire) Deleted(string, state.RunID) { w.p.passes() }

// SendHeartbeat reaches all processes that are awake at once, or only the process itself.
func (w wire) SendHeartbeat(b bus.Heartbeat) {
	w.p.passes()
	s := w.p.s
	s.mu.Lock()
	var hear []func(bus.Heartbeat)
	if w.p.awake() {
		for _, p := range s.processes {
			if p.awake() && len(p.heartbeats) > 0 && (p == w.p || !time.Now().Before(w.p.unheard)) {
				p.overhears("heartbeat", b, nil)
				hear = append(hear, p.heartbeats...)
			}
		}
	}
	s.mu.Unlock()
	for _, fn := range hear {
		fn(b)
	}
}

func (w wire) Heartbeats(_ context.Context, fn func(bus.Heartbeat)) (func(), error) {
	w.p.s.mu.Lock()
	defer w.p.s.mu.Unlock()
	w.p.heartbeats = append(w.p.heartbeats, fn)
	return func() {}, nil
}
