// Package bustest is the conformance suite of bus.Bus.
package bustest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// soon is how long the suite waits for what must come, and briefly for what must
// not.
const (
	soon    = 10 * time.Second
	briefly = 50 * time.Millisecond
)

// Exercise runs the suite. open returns a bus that shares nothing with those of
// other calls.
func Exercise(t *testing.T, open func(t *testing.T) bus.Bus) {
	t.Helper()
	topics := []struct {
		name string
		test func(t *testing.T, b bus.Bus)
	}{
		{"TurnUntilAcked", testTurnUntilAcked},
		{"TurnDuplicates", testTurnDuplicates},
		{"TurnLanes", testTurnLanes},
		{"TurnsAreShared", testTurnsAreShared},
		{"NextEndsWithContext", testNextEndsWithContext},
		{"CancelledNextLosesNothing", testCancelledNextLosesNothing},
		{"CloseEndsNext", testCloseEndsNext},
		{"Announce", testAnnounce},
		{"WatchStops", testWatchStops},
		{"Aborts", testAborts},
		{"DeadLetters", testDeadLetters},
		{"Presence", testPresence},
		{"Ready", testReady},
	}
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			topic.test(t, open(t))
		})
	}
}

func newID() state.RunID { return state.RunID(state.RunPrefix + ulid.Make().String()) }

func publish(t *testing.T, b bus.Bus, turn bus.Turn, id string) {
	t.Helper()
	if turn.Priority == "" {
		turn.Priority = state.Normal
	}
	if err := b.PublishTurn(t.Context(), turn, id); err != nil {
		t.Fatalf("PublishTurn: %v", err)
	}
}

func lane(t *testing.T, b bus.Bus, p state.Priority) bus.TurnQueue {
	t.Helper()
	q, err := b.Turns(t.Context(), p)
	if err != nil {
		t.Fatalf("Turns: %v", err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func next(t *testing.T, q bus.TurnQueue) bus.TurnDelivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	d, err := q.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return d
}

func nothing(t *testing.T, q bus.TurnQueue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), briefly)
	defer cancel()
	if d, err := q.Next(ctx); err == nil {
		t.Fatalf("Next = %+v, want nothing", d.Turn())
	}
}

func testTurnUntilAcked(t *testing.T, b bus.Bus) {
	q := lane(t, b, state.Normal)
	want := bus.Turn{Run: newID(), Version: 7, Priority: state.Normal, Repair: true, TraceParent: "00-x"}
	publish(t, b, want, "1")
	d := next(t, q)
	if diff := cmp.Diff(want, d.Turn()); diff != "" {
		t.Errorf("turn:\n%s", diff)
	}
	if d.Delivered() != 1 {
		t.Errorf("Delivered = %d, want 1", d.Delivered())
	}
	if err := d.InProgress(); err != nil {
		t.Errorf("InProgress: %v", err)
	}
	if err := d.Nak(0); err != nil {
		t.Fatalf("Nak: %v", err)
	}
	d = next(t, q)
	if d.Delivered() != 2 {
		t.Errorf("Delivered = %d after a nak, want 2", d.Delivered())
	}
	if err := d.Nak(20 * time.Millisecond); err != nil {
		t.Fatalf("Nak: %v", err)
	}
	d = next(t, q)
	if n, err := b.Lag(t.Context()); err != nil || n != 1 {
		t.Errorf("Lag = %d, %v; want 1", n, err)
	}
	if err := d.Ack(); err != nil {
		t.Fatalf("Ack: %v", err)
	}
	nothing(t, q)
	if n, err := b.Lag(t.Context()); err != nil || n != 0 {
		t.Errorf("Lag = %d, %v; want 0", n, err)
	}
}

func testTurnDuplicates(t *testing.T, b bus.Bus) {
	q := lane(t, b, state.Normal)
	turn := bus.Turn{Run: newID(), Version: 1}
	publish(t, b, turn, "same")
	publish(t, b, turn, "same")
	publish(t, b, turn, "other")
	for range 2 {
		if err := next(t, q).Ack(); err != nil {
			t.Fatal(err)
		}
	}
	nothing(t, q)
}

func testTurnLanes(t *testing.T, b bus.Bus) {
	ids := map[state.Priority]state.RunID{}
	for _, p := range state.Priorities() {
		ids[p] = newID()
		publish(t, b, bus.Turn{Run: ids[p], Version: 1, Priority: p}, string(p))
	}
	for _, p := range state.Priorities() {
		q := lane(t, b, p)
		if got := next(t, q).Turn(); got.Run != ids[p] || got.Priority != p {
			t.Errorf("lane %s hands out %+v", p, got)
		}
		nothing(t, q)
	}
}

// No puller takes more than it asked for.
func testTurnsAreShared(t *testing.T, b bus.Bus) {
	const pullers, each = 4, 10
	for i := range pullers * each {
		publish(t, b, bus.Turn{Run: newID(), Version: 1}, fmt.Sprint(i))
	}
	var wg sync.WaitGroup
	for range pullers {
		q := lane(t, b, state.Normal)
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				d, err := q.Next(ctx)
				cancel()
				if err != nil {
					t.Errorf("Next: %v", err)
					return
				}
				if err := d.Ack(); err != nil {
					t.Errorf("Ack: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func testNextEndsWithContext(t *testing.T, b bus.Bus) {
	q := lane(t, b, state.Normal)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next = %v, want canceled", err)
	}
}

// A message that was on its way to a caller who gave up comes to the next one,
// long before the ack wait.
func testCancelledNextLosesNothing(t *testing.T, b bus.Bus) {
	q := lane(t, b, state.Normal)
	nothing(t, q)
	publish(t, b, bus.Turn{Run: newID(), Version: 1}, "1")
	if err := next(t, q).Ack(); err != nil {
		t.Fatal(err)
	}
	nothing(t, q)
	publish(t, b, bus.Turn{Run: newID(), Version: 1}, "2")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	next(t, lane(t, b, state.Normal))
}

func testCloseEndsNext(t *testing.T, b bus.Bus) {
	q := lane(t, b, state.Normal)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Next(context.WithoutCancel(t.Context()))
		ended <- err
	}()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Next = nil after Close")
		}
	case <-time.After(soon):
		t.Fatal("Next still waits after Close")
	}
}

// I9: watchers see each event once, in order.
func testAnnounce(t *testing.T, b bus.Bus) {
	run := newID()
	got := make(chan bus.Event, 100)
	stop, err := b.Watch(t.Context(), run, func(e bus.Event) { got <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	events := []bus.Event{{Seq: 1, Data: []byte(`{"seq":1}`)}, {Seq: 2, Data: []byte(`{"seq":2}`)}, {Seq: 3, Data: []byte(`{"seq":3}`)}}
	for range 2 {
		if err := b.Announce(t.Context(), run, slices.Clone(events)); err != nil {
			t.Fatalf("Announce: %v", err)
		}
	}
	if err := b.Announce(t.Context(), newID(), events[:1]); err != nil {
		t.Fatalf("Announce: %v", err)
	}
	b.Live(run, []byte(`{"seq":null}`))
	// Doubles are allowed, gaps and disorder are not.
	var last int64
	for {
		select {
		case e := <-got:
			if e.Seq == 0 {
				if string(e.Data) != `{"seq":null}` || last != 3 {
					t.Fatalf("live event %s after %d", e.Data, last)
				}
				return
			}
			if e.Seq > last+1 {
				t.Fatalf("event %d after %d", e.Seq, last)
			}
			if want := fmt.Sprintf(`{"seq":%d}`, e.Seq); string(e.Data) != want {
				t.Fatalf("event %d is %s", e.Seq, e.Data)
			}
			last = max(last, e.Seq)
		case <-time.After(soon):
			t.Fatalf("nothing after event %d", last)
		}
	}
}

func testWatchStops(t *testing.T, b bus.Bus) {
	run := newID()
	var mu sync.Mutex
	stopped := false
	stop, err := b.Watch(t.Context(), run, func(bus.Event) {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			t.Error("called after stop")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(20) {
		b.Live(run, []byte("x"))
		if i == 10 {
			stop()
			mu.Lock()
			stopped = true
			mu.Unlock()
		}
	}
	stop()
}

// An abort is heard by all at once, and waits for one who keeps it.
func testAborts(t *testing.T, b bus.Bus) {
	run := newID()
	heard := make(chan string, 2)
	for range 2 {
		stop, err := b.Aborts(t.Context(), func(id state.RunID, reason string) { heard <- string(id) + reason })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	if err := b.PublishAbort(t.Context(), run, "enough"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case got := <-heard:
			if got != string(run)+"enough" {
				t.Errorf("heard %q", got)
			}
		case <-time.After(soon):
			t.Fatal("an abort was not heard")
		}
	}
	q, err := b.AbortRequests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	m, err := q.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var a state.Abort
	if err := json.Unmarshal(m.Data(), &a); err != nil || a.Reason != "enough" || m.Key() != string(run) || m.Delivered() != 1 {
		t.Errorf("request = %s %s, %v", m.Key(), m.Data(), err)
	}
	if err := m.Ack(); err != nil {
		t.Error(err)
	}
}

func testDeadLetters(t *testing.T, b bus.Bus) {
	for i := range 3 {
		d := bus.DeadLetter{Lane: state.Normal, Run: newID(), Cause: fmt.Sprint("cause ", i), At: state.At(time.Now()), Data: "{"}
		if err := b.DeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	page, err := b.DeadLetters(t.Context(), 0, 2)
	if err != nil || len(page) != 2 || page[0].Cause != "cause 0" || page[0].Data != "{" {
		t.Fatalf("DeadLetters = %+v, %v", page, err)
	}
	rest, err := b.DeadLetters(t.Context(), page[1].Seq, 10)
	if err != nil || len(rest) != 1 || rest[0].Cause != "cause 2" {
		t.Fatalf("DeadLetters = %+v, %v", rest, err)
	}
}

func testPresence(t *testing.T, b bus.Bus) {
	got := make(chan string, 10)
	stop, err := b.Beats(t.Context(), func(worker string, gone bool) { got <- fmt.Sprint(worker, gone) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b.Beat("w1", false)
	b.Beat("w1", true)
	for _, want := range []string{"w1false", "w1true"} {
		select {
		case beat := <-got:
			if beat != want {
				t.Errorf("beat %s, want %s", beat, want)
			}
		case <-time.After(soon):
			t.Fatal("a beat was not heard")
		}
	}
}

func testReady(t *testing.T, b bus.Bus) {
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
}
