package streamin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/streamin"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// fetch returns as many messages of a consumer, which must have them.
func fetch(t *testing.T, c service.StreamConsumer, most int) (all []service.StreamMessage) {
	t.Helper()
	if err := c.Fetch(t.Context(), most, func(m service.StreamMessage) { all = append(all, m) }); err != nil || len(all) != most {
		t.Fatalf("fetched %d messages, %v, want %d", len(all), err, most)
	}
	return all
}

// A message that a gateway has fetched has its body as long as the stream has it. A stream that was deleted and created
// again has other messages with the same numbers, and neither their bodies nor their ids are those of the first ones.
func TestBodies(t *testing.T) {
	t.Parallel()
	for _, domain := range []string{"", "hub"} {
		nc, err := nats.Connect(testbed.NATSWith(t, func(o *server.Options) { o.JetStreamDomain = domain }).ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		streams, err := streamin.New(nc, domain, "turnpike")
		if err != nil {
			t.Fatal(err)
		}
		var consumers []string // of the stream, each time that it was created
		create := func(bodies ...string) (jetstream.Stream, service.StreamConsumer) {
			t.Helper()
			stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}, Storage: jetstream.MemoryStorage})
			if err != nil {
				t.Fatal(err)
			}
			for _, body := range bodies {
				if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "orders.new", Header: nats.Header{"X": {"y", "z"}}, Data: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
			c, err := streams.Open(t.Context(), service.ConsumerSpec{Stream: "ORDERS", Name: "trigger"})
			if err != nil {
				t.Fatal(err)
			}
			names := stream.ConsumerNames(t.Context())
			for name := range names.Name() {
				consumers = append(consumers, name)
			}
			if names.Err() != nil {
				t.Fatal(names.Err())
			}
			return stream, c
		}
		lacks := func(m service.StreamMessage, when string) {
			t.Helper()
			if body, err := m.Body(t.Context()); !errors.Is(err, service.ErrNoMessage) {
				t.Errorf("%s a message has the body %q, %v, want %v", when, body, err, service.ErrNoMessage)
			}
		}

		stream, c := create("first", "", "third")
		all := fetch(t, c, 3)
		for i, want := range []string{"first", "", "third"} {
			m := all[i]
			if body, err := m.Body(t.Context()); err != nil || string(body) != want || m.Size() != int64(len(want)) {
				t.Errorf("message %d has the body %q of %d bytes, %v, want %q", i, body, m.Size(), err, want)
			}
			if h := m.Headers(); len(h) != 1 || len(h["X"]) != 2 || m.Subject() != "orders.new" || m.Delivered() != 1 {
				t.Errorf("message %d on %s has the headers %v in delivery %d", i, m.Subject(), h, m.Delivered())
			}
		}
		if err := stream.DeleteMsg(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		lacks(all[1], "after its deletion")
		if err := js.DeleteStream(t.Context(), "ORDERS"); err != nil {
			t.Fatal(err)
		}
		lacks(all[0], "after the deletion of its stream")
		_, c = create("another")
		lacks(all[0], "after its stream was created again")
		lacks(all[2], "after its stream was created again")
		again := fetch(t, c, 1)[0]
		if body, err := again.Body(t.Context()); err != nil || string(body) != "another" || again.ID() == all[0].ID() {
			t.Errorf("the message %s of the new stream has the body %q, %v; the first was %s", again.ID(), body, err, all[0].ID())
		}
		if len(consumers) != 2 || consumers[0] == consumers[1] { // acknowledgements have the name of the consumer
			t.Errorf("the streams have the consumers %q: acknowledgements of first messages reach other ones", consumers)
		}
	}
}

// A consumer delivers what its trigger asks for, and belongs to the stream in which it was made: one that was created
// again under the same name has no consumer yet. A consumer that is gone is removed.
func TestConsumers(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := streamin.New(nc, "", "turnpike")
	if err != nil {
		t.Fatal(err)
	}
	config := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}, Storage: jetstream.MemoryStorage}
	stream, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"orders.a", "orders.b", "orders.b"} {
		if _, err := js.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	last, err := stream.GetMsg(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec    service.ConsumerSpec
		pending int64
		most    int // messages that are not acknowledged
	}{
		"all":      {service.ConsumerSpec{}, 3, 1000},
		"subjects": {service.ConsumerSpec{Subjects: []string{"orders.b"}}, 2, 1000},
		"from":     {service.ConsumerSpec{From: last.Time}, 1, 1000},
		"in_order": {service.ConsumerSpec{InOrder: true}, 3, 1},
	} {
		c.spec.Stream, c.spec.Name = "ORDERS", name
		consumer, err := streams.Open(t.Context(), c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if pending, inFlight, err := streams.Pending(t.Context(), "ORDERS", name); pending != c.pending || inFlight != 0 || err != nil {
			t.Errorf("%s: %d messages pending and %d in flight, %v, want %d and none", name, pending, inFlight, err, c.pending)
		}
		fetch(t, consumer, 1)
		if pending, inFlight, err := streams.Pending(t.Context(), "ORDERS", name); pending != c.pending-1 || inFlight != 1 || err != nil {
			t.Errorf("%s: %d messages pending and %d in flight, %v, want %d and 1", name, pending, inFlight, err, c.pending-1)
		}
	}
	consumers := func() (names []string, most map[string]int) {
		t.Helper()
		most = map[string]int{}
		all := stream.ListConsumers(t.Context())
		for info := range all.Info() {
			name := info.Name[:strings.LastIndexByte(info.Name, '_')]
			names, most[name] = append(names, name), info.Config.MaxAckPending
		}
		if all.Err() != nil {
			t.Fatal(all.Err())
		}
		slices.Sort(names)
		return names, most
	}
	if names, most := consumers(); most["in_order"] != 1 || most["all"] != 1000 || !slices.Equal(names, []string{"all", "from", "in_order", "subjects"}) {
		t.Errorf("the stream has the consumers %q with at most %v messages each", names, most)
	}
	for range 2 { // the second time there is none
		if err := streams.Remove(t.Context(), "ORDERS", "from"); err != nil {
			t.Error(err)
		}
	}
	if names, _ := consumers(); !slices.Equal(names, []string{"all", "in_order", "subjects"}) {
		t.Errorf("after a removal the stream has the consumers %q", names)
	}
	if err := js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	if err := streams.Remove(t.Context(), "ORDERS", "all"); err != nil {
		t.Errorf("the removal of a consumer whose stream is gone: %v", err)
	}
	if _, err := streams.Open(t.Context(), service.ConsumerSpec{Stream: "ORDERS", Name: "all"}); !errors.Is(err, service.ErrNoStream) {
		t.Errorf("a consumer of a stream that is gone: %v", err)
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, _, err := streams.Pending(t.Context(), "ORDERS", "all"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer of the first stream in the second: %v", err)
	}
}
