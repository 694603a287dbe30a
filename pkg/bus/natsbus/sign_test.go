package natsbus_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	oldKey = "0123456789abcdef-old"
	newKey = "0123456789abcdef-new"
	run    = state.RunID("run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	other  = state.RunID("run_01ARZ3NDEKTSV4RRFFQ69G5FAW")
)

func openWith(t *testing.T, nc *nats.Conn, keys string) *natsbus.Bus {
	t.Helper()
	k, err := natsbus.ParseKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: "signed", EventFeed: true, Keys: k})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// capture records the messages on a subject, as an attacker could.
func capture(t *testing.T, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

func next(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsgWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// forgeries sends variants of a valid message: without a signature, with that of another text or subject, with
// a truncated one, and an exact replay.
func forgeries(t *testing.T, nc *nats.Conn, m *nats.Msg, elsewhere string) {
	t.Helper()
	send := func(subject, data string, mac ...string) {
		f := &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{}}
		for _, code := range mac {
			f.Header.Set("Turnpike-MAC", code)
		}
		if err := nc.PublishMsg(f); err != nil {
			t.Fatal(err)
		}
	}
	code := m.Header.Get("Turnpike-MAC")
	if strings.Count(code, ".") != 2 {
		t.Fatalf("the signature is %q", code)
	}
	first, _, _ := strings.Cut(code, ".")
	send(m.Subject, "forged")
	send(m.Subject, "forged", code)
	send(m.Subject, string(m.Data), "")
	send(m.Subject, string(m.Data), code[:len(code)-2])
	send(m.Subject, string(m.Data), "x"+code)
	send(m.Subject, string(m.Data), first+".zzz."+code[strings.LastIndexByte(code, '.')+1:])
	send(m.Subject, string(m.Data), "...", "a.b.c.d")
	send(m.Subject, string(m.Data), code) // a replay
	send(elsewhere, string(m.Data), code)
}

// Live events that no process of the deployment sent are not delivered, however much they copy of valid ones;
// those signed with an older valid key are.
func TestForgedLiveEvents(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	sender, reader := openWith(t, nc, newKey+","+oldKey), openWith(t, nc, oldKey+"\n"+newKey+"\n")
	stranger := openWith(t, nc, "0123456789abcdef-strange")
	heard := make(chan string, 100)
	for _, r := range []state.RunID{run, other} {
		stop, err := reader.Watch(t.Context(), r, func(n bus.Notice) { heard <- string(n.Live) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	passing := capture(t, nc, "signed.live.*")
	sender.PublishLive(run, []byte("one"))
	m := next(t, passing)
	forgeries(t, nc, m, "signed.live."+string(other))
	stranger.PublishLive(run, []byte("strange"))
	sender.PublishLive(run, []byte("two"))
	sender.PublishLive(other, []byte("three"))
	var got []string
	for !slices.Contains(got, "two") || !slices.Contains(got, "three") {
		got = append(got, <-heard)
	}
	slices.Sort(got)
	if len(heard) > 0 || strings.Join(got, " ") != "one three two" {
		t.Errorf("received %q", got)
	}
}

// A forged heartbeat makes no worker dead or alive.
func TestForgedHeartbeats(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	sender, reader := openWith(t, nc, oldKey), openWith(t, nc, oldKey+","+newKey)
	heard := make(chan bus.Heartbeat, 100)
	stop, err := reader.Heartbeats(t.Context(), func(h bus.Heartbeat) { heard <- h })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	passing := capture(t, nc, "signed.presence.*")
	sender.SendHeartbeat(bus.Heartbeat{Worker: "w1"})
	forgeries(t, nc, next(t, passing), "signed.presence.w2")
	if err := nc.Publish("signed.presence.w1", []byte(`{"worker":"w1","leaving":true}`)); err != nil {
		t.Fatal(err)
	}
	sender.SendHeartbeat(bus.Heartbeat{Worker: "last"})
	var got []string
	for !slices.Contains(got, "last") {
		got = append(got, (<-heard).Worker)
	}
	if strings.Join(got, " ") != "w1 last" {
		t.Errorf("received %q", got)
	}
}

// An abort message says whether it is already in the store, and at which version. Without a signature that is
// ignored, so the abort is written to the store with the name of its sender.
func TestForgedAborts(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := openWith(t, nc, newKey)
	heard := make(chan bus.Abort, 10)
	stop, err := b.Aborts(t.Context(), func(a bus.Abort) { heard <- a })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	requests, err := b.AbortRequests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close() //nolint:errcheck // the test is over
	take := func() bus.Message {
		m, err := requests.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Ack(); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if err := b.PublishAbort(t.Context(), bus.Abort{Run: run, Version: 3}); err != nil {
		t.Fatal(err)
	}
	if m, a := take(), <-heard; m.Header(bus.HeaderApplied) == "" || a.Version != 3 {
		t.Errorf("a signed one: applied %q, version %d", m.Header(bus.HeaderApplied), a.Version)
	}
	forged := &nats.Msg{Subject: "signed.abort." + string(run), Data: []byte(`{"reason":"","version":3}`), Header: nats.Header{bus.HeaderApplied: {"1"}}}
	if err := nc.PublishMsg(forged); err != nil {
		t.Fatal(err)
	}
	if m, a := take(), <-heard; m.Header(bus.HeaderApplied) != "" || a.Version != 0 {
		t.Errorf("a forged one: applied %q, version %d", m.Header(bus.HeaderApplied), a.Version)
	}
}

// A forged event on the feed does not displace the run's real events.
func TestForgedFeed(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := openWith(t, nc, newKey)
	last := func(want int64) {
		t.Helper()
		if n, err := b.LastEvent(t.Context(), state.DefaultTenant, run); err != nil || n != want {
			t.Errorf("the last event is %d, %v; want %d", n, err, want)
		}
	}
	if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, []bus.Event{{Seq: 1, Data: []byte("{}")}, {Seq: 2, Data: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	last(2)
	m := &nats.Msg{Subject: "signed.events." + string(run), Data: []byte("{}"), Header: nats.Header{"Turnpike-Seq": {"99"}}}
	if _, err := nc.RequestMsgWithContext(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	last(0)
}

// The signature of an event on the feed holds for its number too: a copy of the event with a later number does not
// displace the events in between.
func TestFeedEventUnderAnotherNumber(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := openWith(t, nc, newKey)
	passing := capture(t, nc, "signed.events."+string(run))
	if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, []bus.Event{{Seq: 1, Data: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	signed := next(t, passing)
	for number, want := range map[string]int64{"1": 1, "99": 0} {
		m := &nats.Msg{Subject: signed.Subject, Data: signed.Data, Header: nats.Header{"Turnpike-Seq": {number}, "Turnpike-MAC": signed.Header["Turnpike-MAC"]}}
		if _, err := nc.RequestMsgWithContext(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if n, err := b.LastEvent(t.Context(), state.DefaultTenant, run); err != nil || n != want {
			t.Errorf("after a copy with the number %s the last event is %d, %v; want %d", number, n, err, want)
		}
	}
}

// While some processes have no keys, the others accept their messages.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	before, between, after := openWith(t, nc, ""), openWith(t, nc, newKey+",unsigned"), openWith(t, nc, newKey)
	heard := make(chan string, 10)
	for name, b := range map[string]*natsbus.Bus{"before": before, "between": between, "after": after} {
		stop, err := b.Heartbeats(t.Context(), func(h bus.Heartbeat) { heard <- name + " hears " + h.Worker })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	before.SendHeartbeat(bus.Heartbeat{Worker: "before"})
	between.SendHeartbeat(bus.Heartbeat{Worker: "between"})
	after.SendHeartbeat(bus.Heartbeat{Worker: "after"})
	var got []string
	for range 8 {
		got = append(got, <-heard)
	}
	if slices.Contains(got, "after hears before") || len(heard) > 0 {
		t.Errorf("%q", got)
	}
	for b, want := range map[*natsbus.Bus]string{before: "can forge", between: "unsigned ones are accepted", after: "keys: 1"} {
		findings := b.Check(t.Context())
		i := slices.IndexFunc(findings, func(f state.Finding) bool { return f.Name == "nats: signatures" })
		if i < 0 || !strings.Contains(findings[i].Detail, want) {
			t.Errorf("check says %+v, want %q", findings, want)
		}
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"short": "5 bytes", "unsigned": "the word unsigned has no key before it", ",": "no key", oldKey + ",short": "5 bytes", strings.Repeat(oldKey+",", 5): "at most 4",
		"": "", "\n": "", oldKey: "", oldKey + "\n" + newKey + "\n": "", oldKey + ", unsigned": "",
	} {
		_, err := natsbus.ParseKeys(text)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "0123456789")) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// BenchmarkLive compares the cost of signed and unsigned messages.
func BenchmarkLive(b *testing.B) {
	nc := testbed.NATS(b)
	for name, text := range map[string]string{"unsigned": "", "signed": newKey} {
		b.Run(name, func(b *testing.B) {
			keys, err := natsbus.ParseKeys(text)
			if err != nil {
				b.Fatal(err)
			}
			bus, err := natsbus.Open(context.Background(), nc, natsbus.Config{Prefix: name, Keys: keys})
			if err != nil {
				b.Fatal(err)
			}
			defer bus.Close() //nolint:errcheck // the benchmark is over
			data := []byte(strings.Repeat("x", 200))
			b.ReportAllocs()
			for b.Loop() {
				bus.PublishLive(run, data)
			}
		})
	}
}
