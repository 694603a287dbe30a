package natsbus

import (
	"context"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// Prefetched returns the number of messages that a queue has received for later callers.
func Prefetched(q bus.TurnQueue) int {
	p := q.(turnQueue).puller //nolint:forcetypeassert // tests pass queues of this package
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// ForgetReady makes the next calls of Ready and IntakeReady check the streams instead of repeating an answer.
func ForgetReady(b *Bus) {
	for _, w := range []*writes{&b.turnWrites, &b.intakeWrites} {
		w.mu.Lock()
		w.until = time.Time{}
		w.mu.Unlock()
	}
}

// Drop makes a queue take messages from none of its sources, and returns the number of those that it still knows.
func Drop(q bus.TurnQueue) (int, error) {
	p := q.(turnQueue).puller //nolint:forcetypeassert // tests pass queues of this package
	err := p.serve(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sources) + len(p.numbers), err
}

// Listens reports whether the connection tells a queue of its status.
func Listens(q bus.TurnQueue) bool {
	p := q.(turnQueue).puller //nolint:forcetypeassert // tests pass queues of this package
	for {
		select {
		case _, open := <-p.status:
			if !open {
				return false
			}
		default:
			return true
		}
	}
}

// Left returns the number of streams without messages that a queue leaves to other workers.
func Left(q bus.TurnQueue) int {
	p := q.(turnQueue).puller //nolint:forcetypeassert // tests pass queues of this package
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.left)
}

// RaisePending raises the limits of the consumers as if a worker with that many slots had sent its first heartbeat.
func RaisePending(ctx context.Context, b *Bus, slots int) {
	b.slots.hear(bus.Heartbeat{Worker: "large", Slots: slots}, time.Now())
	b.raisePending(ctx)
}
