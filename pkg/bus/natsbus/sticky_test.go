package natsbus_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A turn whose worker's queue is gone goes to its lane, and later ones to the queue again: any process creates the
// stream, and the worker its consumer.
func TestStickyQueueIsLost(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	own, err := b.StickyTurns(t.Context(), "w1")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	lane, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.High})
	if err != nil {
		t.Fatal(err)
	}
	defer lane.Close()
	if err := jet(t, nc).DeleteStream(t.Context(), "TURNPIKE_STICKY"); err != nil {
		t.Fatal(err)
	}
	turn := bus.Turn{Run: newRun(), Version: 2, Priority: state.High, Sticky: "w1"}
	if err := b.PublishTurn(t.Context(), turn, "1"); err != nil {
		t.Fatal(err)
	}
	d, err := lane.Next(soon(t))
	if err != nil {
		t.Fatalf("the turn is not in its lane: %v", err)
	}
	if got := d.Turn(); got.Run != turn.Run || got.Sticky != "" {
		t.Errorf("the lane has %+v", got)
	}
	if err := d.Ack(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		_, err := jet(t, nc).Consumer(t.Context(), "TURNPIKE_STICKY", "w1")
		return err == nil
	})
	turn.Run = newRun()
	if err := b.PublishTurn(t.Context(), turn, "2"); err != nil {
		t.Fatal(err)
	}
	if d, err = own.Next(soon(t)); err != nil || d.Turn().Run != turn.Run || d.Turn().Sticky != "w1" {
		t.Fatalf("Next = %v, %v; want the turn in the queue of its worker", d, err)
	}
}

// A server deletes the consumer of a worker that has requested nothing for an hour. A worker that was only paused
// creates it again, and gets what was published meanwhile.
func TestStickyConsumerIsLost(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	own, err := b.StickyTurns(t.Context(), "w1")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	js := jet(t, nc)
	if err := js.DeleteConsumer(t.Context(), "TURNPIKE_STICKY", "w1"); err != nil {
		t.Fatal(err)
	}
	turn := bus.Turn{Run: newRun(), Version: 2, Priority: state.Normal, Sticky: "w1"}
	if err := b.PublishTurn(t.Context(), turn, "1"); err != nil {
		t.Fatal(err)
	}
	if d, err := own.Next(soon(t)); err != nil || d.Turn().Run != turn.Run {
		t.Fatalf("Next = %v, %v; want the turn", d, err)
	}
}

// Two workers whose names do not fit a subject have queues of their own, and the stream has one consumer each.
func TestStickyQueuesOfOddNames(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	long := make([]byte, 300)
	for i := range long {
		long[i] = 'w'
	}
	names := []string{"host.example:8080/1", string(long), string(long) + "2", "ä b"}
	queues := map[string]bus.TurnQueue{}
	for _, name := range names {
		own, err := b.StickyTurns(t.Context(), name)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		defer own.Close()
		queues[name] = own
	}
	for i, name := range names {
		if err := b.PublishTurn(t.Context(), bus.Turn{Run: newRun(), Version: int64(i + 1), Priority: state.Low, Sticky: name}, name); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range names {
		if d, err := queues[name].Next(soon(t)); err != nil || d.Turn().Version != int64(i+1) || d.Turn().Sticky != name {
			t.Errorf("%q: Next = %v, %v; want its own turn", name, d, err)
		}
	}
	stream, err := jet(t, nc).Stream(t.Context(), "TURNPIKE_STICKY")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Consumers; n != len(names) {
		t.Errorf("%d consumers, want %d", n, len(names))
	}
	if have := stream.CachedInfo().Config; have.Retention != jetstream.WorkQueuePolicy || have.MaxAge == 0 {
		t.Errorf("the stream keeps messages %v for %v", have.Retention, have.MaxAge)
	}
}
