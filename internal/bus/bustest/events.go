package bustest

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A watcher receives append notices and live events, in the order in which they were sent, and
// nothing of another run.
func testWatch(t *testing.T, b bus.Bus) {
	run, other := newID(), newID()
	got := make(chan bus.Notice, 100)
	stop, err := b.Watch(t.Context(), run, func(n bus.Notice) { got <- n })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b.PublishLive(other, []byte("other"))
	b.NotifyAppended(state.DefaultTenant, other, 0, 7)
	want := []bus.Notice{{From: 0, To: 2}, {Live: []byte(`{"seq":null}`)}, {From: 2, To: 3}}
	b.NotifyAppended(state.DefaultTenant, run, 0, 2)
	b.PublishLive(run, want[1].Live)
	b.NotifyAppended(state.DefaultTenant, run, 2, 3)
	for _, w := range want {
		select {
		case n := <-got:
			if diff := cmp.Diff(w, n); diff != "" {
				t.Fatalf("notice:\n%s", diff)
			}
		case <-time.After(soon):
			t.Fatalf("%+v was not received", w)
		}
	}
}

// A watcher of all runs receives which logs grow, with their tenants, and no live events.
func testWatchAll(t *testing.T, b bus.Bus) {
	got := make(chan [2]string, 100)
	stop, err := b.WatchAll(t.Context(), func(tenant string, run state.RunID) { got <- [2]string{tenant, string(run)} })
	if err != nil {
		t.Fatal(err)
	}
	want := [][2]string{{state.DefaultTenant, string(newID())}, {"acme", string(newID())}, {"b-2", string(newID())}}
	for i, w := range want {
		b.PublishLive(state.RunID(w[1]), []byte("x"))
		b.NotifyAppended(w[0], state.RunID(w[1]), 0, int64(i)+1)
	}
	for _, w := range want {
		select {
		case g := <-got:
			if g != w {
				t.Fatalf("%s has grown, want %s", g, w)
			}
		case <-time.After(soon):
			t.Fatalf("%s was not received", w)
		}
	}
	stop()
	b.NotifyAppended(state.DefaultTenant, newID(), 0, 1)
	if len(got) != 0 {
		t.Error("received after stop")
	}
}

// A watcher of deletions receives which runs are deleted, with their tenants, and no others.
func testWatchDeleted(t *testing.T, b bus.Bus) {
	got := make(chan [2]string, 100)
	stop, err := b.WatchDeleted(t.Context(), func(tenant string, run state.RunID) { got <- [2]string{tenant, string(run)} })
	if err != nil {
		t.Fatal(err)
	}
	want := [][2]string{{state.DefaultTenant, string(newID())}, {"acme", string(newID())}}
	for _, w := range want {
		b.NotifyAppended(state.DefaultTenant, newID(), 0, 1)
		b.Deleted(w[0], state.RunID(w[1]))
	}
	for _, w := range want {
		select {
		case d := <-got:
			if d != w {
				t.Fatalf("received %v, want %v", d, w)
			}
		case <-time.After(soon):
			t.Fatalf("%v was not received", w)
		}
	}
	stop()
	b.Deleted(state.DefaultTenant, newID())
	if len(got) != 0 {
		t.Error("received after stop")
	}
}

// Watchers reports a watch that begins later, and at once one that began before: a worker that has just started
// may execute a run that has a reader.
func testWatchers(t *testing.T, b bus.Bus) {
	early, late, unwatched := newID(), newID(), newID()
	ignore := func(bus.Notice) {}
	stopEarly, err := b.Watch(t.Context(), early, ignore)
	if err != nil {
		t.Fatal(err)
	}
	defer stopEarly()
	w, err := b.Watchers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if !w.Watched(early) {
		t.Error("Watchers returned after Watch, and its Watched reports false for the watched run, want true")
	}
	stopLate, err := b.Watch(t.Context(), late, ignore)
	if err != nil {
		t.Fatal(err)
	}
	defer stopLate()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for w.Watched(unwatched) || !w.Watched(early) || !w.Watched(late) {
		if ctx.Err() != nil {
			t.Fatalf("watched: early %v, late %v, unwatched %v; want the first two only", w.Watched(early), w.Watched(late), w.Watched(unwatched))
		}
		runtime.Gosched()
	}
	// A bus may send no notice of a run without watchers. A watcher reads the store as soon as Watch has returned, so
	// notices from then on must arrive, also if the process that sends them does not know of the watch yet.
	for range 100 {
		run, got := newID(), make(chan bus.Notice, 10)
		b.NotifyAppended(state.DefaultTenant, run, 0, 1)
		stop, err := b.Watch(t.Context(), run, func(n bus.Notice) { got <- n })
		if err != nil {
			t.Fatal(err)
		}
		b.NotifyAppended(state.DefaultTenant, run, 1, 2)
		for to := int64(0); to < 2; {
			select {
			case n := <-got:
				to = n.To
			case <-time.After(soon):
				t.Fatal("a notice right after Watch was not received")
			}
		}
		stop()
	}
}

// The feed has each event once and in order, even if it is published again (I9), and reports its
// last event.
func testFeed(t *testing.T, b bus.Bus) {
	run := newID()
	if n, err := b.LastEvent(t.Context(), state.DefaultTenant, run); n != 0 || err != nil {
		t.Fatalf("LastEvent of a run without events = %d, %v", n, err)
	}
	events := []bus.Event{{Seq: 1, Data: []byte(`{"seq":1}`)}, {Seq: 2, Data: []byte(`{"seq":2}`)}, {Seq: 3, Data: []byte(`{"seq":3}`)}}
	for _, part := range [][]bus.Event{events[:2], events, nil} {
		if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, slices.Clone(part)); err != nil {
			t.Fatalf("PublishEvents: %v", err)
		}
	}
	if n, err := b.LastEvent(t.Context(), state.DefaultTenant, run); n != 3 || err != nil {
		t.Errorf("LastEvent = %d, %v; want 3", n, err)
	}
	if n, err := b.LastEvent(t.Context(), state.DefaultTenant, newID()); n != 0 || err != nil {
		t.Errorf("LastEvent of another run = %d, %v", n, err)
	}
}

func testWatchStops(t *testing.T, b bus.Bus) {
	run := newID()
	var mu sync.Mutex
	stopped := false
	stop, err := b.Watch(t.Context(), run, func(bus.Notice) {
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
		b.PublishLive(run, []byte("x"))
		if i == 10 {
			stop()
			mu.Lock()
			stopped = true
			mu.Unlock()
		}
	}
	stop()
}

// All subscribers receive an abort at once, and it waits for a consumer that stores it.
func testAborts(t *testing.T, b bus.Bus) {
	run := newID()
	want := bus.Abort{Run: run, Tenant: "acme", Reason: "enough", Version: 3}
	heard := make(chan bus.Abort, 2)
	for range 2 {
		stop, err := b.Aborts(t.Context(), func(a bus.Abort) { heard <- a })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	if err := b.PublishAbort(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("received %+v, want %+v", got, want)
			}
		case <-time.After(soon):
			t.Fatal("an abort was not received")
		}
	}
	q := requests(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	m, err := q.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var a state.Abort
	if err := json.Unmarshal(m.Data(), &a); err != nil || a.Reason != "enough" || m.Key() != string(run) || m.Delivered() != 1 || m.Header(bus.HeaderApplied) == "" {
		t.Errorf("request = %s %s, %v", m.Key(), m.Data(), err)
	}
	if err := m.Ack(); err != nil {
		t.Error(err)
	}
	nobody(t, requests(t, b))
}

func requests(t *testing.T, b bus.Bus) bus.Queue {
	t.Helper()
	q, err := b.AbortRequests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func nobody(t *testing.T, q bus.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), briefly)
	defer cancel()
	if m, err := q.Next(ctx); err == nil {
		t.Fatalf("Next = %s %s, want nothing", m.Key(), m.Data())
	}
}

func testAbortsStop(t *testing.T, b bus.Bus) {
	heard := make(chan state.RunID, 10)
	stop, err := b.Aborts(t.Context(), func(a bus.Abort) { t.Errorf("%s received after stop", a.Run) })
	if err != nil {
		t.Fatal(err)
	}
	stop()
	stop()
	stopOther, err := b.Aborts(t.Context(), func(a bus.Abort) { heard <- a.Run })
	if err != nil {
		t.Fatal(err)
	}
	defer stopOther()
	if err := b.PublishAbort(t.Context(), bus.Abort{Run: newID()}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-heard:
	case <-time.After(soon):
		t.Fatal("an abort was not received")
	}
}

// A submission is handed to one gateway, and to another if that one does not say
// that it is in the store.
func testSubmissions(t *testing.T, b bus.Bus) {
	service, ok := b.(Submitter)
	if !ok {
		t.Fatal("the bus under test is no bustest.Submitter")
	}
	queues := make([]bus.Queue, 2)
	for i := range queues {
		q, err := b.Submissions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		queues[i] = q
	}
	service.Submit("acme", "support", []byte(`{"input":"hi"}`), map[string]string{"Nats-Msg-Id": "key", "Turnpike-Reply": "answers.here"})
	take := func(q bus.Queue) bus.Message {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		m, err := q.Next(ctx)
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		return m
	}
	m := take(queues[0])
	if m.Tenant() != "acme" || m.Key() != "support" || string(m.Data()) != `{"input":"hi"}` || m.Delivered() != 1 {
		t.Errorf("submission = %s %s, delivery %d", m.Key(), m.Data(), m.Delivered())
	}
	if m.Header("Nats-Msg-Id") != "key" || m.Header("Turnpike-Reply") != "answers.here" || m.Header("Other") != "" {
		t.Errorf("headers = %q, %q, %q", m.Header("Nats-Msg-Id"), m.Header("Turnpike-Reply"), m.Header("Other"))
	}
	id := m.ID()
	nobody(t, queues[1])
	if err := m.Nak(0); err != nil {
		t.Fatal(err)
	}
	// An abandoned pull may have received it in between: numbers only grow.
	m = take(queues[0])
	seen := m.Delivered()
	if seen < 2 {
		t.Errorf("Delivered = %d after a nak, want 2 or more", seen)
	}
	m = take(queues[1]) // the gateway died
	if m.Delivered() <= seen {
		t.Errorf("Delivered of a message that was not acknowledged in time = %d, want more than the %d of its previous delivery", m.Delivered(), seen)
	}
	if m.ID() != id || id == "" {
		t.Errorf("ID = %q, was %q", m.ID(), id)
	}
	if err := m.Ack(); err != nil {
		t.Fatal(err)
	}
	nobody(t, queues[0])
	service.Submit(state.DefaultTenant, "support", []byte(`{"input":"hi"}`), map[string]string{"Nats-Msg-Id": "another"})
	if m = take(queues[0]); m.ID() == id {
		t.Errorf("ID = %q, which belongs to another message", id)
	}
	if err := m.Ack(); err != nil {
		t.Fatal(err)
	}
}

func testDeadLetters(t *testing.T, b bus.Bus) {
	for i := range 3 {
		d := bus.DeadLetter{Lane: state.Normal, Run: newID(), Cause: fmt.Sprint("cause ", i), At: state.At(time.Now()), Data: "{"}
		if err := b.DeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	page, err := b.DeadLetters(t.Context(), state.DefaultTenant, 0, 2)
	if err != nil || len(page) != 2 || page[0].Cause != "cause 0" || page[0].Data != "{" {
		t.Fatalf("DeadLetters = %+v, %v", page, err)
	}
	rest, err := b.DeadLetters(t.Context(), state.DefaultTenant, page[1].Seq, 10)
	if err != nil || len(rest) != 1 || rest[0].Cause != "cause 2" {
		t.Fatalf("DeadLetters = %+v, %v", rest, err)
	}
	// If a worker dies after it has written the dead letter, its successor writes it again.
	poisoned := bus.DeadLetter{Kind: bus.DeadPoisoned, Run: newID(), Version: 3, Events: 7, Attempts: 5, Cause: "poisoned"}
	lost := bus.DeadLetter{Kind: bus.DeadLost, Run: poisoned.Run, Cause: "lost"}
	for _, d := range []bus.DeadLetter{poisoned, lost, poisoned, lost} {
		if err := b.DeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	last, err := b.DeadLetters(t.Context(), state.DefaultTenant, rest[0].Seq, 10)
	if err != nil || len(last) != 2 || last[1].Kind != bus.DeadLost || last[0].Run != poisoned.Run || last[0].Version != 3 || last[0].Events != 7 || last[0].Attempts != 5 {
		t.Fatalf("DeadLetters = %+v, %v; want the poisoned end and the loss once each", last, err)
	}
	// So does a process that dies before it has recorded that a message or an event has a letter.
	refused := bus.DeadLetter{Kind: bus.DeadSubmission, Run: poisoned.Run, Message: "1:7", Cause: "refused"}
	event := bus.DeadLetter{Kind: bus.DeadWebhook, Run: poisoned.Run, Message: "1:7", Cause: "an event"}
	replayed := bus.DeadLetter{Kind: bus.DeadWebhook, Run: poisoned.Run, Cause: "a replay"}
	order := bus.DeadLetter{Kind: bus.DeadTrigger, Run: poisoned.Run, Key: "orders", Message: "1:7", Cause: "an order"}
	other := bus.DeadLetter{Kind: bus.DeadTrigger, Run: poisoned.Run, Key: "others", Message: "1:7", Cause: "another trigger's order"}
	for _, d := range []bus.DeadLetter{refused, event, replayed, order, other, refused, event, replayed, order, other} {
		if err := b.DeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	var causes []string
	more, err := b.DeadLetters(t.Context(), state.DefaultTenant, last[1].Seq, 20)
	for _, d := range more {
		causes = append(causes, d.Cause)
	}
	if want := []string{"refused", "an event", "a replay", "an order", "another trigger's order", "a replay"}; err != nil || !slices.Equal(causes, want) {
		t.Errorf("DeadLetters = %q, %v; want %q", causes, err, want)
	}
	if err := b.PurgeRun(t.Context(), state.DefaultTenant, poisoned.Run, true); err != nil {
		t.Fatal(err)
	}
	if left, err := b.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil || len(left) != 3 || left[2].Seq != rest[0].Seq {
		t.Errorf("after PurgeRun of one run DeadLetters = %+v, %v; want the dead letters of the other runs", left, err)
	}
}

// The letters of a run are purged, however many letters of other runs stand before them.
func testPurgeOfManyLetters(t *testing.T, b bus.Bus) {
	const others = 120
	gone := newID()
	for i := range others + 2 {
		d := bus.DeadLetter{Run: newID(), Cause: "another run"}
		if i >= others {
			d = bus.DeadLetter{Run: gone, Cause: fmt.Sprint(i)}
		}
		if err := b.DeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.PurgeRun(t.Context(), state.DefaultTenant, gone, true); err != nil {
		t.Fatal(err)
	}
	left, err := b.DeadLetters(t.Context(), state.DefaultTenant, 0, 2*others)
	if err != nil || len(left) != others || slices.ContainsFunc(left, func(d bus.DeadLetter) bool { return d.Run == gone }) {
		t.Errorf("after PurgeRun of one run %d dead letters are left, %v; want the %d of other runs", len(left), err, others)
	}
}

// Each tenant has its own dead letters.
func testDeadLettersOfTenants(t *testing.T, b bus.Bus) {
	for _, tenant := range []string{state.DefaultTenant, "one", "two"} {
		if err := b.DeadLetter(t.Context(), bus.DeadLetter{Tenant: tenant, Run: newID(), Cause: tenant}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range []string{state.DefaultTenant, "one", "two"} {
		letters, err := b.DeadLetters(t.Context(), tenant, 0, 10)
		if err != nil || len(letters) != 1 || letters[0].Cause != tenant || letters[0].Tenant != tenant {
			t.Errorf("DeadLetters of tenant %s = %+v, %v", tenant, letters, err)
		}
	}
	if letters, err := b.DeadLetters(t.Context(), "three", 0, 10); err != nil || len(letters) != 0 {
		t.Errorf("DeadLetters of a tenant without any = %+v, %v", letters, err)
	}
}

func testMembership(t *testing.T, b bus.Bus) {
	got := make(chan bus.Heartbeat, 10)
	stop, err := b.Heartbeats(t.Context(), func(heartbeat bus.Heartbeat) { got <- heartbeat })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// Worker names may be host names, not all of which fit into a subject.
	heartbeats := []bus.Heartbeat{{Worker: "w1.example.org", Format: 1, Turns: map[state.Priority]int{state.Low: 2}}, {Worker: "w1.example.org", Leaving: true}, {Worker: "a b*>"}}
	for _, heartbeat := range heartbeats {
		b.SendHeartbeat(heartbeat)
	}
	for _, want := range heartbeats {
		select {
		case heartbeat := <-got:
			if diff := cmp.Diff(want, heartbeat); diff != "" {
				t.Errorf("heartbeat:\n%s", diff)
			}
		case <-time.After(soon):
			t.Fatal("a heartbeat was not received")
		}
	}
}

func testReady(t *testing.T, b bus.Bus) {
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if err := b.IntakeReady(t.Context()); err != nil {
		t.Errorf("IntakeReady: %v", err)
	}
}
