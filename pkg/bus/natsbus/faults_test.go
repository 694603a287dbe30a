package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func newRun() state.RunID { return state.RunID(state.RunPrefix + ulid.Make().String()) }

func jet(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A message that arrives after the worker's slots were taken goes to another worker at once, not after the ack
// wait (I6).
func TestAbandonedPullGivesBack(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{AckWait: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	gone, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := gone.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Next = %v, want the deadline", err)
	}
	run := newRun()
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, "1"); err != nil {
		t.Fatal(err)
	}
	other, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	d, err := other.Next(soon(t))
	if err != nil || d.Turn().Run != run {
		t.Fatalf("Next = %v, %v", d, err)
	}
}

// Prefetched messages that a worker has no use for go to another at once, and so do later ones: of one without free
// slots, of one with fewer, and of one that stops (I6).
func TestFetchedAheadGoesBack(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	for name, c := range map[string]struct {
		kept   int
		settle func(*natsbus.Bus, bus.TurnQueue) error
	}{
		"no-slots":    {0, func(_ *natsbus.Bus, q bus.TurnQueue) error { q.SetPrefetch(0); return nil }},
		"fewer-slots": {1, func(_ *natsbus.Bus, q bus.TurnQueue) error { q.SetPrefetch(1); return nil }},
		"drains":      {0, func(_ *natsbus.Bus, q bus.TurnQueue) error { return q.Close() }},
		"stops":       {0, func(b *natsbus.Bus, _ bus.TurnQueue) error { return b.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var queues [2]bus.TurnQueue
			var buses [2]*natsbus.Bus
			for i := range queues {
				b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: name, AckWait: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = b.Close() })
				buses[i] = b
				if queues[i], err = b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal}); err != nil {
					t.Fatal(err)
				}
			}
			first, other := queues[0], queues[1]
			seen := map[state.RunID]bool{}
			take := func(q bus.TurnQueue) {
				t.Helper()
				d, err := q.Next(soon(t))
				if err != nil {
					t.Fatalf("Next: %v", err)
				}
				seen[d.Turn().Run] = true
				if err := d.Ack(); err != nil {
					t.Fatal(err)
				}
			}
			first.SetPrefetch(8)
			for i := range 6 {
				if err := buses[1].PublishTurn(t.Context(), bus.Turn{Run: newRun(), Version: 1, Priority: state.Normal}, fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
			take(first)
			take(first)
			eventually(t, func() bool { return natsbus.Prefetched(first) == 4 })
			if err := c.settle(buses[0], first); err != nil {
				t.Fatal(err)
			}
			for range 4 - c.kept {
				take(other)
			}
			for range c.kept {
				take(first)
			}
			if len(seen) != 6 {
				t.Errorf("%d runs were delivered, want 6", len(seen))
			}
		})
	}
}

// The loss of the whole queue loses nothing: publishers and consumers recreate missing streams.
func TestStreamsAreRestored(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	q, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := q.Next(soon(t))
		got <- err
	}()
	js := jet(t, nc)
	for _, name := range []string{"TURNPIKE_TURNS", "TURNPIKE_EVENTS", "TURNPIKE_DEAD"} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	run := newRun()
	// A message in flight while the stream is created may get no answer.
	testbed.Eventually(t, "PublishEvents", func() error {
		return b.PublishEvents(t.Context(), state.DefaultTenant, run, []bus.Event{{Seq: 1, Data: []byte("{}")}})
	})
	testbed.Eventually(t, "PublishTurn", func() error {
		return b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, "1")
	})
	if err := <-got; err != nil {
		t.Fatalf("Next: %v", err)
	}
}

func TestCloseLeavesTheConnection(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if !nc.IsConnected() || nc.Flush() != nil {
		t.Error("Close closed the connection of its owner")
	}
}

// Next ends when the owner of the connection closes it.
func TestClosedConnectionEndsNext(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	q, err := open(t, nc, "").Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := q.Next(soon(t))
		got <- err
	}()
	nc.Close()
	if err := <-got; !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Next = %v, want %v", err, bus.ErrClosed)
	}
}

// The feed has each event once, in order, however often events are published (I9).
func TestFeedHasEachEventOnce(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	run := newRun()
	var events []bus.Event
	for i := range int64(20) {
		events = append(events, bus.Event{Seq: i + 1, Data: fmt.Appendf(nil, `{"seq":%d}`, i+1)})
	}
	for _, part := range [][]bus.Event{events[:5], events[:12], events[3:], events} {
		if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, part); err != nil {
			t.Fatalf("PublishEvents: %v", err)
		}
	}
	s, err := jet(t, nc).Stream(t.Context(), "TURNPIKE_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 20 {
		t.Fatalf("%d events stored, want 20", n)
	}
	for i := range uint64(20) {
		m, err := s.GetMsg(t.Context(), i+1)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(i + 1)
		if m.Subject != "turnpike.events."+string(run) || m.Header.Get("Turnpike-Seq") != want || m.Header.Get("Nats-Msg-Id") != string(run)+":"+want {
			t.Errorf("message %s is %s %v", want, m.Subject, m.Header)
		}
	}
}

// An event that the server rejects does not stop its run.
func TestOversizedEventIsLeftOut(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	run := newRun()
	events := []bus.Event{{Seq: 1, Data: []byte("1")}, {Seq: 2, Data: make([]byte, nc.MaxPayload())}, {Seq: 3, Data: []byte("3")}}
	if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, events); err != nil {
		t.Fatalf("PublishEvents: %v", err)
	}
	s, err := jet(t, nc).Stream(t.Context(), "TURNPIKE_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d events stored, want 2", n)
	}
	if err := b.DeadLetter(t.Context(), bus.DeadLetter{Run: run, Cause: "large", Data: strings.Repeat("\x01", int(nc.MaxPayload()))}); err != nil {
		t.Errorf("DeadLetter: %v", err)
	}
}

// A server closes a connection on which a subject is too long. A submitter cannot cause that for a worker
// through a reply subject.
func TestReplySubjectIsBounded(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	lost := make(chan error, 1)
	nc.SetDisconnectErrHandler(func(_ *nats.Conn, err error) { lost <- err })
	b := open(t, nc, "")
	if err := b.Reply(t.Context(), state.DefaultTenant, strings.Repeat("a", 5000), []byte("refused")); err != nil {
		t.Errorf("Reply = %v: a run would hang on it", err)
	}
	flushed := nc.Flush()
	select {
	case err := <-lost:
		t.Errorf("the connection is lost: %v", err)
	default:
		if flushed != nil {
			t.Errorf("Flush = %v", flushed)
		}
	}
}

// A reply that is larger than NATS accepts is dropped: no later try would send it. Errors that may end are returned.
func TestReplyIsBounded(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	sub, err := nc.SubscribeSync("answers.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, excess := range []int64{1, 0} {
		if err := b.Reply(t.Context(), state.DefaultTenant, "answers.here", make([]byte, nc.MaxPayload()+excess)); err != nil {
			t.Errorf("Reply of %d bytes too many = %v: a run would hang on it", excess, err)
		}
	}
	if m, err := sub.NextMsgWithContext(soon(t)); err != nil || int64(len(m.Data)) != nc.MaxPayload() {
		t.Errorf("received %v, want the reply that fits", err)
	}
	nc.Close()
	if err := b.Reply(t.Context(), state.DefaultTenant, "answers.here", []byte("later")); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Reply without a connection = %v", err)
	}
}

// A submitter chooses the reply subject, but cannot use it to send commands.
func TestReplySubjects(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	sub, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	refused := []string{
		"", "a b", "a.*", "a.>", ".a", "a..b", "$JS.API.STREAM.DELETE.TURNPIKE_TURNS", "$SYS.x",
		"turnpike.abort.run_x", "turnpike.turn.normal.1", "turnpike.submit.a", "turnpike.tool.refund", "turnpike.presence.w",
		"turnpike.turns.2.normal.1", "turnpike.sticky.w1.normal", "turnpike.layout", "turnpike.layout.changed",
	}
	for _, subject := range refused {
		if err := b.Reply(t.Context(), state.DefaultTenant, subject, []byte("refused")); err != nil {
			t.Errorf("Reply to %q = %v: a run would hang on it", subject, err)
		}
	}
	if err := b.Reply(t.Context(), state.DefaultTenant, "answers.here", []byte("taken")); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsgWithContext(soon(t))
	if err != nil || m.Subject != "answers.here" || string(m.Data) != "taken" {
		t.Fatalf("received %v, %v", m, err)
	}
}

// max waiting cannot be changed once a consumer exists, and starves workers.
func TestOpenRefusesWrongConsumer(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	open(t, nc, "")
	js := jet(t, nc)
	if err := js.DeleteConsumer(t.Context(), "TURNPIKE_TURNS", "workers-low"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), "TURNPIKE_TURNS", jetstream.ConsumerConfig{
		Durable: "workers-low", FilterSubject: "turnpike.turn.low.>", AckPolicy: jetstream.AckExplicitPolicy, MaxWaiting: 2,
	}); err != nil {
		t.Fatal(err)
	}
	_, err := natsbus.Open(t.Context(), nc, natsbus.Config{})
	if err == nil || !strings.Contains(err.Error(), "max waiting is 2") || !strings.Contains(err.Error(), "nats consumer rm TURNPIKE_TURNS workers-low") {
		t.Fatalf("Open = %v, want the setting and the remedy", err)
	}
}

// Settings that can be changed are updated to what this process needs.
func TestOpenMendsConsumer(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	open(t, nc, "")
	js := jet(t, nc)
	c, err := js.Consumer(t.Context(), "TURNPIKE_TURNS", "workers-high")
	if err != nil {
		t.Fatal(err)
	}
	config := c.CachedInfo().Config
	config.MaxAckPending, config.AckWait = 7, time.Minute
	if _, err := js.UpdateConsumer(t.Context(), "TURNPIKE_TURNS", config); err != nil {
		t.Fatal(err)
	}
	open(t, nc, "")
	if c, err = js.Consumer(t.Context(), "TURNPIKE_TURNS", "workers-high"); err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config; got.MaxAckPending != 50_000 || got.AckWait != 30*time.Second || got.MaxDeliver != -1 {
		t.Errorf("max ack pending %d, ack wait %v, max deliver %d", got.MaxAckPending, got.AckWait, got.MaxDeliver)
	}
}

func TestOpenRefusesBadConfig(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	_, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "a.>", Domain: "of the hub", Replicas: 9, AckWait: time.Nanosecond})
	for _, want := range []string{"prefix", "TURNPIKE_NATS_DOMAIN", "replicas", "ack wait"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want %q in it", err, want)
		}
	}
}
