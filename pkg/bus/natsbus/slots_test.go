package natsbus_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

func pendingOf(t *testing.T, js jetstream.JetStream, stream string) int {
	t.Helper()
	c, err := js.Consumer(t.Context(), stream, "workers-normal")
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().Config.MaxAckPending
}

// As many messages may be outstanding as all workers have slots, unless a setting overrides it.
func TestMaxAckPending(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js := jet(t, nc)
	b := spreadOver(t, nc, 2)
	for _, stream := range []string{"TURNPIKE_TURNS", "TURNPIKE_TURNS_2"} {
		if n := pendingOf(t, js, stream); n != 50_000 {
			t.Errorf("max ack pending of %s is %d at first", stream, n)
		}
	}
	stop, err := b.Heartbeats(t.Context(), func(bus.Heartbeat) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b.SendHeartbeat(bus.Heartbeat{Worker: "a", Slots: 40_000})
	b.SendHeartbeat(bus.Heartbeat{Worker: "b", Slots: 60_000})
	for _, stream := range []string{"TURNPIKE_TURNS", "TURNPIKE_TURNS_2"} {
		eventually(t, func() bool { return pendingOf(t, js, stream) >= 125_000 })
	}
	exact, err := natsbus.Open(t.Context(), nc, natsbus.Config{MaxAckPending: 7000})
	if err != nil {
		t.Fatal(err)
	}
	defer exact.Close()
	if n := pendingOf(t, js, "TURNPIKE_TURNS_2"); n != 7000 {
		t.Errorf("max ack pending is %d, want the configured 7000", n)
	}
}

// refusals is a log that receives when consumers were not updated for more slots.
type refusals chan struct{}

func (r refusals) Write(record []byte) (int, error) {
	if bytes.Contains(record, []byte("max ack pending of NATS consumers not raised")) {
		select {
		case r <- struct{}{}:
		default:
		}
	}
	return len(record), nil
}

// If consumers cannot be updated for the slots of new workers, the process tries again without another new worker.
func TestMaxAckPendingAfterARefusal(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js := jet(t, nc)
	refused := make(refusals, 1)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Logger: slog.New(slog.NewTextHandler(refused, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const stream, consumer = "TURNPIKE_TURNS", "workers-normal"
	c, err := js.Consumer(t.Context(), stream, consumer)
	if err != nil {
		t.Fatal(err)
	}
	good := c.CachedInfo().Config
	bad := good
	bad.MaxWaiting = 2 // no process uses such a consumer
	if err := js.DeleteConsumer(t.Context(), stream, consumer); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), stream, bad); err != nil {
		t.Fatal(err)
	}
	stop, err := b.Heartbeats(t.Context(), func(bus.Heartbeat) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b.SendHeartbeat(bus.Heartbeat{Worker: "a", Slots: 100_000})
	select {
	case <-refused:
	case <-soon(t).Done():
		t.Fatal("the consumers were updated although one is wrong")
	}
	if err := js.DeleteConsumer(t.Context(), stream, consumer); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), stream, good); err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		t.Fatal(err) // the next try may have created it already
	}
	eventually(t, func() bool { return pendingOf(t, js, stream) >= 125_000 })
}

// A process that finds the limits raised by another one asks about a single consumer.
func TestMaxAckPendingIsRaisedOnce(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	one, two := spreadOver(t, nc, 4), spreadOver(t, nc, 4)
	requests, err := nc.SubscribeSync("$JS.API.CONSUMER.INFO.>")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = requests.Unsubscribe() }()
	raise := func(b *natsbus.Bus) int {
		t.Helper()
		before, _, err := requests.Pending()
		natsbus.RaisePending(t.Context(), b, 100_000)
		err = errors.Join(err, nc.Flush())
		after, _, pendingErr := requests.Pending()
		if err = errors.Join(err, pendingErr); err != nil {
			t.Fatal(err)
		}
		return after - before
	}
	if n := raise(one); n < 24 {
		t.Errorf("%d requests to raise 24 consumers", n)
	}
	if n := raise(two); n > 2 { // the process itself may have done it at the same time
		t.Errorf("%d requests about consumers that another process has raised", n)
	}
	for _, stream := range []string{"TURNPIKE_TURNS", "TURNPIKE_TURNS_2", "TURNPIKE_TURNS_3", "TURNPIKE_TURNS_4"} {
		if n := pendingOf(t, jet(t, nc), stream); n < 125_000 {
			t.Errorf("max ack pending of %s is %d", stream, n)
		}
	}
}
