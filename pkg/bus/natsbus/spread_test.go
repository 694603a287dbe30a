package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// Several streams behave like one.
func TestBusOfSeveralStreams(t *testing.T) {
	t.Parallel()
	const streams = 3
	nats := testbed.NATSServer(t)
	bustest.Exercise(t, func(t *testing.T) bus.Bus {
		t.Helper()
		nc, err := nats.Conn(t.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		prefix := "t-" + strings.ToLower(ulid.Make().String())
		b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: prefix, AckWait: bustest.AckWait, EventFeed: true, TurnStreams: streams})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return spread{deployment{b, t, nc, prefix}, streams}
	})
}

// spreadOver opens a bus that wants n streams, like a process that starts with a changed setting, and leaves it
// open.
func spreadOver(t *testing.T, nc *nats.Conn, n int) *natsbus.Bus {
	t.Helper()
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{TurnStreams: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// turnStreams returns the names of the turn streams.
func turnStreams(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	all := js.StreamNames(t.Context())
	var names []string
	for name := range all.Name() {
		if strings.HasPrefix(name, "TURNPIKE_TURNS") {
			names = append(names, name)
		}
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// awaitStreams waits until exactly these turn streams exist.
func awaitStreams(t *testing.T, js jetstream.JetStream, want ...string) {
	t.Helper()
	testbed.Eventually(t, "streams of turns", func() error {
		if have := turnStreams(t, js); !slices.Equal(have, want) {
			return fmt.Errorf("have %v, want %v", have, want)
		}
		return nil
	})
}

// taken records the messages that workers have taken.
type taken struct {
	mu   sync.Mutex
	runs map[state.RunID]int
	last time.Time
	gap  time.Duration // the longest time without a message
}

func (s *taken) add(run state.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.last.IsZero() {
		s.last = now
	} else {
		s.gap, s.last = max(s.gap, now.Sub(s.last)), now
	}
	s.runs[run]++
}

func (s *taken) has(run state.RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[run] > 0
}

// work takes and acknowledges turns of all queues until ctx ends.
func work(ctx context.Context, t *testing.T, b *natsbus.Bus, into *taken) {
	t.Helper()
	for _, key := range bus.QueueKeys() {
		q, err := b.Turns(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		q.SetPrefetch(16)
		go func() {
			defer q.Close()
			for {
				d, err := q.Next(ctx)
				if err != nil {
					return
				}
				into.add(d.Turn().Run)
				_ = d.Ack() // it is redelivered
			}
		}()
	}
}

// The number of streams changes while turns are published and taken by processes that learn of it at different
// times. No message is lost, and unused streams are removed.
func TestTurnStreamsChange(t *testing.T) {
	t.Parallel()
	deaf := &server.User{Username: "deaf", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"turnpike.layout.changed"}}}}
	s := testbed.NATSWith(t, func(o *server.Options) { o.Users = []*server.User{{Username: "all"}, deaf} })
	connect := func(user string) *nats.Conn {
		nc, err := natsbus.Connect(s.ClientURL(), user, nats.UserInfo(user, ""), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	admin := connect("all")
	js := jet(t, admin)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	got := &taken{runs: map[state.RunID]int{}}
	var mu sync.Mutex
	var all []state.RunID
	var publishing sync.WaitGroup
	quit := make(chan struct{})
	for i := range 4 {
		user := []string{"all", "deaf"}[i%2] // half of them get no notification and poll
		work(ctx, t, open(t, connect(user), ""), got)
		b := open(t, connect(user), "")
		publishing.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-quit:
					return
				case <-tick.C:
				}
				key := bus.QueueKeys()[n%6]
				run := newRun()
				if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: key.Lane, Noisy: key.Noisy}, string(run)); err != nil {
					t.Errorf("PublishTurn: %v", err)
					return
				}
				mu.Lock()
				all = append(all, run)
				mu.Unlock()
			}
		})
	}
	spreadOver(t, admin, 4)
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2", "TURNPIKE_TURNS_3", "TURNPIKE_TURNS_4")
	used := func(name string) bool {
		st, err := js.Stream(t.Context(), name)
		return err == nil && st.CachedInfo().State.LastSeq > 100
	}
	eventually(t, func() bool { return used("TURNPIKE_TURNS_2") && used("TURNPIKE_TURNS_3") && used("TURNPIKE_TURNS_4") })
	spreadOver(t, admin, 2)
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2")
	spreadOver(t, admin, 3)
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2", "TURNPIKE_TURNS_5") // no number is reused
	eventually(t, func() bool { return used("TURNPIKE_TURNS_5") })
	spreadOver(t, admin, 1)
	awaitStreams(t, js, "TURNPIKE_TURNS")
	close(quit)
	publishing.Wait()
	twice := 0
	for _, run := range all {
		eventually(t, func() bool { return got.has(run) })
	}
	stop()
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, n := range got.runs {
		if n > 1 {
			twice++
		}
	}
	t.Logf("%d messages, %d of them twice, longest gap %v", len(all), twice, got.gap)
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	testbed.Eventually(t, "wait", func() error {
		if !ok() {
			return errors.New("not reached within the limit")
		}
		return nil
	})
}

// The remaining messages of an unused stream are taken before it is removed.
func TestDrainedStreamIsEmptied(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js := jet(t, nc)
	b := spreadOver(t, nc, 4)
	missing := map[state.RunID]bool{}
	for range 100 {
		run := newRun()
		missing[run] = true
		if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Low}, string(run)); err != nil {
			t.Fatal(err)
		}
	}
	spreadOver(t, nc, 1)
	eventually(t, func() bool {
		st, err := js.Stream(t.Context(), "TURNPIKE_TURNS_4")
		return err == nil && slices.Equal(st.CachedInfo().Config.Subjects, []string{"turnpike.turns.4.closed"})
	})
	late, err := natsbus.Open(t.Context(), nc, natsbus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	told := false
	for _, f := range late.Check(t.Context()) {
		told = told || f.Name == "nats: turn streams" && strings.HasPrefix(f.Detail, "1: TURNPIKE_TURNS;") && strings.Contains(f.Detail, "TURNPIKE_TURNS_4 is deleted after")
	}
	if !told {
		t.Error("no finding about draining streams")
	}
	// A server may count a message a moment after it has stored it.
	testbed.Eventually(t, "100 turns are counted", func() error {
		if lag, err := late.Lag(t.Context()); err != nil || lag != 100 {
			return fmt.Errorf("Lag = %d, %w", lag, err)
		}
		return nil
	})
	q, err := late.Turns(t.Context(), bus.QueueKey{Lane: state.Low})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for len(missing) > 0 {
		d, err := q.Next(soon(t))
		if err != nil {
			t.Fatalf("%d are missing: %v", len(missing), err)
		}
		delete(missing, d.Turn().Run)
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	awaitStreams(t, js, "TURNPIKE_TURNS")
}

// A stream that is removed by hand does not stop the turns, and is recreated.
func TestRemovedTurnStreamIsRestored(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js := jet(t, nc)
	b := spreadOver(t, nc, 3)
	got := &taken{runs: map[state.RunID]int{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	work(ctx, t, open(t, nc, ""), got)
	for _, name := range []string{"TURNPIKE_TURNS_2", "TURNPIKE_LAYOUT", "TURNPIKE_TURNS"} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			_, err := js.Stream(t.Context(), name)
			return err == nil
		})
		for range 30 {
			run := newRun()
			// A message in flight while the stream is created may get no answer.
			eventually(t, func() bool {
				return b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, string(run)) == nil
			})
			eventually(t, func() bool { return got.has(run) })
		}
	}
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2", "TURNPIKE_TURNS_3")
	if err := check.Err(b.Check(t.Context())); err != nil {
		t.Error(err)
	}
}

// If the layout is lost, existing streams are drained.
func TestLostLayout(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js := jet(t, nc)
	b := spreadOver(t, nc, 2)
	run := newRun()
	for run.Shard()%2 == 0 {
		run = newRun()
	}
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, string(run)); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "TURNPIKE_LAYOUT"); err != nil {
		t.Fatal(err)
	}
	q, err := spreadOver(t, nc, 2).Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	d, err := q.Next(soon(t))
	if err != nil || d.Turn().Run != run {
		t.Fatalf("Next = %v, %v", d, err)
	}
	if err := d.Ack(); err != nil {
		t.Fatal(err)
	}
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_3")
}

// A list of streams that NATS refuses to store is not taken for one that other processes keep changing.
func TestUnwritableLayout(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js := jet(t, nc)
	if err := spreadOver(t, nc, 2).Close(); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "TURNPIKE_LAYOUT")
	if err != nil {
		t.Fatal(err)
	}
	full := s.CachedInfo().Config
	full.Discard, full.MaxMsgs = jetstream.DiscardNew, 1
	if _, err := js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	_, err = natsbus.Open(t.Context(), nc, natsbus.Config{TurnStreams: 3})
	if err == nil || !strings.Contains(err.Error(), "the list of turn streams cannot be written") || strings.Contains(err.Error(), "other processes") {
		t.Errorf("Open = %v, want that the list cannot be written", err)
	}
}

// A client that publishes with this reply subject makes the server acknowledge on it. The previous layout stays
// in force.
func TestAcknowledgementIsNotALayout(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js := jet(t, nc)
	if err := spreadOver(t, nc, 2).Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(t.Context(), "turnpike.layout", []byte(`{"stream":"TURNPIKE_SUBMIT_acme","seq":7}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := spreadOver(t, nc, 2).Close(); err != nil {
		t.Fatal(err)
	}
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2")
	if err := spreadOver(t, nc, 3).Close(); err != nil { // which replaces the layout
		t.Fatal(err)
	}
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2", "TURNPIKE_TURNS_3")
}

// An acknowledgement on turnpike.mark is not a mark: the mark before it holds, and can be replaced.
func TestAcknowledgementIsNotAMark(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js, b := jet(t, nc), spreadOver(t, nc, 1)
	if moved, err := b.ReplaceMark(t.Context(), []byte(`{"epoch":2,"count":7}`), 0); err != nil || moved {
		t.Fatal(moved, err)
	}
	for _, forged := range []string{`{"stream":"TURNPIKE_SUBMIT_acme","seq":7}`, `no JSON`, ``} {
		if _, err := js.Publish(t.Context(), "turnpike.mark", []byte(forged)); err != nil {
			t.Fatal(err)
		}
	}
	data, revision, at, err := b.Mark(t.Context())
	if err != nil || string(data) != `{"epoch":2,"count":7}` || revision != 1 || at.IsZero() {
		t.Fatalf("the mark is %s, revision %d of %v, %v", data, revision, at, err)
	}
	if moved, err := b.ReplaceMark(t.Context(), []byte(`{"epoch":2,"count":8}`), revision); err != nil || moved {
		t.Errorf("the mark is not replaced: moved %t, %v", moved, err)
	}
	if moved, err := b.ReplaceMark(t.Context(), []byte(`{"epoch":2,"count":9}`), revision); err != nil || !moved {
		t.Errorf("a mark of an old revision is replaced: moved %t, %v", moved, err)
	}
	if data, _, _, err := b.Mark(t.Context()); err != nil || string(data) != `{"epoch":2,"count":8}` {
		t.Errorf("the mark is %s, %v", data, err)
	}
}

// A worker with one free slot polls the streams in turn, instead of requesting a message from each.
func TestStreamsAreAskedInTurn(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := spreadOver(t, nc, 8)
	const messages = 400
	for range messages {
		run := newRun()
		if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, string(run)); err != nil {
			t.Fatal(err)
		}
	}
	q, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	again, seen := 0, map[int]int{}
	for n := range messages {
		d, err := q.Next(soon(t))
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		if d.Delivered() > 1 {
			again++
		}
		if n < messages/4 {
			seen[d.Turn().Run.Shard()%8]++
		}
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if again > messages/20 {
		t.Errorf("%d of %d messages were fetched and returned", again, messages)
	}
	for stream := range 8 {
		if n := seen[stream]; n < messages/4/8/2 {
			t.Errorf("of the first %d messages %d are from stream %d of eight", messages/4, n, stream)
		}
	}
}

// Concurrent publishers that find a stream missing look it up once.
func TestRestoreIsOneQuestion(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	js := jet(t, nc)
	var asked atomic.Int64
	if _, err := nc.Subscribe("$JS.API.STREAM.INFO.>", func(*nats.Msg) { asked.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "TURNPIKE_TURNS"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if err := b.PublishTurn(t.Context(), bus.Turn{Run: newRun(), Version: 1, Priority: state.Normal}, fmt.Sprint(i)); err != nil {
				t.Errorf("PublishTurn: %v", err)
			}
		})
	}
	all.Wait()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n > 60 {
		t.Errorf("200 publishes made %d requests for streams", n)
	}
}

// On a cluster of three servers with a leader for each stream, turns continue when a server is lost while the
// number of streams changes.
func TestTurnStreamsOnACluster(t *testing.T) {
	t.Parallel()
	servers := testbed.NATSCluster(t, 3)
	process := func(streams int) (*natsbus.Bus, *nats.Conn) {
		nc, err := natsbus.Connect(testbed.URLs(servers), "streams")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		var b *natsbus.Bus
		eventually(t, func() bool {
			b, err = natsbus.Open(t.Context(), nc, natsbus.Config{Replicas: 3, TurnStreams: streams})
			return err == nil // servers do not answer for a stream until it has a leader
		})
		t.Cleanup(func() { _ = b.Close() })
		return b, nc
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	got := &taken{runs: map[state.RunID]int{}}
	worker, nc := process(1)
	work(ctx, t, worker, got)
	b, _ := process(0)
	js := jet(t, nc)
	publish := func(n int) {
		t.Helper()
		var all []state.RunID
		for range n {
			run := newRun()
			eventually(t, func() bool {
				return b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, string(run)) == nil
			})
			all = append(all, run)
		}
		for _, run := range all {
			eventually(t, func() bool { return got.has(run) })
		}
	}
	publish(20)
	process(3)
	publish(60)
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2", "TURNPIKE_TURNS_3")
	process(2)
	servers[2].Shutdown()
	publish(60)
	awaitStreams(t, js, "TURNPIKE_TURNS", "TURNPIKE_TURNS_2")
}
