package natsbus_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const mib = 1 << 20

// The feed may be retained for less time than NATS remembers message ids elsewhere, also if its retention was
// longer before.
func TestShortFeed(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	for _, age := range []time.Duration{72 * time.Hour, time.Minute, time.Hour} {
		b, err := natsbus.Open(t.Context(), nc, natsbus.Config{EventFeed: true, Limits: natsbus.Limits{EventsAge: age}})
		if err != nil {
			t.Fatalf("a feed of %s: %v", age, err)
		}
		if err := b.PublishEvents(t.Context(), state.DefaultTenant, newRun(), []bus.Event{{Seq: 1, Data: []byte("{}")}}); err != nil {
			t.Errorf("publish to a feed of %s: %v", age, err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		s, err := js.Stream(t.Context(), "TURNPIKE_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		if c := s.CachedInfo().Config; c.MaxAge != age || c.Duplicates > age {
			t.Errorf("a feed of %s is retained for %s and remembers ids for %s", age, c.MaxAge, c.Duplicates)
		}
		_ = b.Close()
	}
}

// A bus whose server cannot store is not ready, although it answers reads, and is ready again once there is
// space. Its probes leave nothing behind.
func TestNotReadyWithoutSpace(t *testing.T) {
	t.Parallel()
	s := testbed.NATSWith(t, func(o *server.Options) { o.JetStreamMaxStore = 4 * mib })
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	none := natsbus.Limits{Submit: -1, Control: -1, Dead: -1, Events: -1}
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Limits: none})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Ready(t.Context()); err != nil {
		t.Fatalf("Ready = %v", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	filler, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = js.Publish(t.Context(), "filler", make([]byte, 256<<10))
	}
	testbed.Eventually(t, "the bus is not ready", func() error {
		if err := b.Ready(t.Context()); err == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	if _, err := js.Stream(t.Context(), "TURNPIKE_TURNS"); err != nil {
		t.Errorf("the server does not answer reads either: %v", err)
	}
	if err := filler.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the bus is ready again", func() error { return b.Ready(t.Context()) })
	testbed.Eventually(t, "no probe is left", func() error {
		turns, err := js.Stream(t.Context(), "TURNPIKE_TURNS")
		if err != nil {
			return err
		}
		if n := turns.CachedInfo().State.Msgs; n != 0 {
			return fmt.Errorf("%d messages are left", n)
		}
		return nil
	})
}

// All streams but that of the turns are bounded: a full one rejects or discards, as its messages allow, and
// turns continue.
func TestFullStreamsLeaveTurnsAlone(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{EventFeed: true, Limits: natsbus.Limits{Submit: mib, Control: mib, Dead: mib, Events: mib}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	run, large := newRun(), strings.Repeat("x", 300<<10)
	for _, subject := range []string{"turnpike.submit.a", "turnpike.abort." + string(run)} {
		refused := 0
		for range 6 {
			if _, err := js.Publish(t.Context(), subject, []byte(large)); err != nil {
				refused++
			}
		}
		if refused != 3 {
			t.Errorf("%s: %d of six messages were refused, want three: each has 300 KiB, and the limit is 1 MiB", subject, refused)
		}
	}
	for n := range int64(6) {
		if err := b.DeadLetter(t.Context(), bus.DeadLetter{Kind: bus.DeadSubmission, Agent: "a", Cause: "large", Version: n, Data: large}); err != nil {
			t.Errorf("dead letter %d: %v", n, err)
		}
		if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, []bus.Event{{Seq: n + 1, Data: []byte(large)}}); err != nil {
			t.Errorf("event %d: %v", n, err)
		}
	}
	letters, err := b.DeadLetters(t.Context(), state.DefaultTenant, 0, 10)
	if err != nil || len(letters) != 3 || letters[2].Version != 5 {
		t.Errorf("there are %d dead letters, want the last three: %v", len(letters), err)
	}
	if last, err := b.LastEvent(t.Context(), state.DefaultTenant, run); err != nil || last != 6 {
		t.Errorf("the last event is %d, %v; want 6", last, err)
	}
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, "t"); err != nil {
		t.Errorf("a turn: %v", err)
	}
}

// limitOf returns the limit of a stream.
func limitOf(t *testing.T, js jetstream.JetStream, name string) int64 {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config.MaxBytes
}

// Streams without limits get them, and lower limits are raised; higher ones stay. Existing dead letters are not
// discarded.
func TestLimitsOfStreamsThatExist(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	openWith := func(submit, dead int64) []state.Finding {
		t.Helper()
		b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Limits: natsbus.Limits{Submit: submit, Control: -1, Dead: dead}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if dead < 0 {
			for range 5 {
				if err := b.DeadLetter(t.Context(), bus.DeadLetter{Kind: bus.DeadTurn, Data: strings.Repeat("x", 300<<10)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		return b.Check(t.Context())
	}
	openWith(-1, -1)
	for _, c := range []struct{ submit, want int64 }{{2 * mib, 2 * mib}, {3 * mib, 3 * mib}, {2 * mib, 3 * mib}} {
		findings := openWith(c.submit, mib)
		if have := limitOf(t, js, "TURNPIKE_SUBMIT"); have != c.want {
			t.Errorf("configured for %d, the limit of SUBMIT is %d, want %d", c.submit, have, c.want)
		}
		if have := limitOf(t, js, "TURNPIKE_DEAD"); have > 0 {
			t.Errorf("1.5 MB of dead letters were cut to %d bytes", have)
		}
		told := false
		for _, f := range findings {
			told = told || f.Name == "nats: stream TURNPIKE_DEAD" && !f.OK && !f.Fatal && strings.Contains(f.Remedy, "TURNPIKE_DEAD_MIB")
		}
		if !told {
			t.Errorf("no finding about the dead letters: %+v", findings)
		}
	}
	openWith(3*mib, 4*mib)
	if have := limitOf(t, js, "TURNPIKE_DEAD"); have != 4*mib {
		t.Errorf("with space for them the limit of dead letters is %d", have)
	}
	if have := limitOf(t, js, "TURNPIKE_CONTROL"); have > 0 {
		t.Errorf("CONTROL has an unconfigured limit of %d", have)
	}
	if have := limitOf(t, js, "TURNPIKE_TURNS"); have > 0 {
		t.Errorf("TURNS has a limit of %d", have)
	}
}

// A server with less storage than the limits reserve still works, and Check reports the stream without a limit.
func TestLimitsBeyondTheDisk(t *testing.T) {
	t.Parallel()
	// The storage equals one of the limits, which would leave nothing for other streams.
	s := testbed.NATSWith(t, func(o *server.Options) { o.JetStreamMaxStore = 512 * mib })
	nc, err := natsbus.Connect(s.ClientURL(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	findings := b.Check(t.Context())
	if err := check.Err(findings); err != nil {
		t.Error(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ANOTHER", Subjects: []string{"another"}}); err != nil {
		t.Errorf("no other stream can be created: %v", err)
	}
	for _, f := range findings {
		if f.Name == "nats: stream TURNPIKE_SUBMIT" && (f.OK || !strings.Contains(f.Remedy, "max_file_store")) {
			t.Errorf("SUBMIT has no limit: %+v", f)
		}
	}
}
