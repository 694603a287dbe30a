package membus

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// item is a message until it is acknowledged.
type item struct {
	id        string
	key       string
	tenant    string
	data      []byte
	headers   map[string]string
	turn      bus.Turn
	published time.Time
	delivered int
	until     time.Time // earliest delivery
}

// queue is a work queue: it delivers an item until the item is acknowledged.
type queue struct {
	b     *Bus
	mu    sync.Mutex
	items []*item
	wake  chan struct{}
	last  int // number of the latest item
}

func newQueue(b *Bus) *queue { return &queue{b: b, wake: make(chan struct{})} }

func (q *queue) changed() {
	close(q.wake)
	q.wake = make(chan struct{})
}

func (q *queue) push(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	it.id, it.published = strconv.Itoa(q.last), time.Now()
	q.items = append(q.items, it)
	q.changed()
}

// next waits for an item until ctx, the bus or the caller's handle ends.
func (q *queue) next(ctx context.Context, left <-chan struct{}) (*item, int, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-left:
			return nil, 0, bus.ErrClosed
		case <-q.b.closed:
			return nil, 0, bus.ErrClosed
		default:
		}
		q.mu.Lock()
		now, soonest := time.Now(), time.Time{}
		for _, it := range q.items {
			if !it.until.After(now) {
				it.delivered++
				it.until = now.Add(q.b.AckWait)
				n := it.delivered
				q.mu.Unlock()
				return it, n, nil
			}
			if soonest.IsZero() || it.until.Before(soonest) {
				soonest = it.until
			}
		}
		wake := q.wake
		q.mu.Unlock()
		var due <-chan time.Time
		var timer *time.Timer
		if !soonest.IsZero() {
			timer = time.NewTimer(time.Until(soonest))
			due = timer.C
		}
		select { // the loop checks the reason
		case <-wake:
		case <-due:
		case <-ctx.Done():
		case <-left:
		case <-q.b.closed:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

func (q *queue) ack(it *item) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = slices.DeleteFunc(q.items, func(have *item) bool { return have == it })
	return nil
}

func (q *queue) hold(it *item, d time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.until = time.Now().Add(d)
	q.changed()
	return nil
}

// handle is one caller's access to a queue.
type handle struct {
	*queue

	left  chan struct{}
	leave func()
}

func (b *Bus) handle(q *queue) (handle, error) {
	left := make(chan struct{})
	return handle{q, left, sync.OnceFunc(func() { close(left) })}, b.open()
}

// Close implements bus.Queue; the queue itself stays.
func (h handle) Close() error {
	h.leave()
	return nil
}

type delivery struct {
	q  *queue
	it *item
	n  int
}

func (d delivery) Turn() bus.Turn            { return d.it.turn }
func (d delivery) ID() string                { return d.it.id }
func (d delivery) Key() string               { return d.it.key }
func (d delivery) Tenant() string            { return d.it.tenant }
func (d delivery) Data() []byte              { return d.it.data }
func (d delivery) Header(n string) string    { return d.it.headers[n] }
func (d delivery) Delivered() int            { return d.n }
func (d delivery) PublishedAt() time.Time    { return d.it.published }
func (d delivery) Ack() error                { return d.q.ack(d.it) }
func (d delivery) Nak(t time.Duration) error { return d.q.hold(d.it, t) }
func (d delivery) InProgress() error         { return d.q.hold(d.it, d.q.b.AckWait) }

type turns struct{ handle }

// Next implements bus.TurnQueue.
func (t turns) Next(ctx context.Context) (bus.TurnDelivery, error) {
	it, n, err := t.next(ctx, t.left)
	if err != nil {
		return nil, err
	}
	return delivery{t.queue, it, n}, nil
}

// SetPrefetch implements bus.TurnQueue. The queue fetches nothing before Next asks for it.
func (turns) SetPrefetch(int) {}

type messages struct{ handle }

// Next implements bus.Queue.
func (m messages) Next(ctx context.Context) (bus.Message, error) {
	it, n, err := m.next(ctx, m.left)
	if err != nil {
		return nil, err
	}
	return delivery{m.queue, it, n}, nil
}
