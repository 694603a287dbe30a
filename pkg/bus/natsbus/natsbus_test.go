package natsbus_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/bus/bustest"
	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func open(tb testing.TB, nc *nats.Conn, prefix string) *natsbus.Bus {
	tb.Helper()
	b, err := natsbus.Open(tb.Context(), nc, natsbus.Config{Prefix: prefix, EventFeed: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

// deployment is a bus with a service next to it that submits.
type deployment struct {
	*natsbus.Bus

	t      *testing.T
	nc     *nats.Conn
	prefix string
}

// spread is a deployment whose turns are on several streams.
type spread struct {
	deployment

	streams int
}

func (s spread) Streams() int { return s.streams }

func (s deployment) Submit(tenant, agent string, data []byte, headers map[string]string) {
	s.t.Helper()
	prefix := s.prefix
	if tenant != state.DefaultTenant {
		prefix += ".t." + tenant
	}
	m := nats.NewMsg(prefix + ".submit." + agent)
	m.Data = data
	for name, value := range headers {
		m.Header.Set(name, value)
	}
	js, err := jetstream.New(s.nc)
	if err == nil {
		err = s.OpenTenant(s.t.Context(), tenant)
	}
	if err == nil {
		_, err = js.PublishMsg(s.t.Context(), m)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func exercise(t *testing.T, connect func(name string) (*nats.Conn, error)) {
	t.Helper()
	bustest.Exercise(t, func(t *testing.T) bus.Bus {
		t.Helper()
		nc, err := connect(t.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		prefix := "t-" + strings.ToLower(ulid.Make().String())
		b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: prefix, AckWait: bustest.AckWait, EventFeed: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return deployment{b, t, nc, prefix}
	})
}

func TestBusInProcess(t *testing.T) {
	t.Parallel()
	server := testbed.NATSServer(t)
	exercise(t, func(name string) (*nats.Conn, error) { return server.Conn(name) })
}

func TestBusOverTCP(t *testing.T) {
	t.Parallel()
	server := testbed.NATSServer(t)
	exercise(t, func(name string) (*nats.Conn, error) { return natsbus.Connect(server.URL(), name) })
}

// A stream that would lose turns is refused with the setting and the remedy.
func TestOpenRefusesWrongSettings(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "TURNPIKE_TURNS", Subjects: []string{"turnpike.turn.>"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxAge: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	_, err = natsbus.Open(t.Context(), nc, natsbus.Config{})
	if err == nil || !strings.Contains(err.Error(), "max age") || !strings.Contains(err.Error(), "nats stream edit TURNPIKE_TURNS") {
		t.Fatalf("Open = %v, want the setting and the remedy", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	b := open(t, testbed.NATS(t), "")
	if err := check.Err(b.Check(t.Context())); err != nil {
		t.Error(err)
	}
}

// The check of a server with small messages warns of that, and says what to do.
func TestCheckOfSmallPayload(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int32]bool{1 << 20: true, 1<<20 - 1: false} {
		s := testbed.NATSWith(t, func(o *server.Options) { o.MaxPayload = limit })
		nc, err := natsbus.Connect(s.ClientURL(), "test")
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, f := range open(t, nc, "").Check(t.Context()) {
			if f.OK != (f.Remedy == "") || f.Fatal && !f.OK {
				t.Errorf("%d bytes: %+v", limit, f)
			}
			if f.Name == "nats: max_payload" && f.OK != want {
				t.Errorf("%d bytes: %+v, want OK %t", limit, f, want)
			}
		}
	}
}

// A malformed turn message becomes a dead letter and blocks nothing.
func TestMalformedTurn(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"", "{", `{"run_id":"x","version":1}`, `{"run_id":"run_01JD3X9K3W8Q4V5N6M7P8R9S0T","version":-1}`} {
		if _, err := js.Publish(t.Context(), "turnpike.turn.normal.0", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	good := state.RunID(state.RunPrefix + ulid.Make().String())
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: good, Version: 1, Priority: state.Normal}, "good"); err != nil {
		t.Fatal(err)
	}
	q, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	d, err := q.Next(t.Context())
	if err != nil || d.Turn().Run != good {
		t.Fatalf("Next = %v, %v", d, err)
	}
	letters, err := b.DeadLetters(t.Context(), state.DefaultTenant, 0, 10)
	if err != nil || len(letters) != 4 {
		t.Fatalf("DeadLetters = %+v, %v; want 4", letters, err)
	}
}

// Messages with the same number in different streams of turns become a dead letter each.
func TestMalformedTurnsOfSeveralStreams(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b, js := spreadOver(t, nc, 3), jet(t, nc)
	subjects := []string{"turnpike.turn.normal.0", "turnpike.turns.2.normal.0", "turnpike.turns.3.normal.0"}
	for _, subject := range subjects {
		ack, err := js.Publish(t.Context(), subject, []byte("{"))
		if err != nil || ack.Sequence != 1 {
			t.Fatalf("publish on %s: %+v, %v; want the number 1", subject, ack, err)
		}
		// A queue takes the messages of a stream in their order.
		if _, err := js.Publish(t.Context(), subject, fmt.Appendf(nil, `{"run_id":%q,"version":1}`, newRun())); err != nil {
			t.Fatal(err)
		}
	}
	q, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	for range subjects {
		if _, err := q.Next(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	if letters, err := b.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil || len(letters) != len(subjects) {
		t.Fatalf("DeadLetters = %+v, %v; want %d", letters, err, len(subjects))
	}
}

// JetStream answers a message on any reply subject that its sender names. Such an answer makes no dead letter, neither
// as a turn nor as a submission or an abort, and blocks nothing.
func TestAnswersAreDropped(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	log := &strings.Builder{} // a handler writes one record at a time
	b := tenantBus(t, nc, natsbus.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}, "evil", "acme")
	js := jet(t, nc)
	for stream, subject := range map[string]string{
		"TURNPIKE_TURNS": "turnpike.turn.normal.0", "TURNPIKE_SUBMIT": "turnpike.submit.hello", "TURNPIKE_SUBMIT_acme": "turnpike.t.acme.submit.hello",
		"TURNPIKE_CONTROL": "turnpike.abort." + string(newRun()), "TURNPIKE_CONTROL_acme": "turnpike.t.acme.abort." + string(newRun()),
	} {
		for _, expected := range []string{"", "999"} { // stored and refused
			m := nats.NewMsg("turnpike.t.evil.submit.hello")
			m.Reply = subject
			if expected != "" {
				m.Header.Set(jetstream.ExpectedLastSeqHeader, expected)
			}
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, func() bool {
			s, err := js.Stream(t.Context(), stream)
			return err == nil && s.CachedInfo().State.LastSeq == 2
		})
	}
	turns, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	good := newRun()
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: good, Version: 1, Priority: state.Normal}, "good"); err != nil {
		t.Fatal(err)
	}
	if d, err := turns.Next(soon(t)); err != nil || d.Turn().Run != good {
		t.Fatalf("Next = %v, %v", d, err)
	}
	// What only resembles an answer is a message.
	for _, body := range []string{`{"stream":true,"input":"x"}`, `{"stream":"turns","input":"x"}`, `{"error":"x"}`} {
		if _, err := js.Publish(t.Context(), "turnpike.submit.hello", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	submissions, bodies := submissionsOf(t, b), map[string]int{}
	for range 8 { // 5 that evil has stored, and these
		bodies[string(takeMessage(t, submissions).Data())]++
	}
	if bodies[""] != 5 || len(bodies) != 4 {
		t.Errorf("the submissions are %v", bodies)
	}
	aborts, err := b.AbortRequests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.PublishAbort(t.Context(), bus.Abort{Run: good}); err != nil {
		t.Fatal(err)
	}
	if m := takeMessage(t, aborts); m.Key() != string(good) {
		t.Errorf("the abort is one of %s: %s", m.Key(), m.Data())
	}
	for _, tenant := range []string{state.DefaultTenant, "acme", "evil"} {
		if letters, err := b.DeadLetters(t.Context(), tenant, 0, 10); err != nil || len(letters) > 0 {
			t.Errorf("dead letters of %s: %+v, %v; want none", tenant, letters, err)
		}
	}
	for _, want := range []string{"turnpike.turn.normal.0", "TURNPIKE_SUBMIT_evil", "turnpike nats account"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not name %q", want)
		}
	}
}

func BenchmarkTurn(b *testing.B) {
	x := open(b, testbed.NATS(b), "")
	q, err := x.Turns(b.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		b.Fatal(err)
	}
	run := state.RunID(state.RunPrefix + ulid.Make().String())
	var version int64
	for b.Loop() {
		version++
		if err := x.PublishTurn(b.Context(), bus.Turn{Run: run, Version: version, Priority: state.Normal}, fmt.Sprint(version)); err != nil {
			b.Fatal(err)
		}
		d, err := q.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Ack(); err != nil {
			b.Fatal(err)
		}
	}
}
