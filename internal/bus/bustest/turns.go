package bustest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testTurnUntilAcked(t *testing.T, b bus.Bus) {
	q := lane(t, b, normal)
	want := bus.Turn{Run: newID(), Version: 7, Priority: state.Normal, Tenant: "acme", TraceParent: "00-x"}
	before := time.Now()
	publish(t, b, want, "1")
	after := time.Now()
	d := next(t, q)
	if at := d.PublishedAt(); at.Before(before) || at.After(after) {
		t.Errorf("PublishedAt = %s, want it between %s and %s", at, before, after)
	}
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
	awaitLag(t, b, 1)
	perLane := map[state.Priority]bus.LaneLag{state.High: {}, state.Normal: {Fetched: 1}, state.Low: {}}
	if lanes, err := b.LagByLane(t.Context()); err != nil || !maps.Equal(lanes, perLane) {
		t.Errorf("LagByLane = %v, %v; want %v", lanes, err, perLane)
	}
	if err := d.Ack(); err != nil {
		t.Fatalf("Ack: %v", err)
	}
	nothing(t, q)
	awaitLag(t, b, 0)
}

func testTurnDuplicates(t *testing.T, b bus.Bus) {
	q := lane(t, b, normal)
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
	ids := map[bus.QueueKey]state.RunID{}
	for _, l := range bus.QueueKeys() {
		ids[l] = newID()
		publish(t, b, bus.Turn{Run: ids[l], Version: 1, Priority: l.Lane, Noisy: l.Noisy}, l.String())
	}
	awaitLag(t, b, int64(len(ids)))
	for _, l := range bus.QueueKeys() {
		q := lane(t, b, l)
		if got := next(t, q).Turn(); got.Run != ids[l] || got.Queue() != l {
			t.Errorf("lane %s delivers %+v", l, got)
		}
		nothing(t, q)
	}
}

// The backlog of a lane begins with the oldest message of its two queues.
func testTurnBacklog(t *testing.T, b bus.Bus) {
	backlog := func() state.Backlog {
		t.Helper()
		oldest, err := b.Backlog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return oldest
	}
	if oldest := backlog(); len(oldest) != 0 {
		t.Errorf("Backlog = %v without a message", oldest)
	}
	publish(t, b, bus.Turn{Run: newID(), Version: 1, Noisy: true}, "1")
	awaitLag(t, b, 1)
	first := backlog()[state.Normal]
	publish(t, b, bus.Turn{Run: newID(), Version: 1}, "2")
	publish(t, b, bus.Turn{Run: newID(), Version: 1, Priority: state.High}, "3")
	awaitLag(t, b, 3)
	if oldest := backlog(); first.IsZero() || !oldest[state.Normal].Equal(first) || !oldest[state.High].After(first) || len(oldest) != 2 {
		t.Errorf("Backlog = %v, want %s in the lane normal and a later time in the lane high", oldest, first)
	}
}

// awaitLag waits until the bus counts n turns: a server may count a message a moment
// after it has stored it, and an acknowledgement a moment after it has received it.
func awaitLag(t *testing.T, b bus.Bus, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for {
		lag, err := b.Lag(ctx)
		if err != nil {
			t.Fatalf("Lag = %d, %v; want %d", lag, err, n)
		}
		if lag == n {
			return
		}
	}
}

func testTurnUnknownLane(t *testing.T, b bus.Bus) {
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: newID(), Version: 1, Priority: "urgent"}, "1"); err == nil {
		t.Error("PublishTurn accepts a lane without readers")
	}
	if _, err := b.Turns(t.Context(), bus.QueueKey{Lane: "urgent"}); err == nil {
		t.Error("Turns opens a lane that does not exist")
	}
}

// The message of a dead worker is redelivered after the ack wait.
func testTurnAfterAckWait(t *testing.T, b bus.Bus) {
	q, other := lane(t, b, normal), lane(t, b, normal)
	publish(t, b, bus.Turn{Run: newID(), Version: 1}, "1")
	first := next(t, q)
	second := next(t, other)
	if diff := cmp.Diff(first.Turn(), second.Turn()); diff != "" {
		t.Errorf("delivered again as:\n%s", diff)
	}
	if second.Delivered() != 2 {
		t.Errorf("Delivered = %d, want 2", second.Delivered())
	}
	if err := second.Ack(); err != nil {
		t.Fatal(err)
	}
	nothing(t, q)
}

// A message in progress stays with its worker beyond the ack wait.
func testTurnInProgress(t *testing.T, b bus.Bus) {
	q, other := lane(t, b, normal), lane(t, b, normal)
	publish(t, b, bus.Turn{Run: newID(), Version: 1}, "1")
	d := next(t, q)
	for start, last := time.Now(), time.Now(); time.Since(start) < AckWait*3/2; last = time.Now() {
		ctx, cancel := context.WithTimeout(t.Context(), AckWait/10)
		again, err := other.Next(ctx)
		cancel()
		if time.Since(last) > AckWait/2 {
			t.Skip("this machine is too slow to keep a message in time")
		}
		if err == nil {
			t.Fatalf("delivered to another worker, as number %d", again.Delivered())
		}
		if err := d.InProgress(); err != nil {
			t.Fatalf("InProgress: %v", err)
		}
	}
	if err := d.Ack(); err != nil {
		t.Fatal(err)
	}
	nothing(t, other)
}

// A deferred message does not delay the others, and is not redelivered early.
func testTurnNakDelay(t *testing.T, b bus.Bus) {
	q := lane(t, b, normal)
	later, now := newID(), newID()
	for now.Shard() != later.Shard() { // there is no order between streams
		now = newID()
	}
	publish(t, b, bus.Turn{Run: later, Version: 1}, "1")
	publish(t, b, bus.Turn{Run: now, Version: 1}, "2")
	if err := next(t, q).Nak(time.Hour); err != nil {
		t.Fatal(err)
	}
	d := next(t, q)
	if got := d.Turn().Run; got != now {
		t.Fatalf("the next message is of run %s, want %s", got, now)
	}
	if err := d.Ack(); err != nil {
		t.Fatal(err)
	}
	nothing(t, q)
}

// Pullers share the turns: each turn is received once. A puller takes no more turns than it requested. A puller that
// polls several streams for one turn may get one from each; it returns the others at once, and another puller then
// receives them as a second delivery.
func testTurnsAreShared(t *testing.T, b bus.Bus) {
	const pullers, each = 4, 10
	_, returns := b.(Spread)
	var received sync.Map
	for i := range pullers * each {
		publish(t, b, bus.Turn{Run: newID(), Version: 1}, fmt.Sprint(i))
	}
	var wg sync.WaitGroup
	for range pullers {
		q := lane(t, b, normal)
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				d, err := q.Next(ctx)
				cancel()
				if err != nil {
					t.Errorf("Next: %v", err)
					return
				}
				if _, twice := received.LoadOrStore(d.Turn().Run, true); twice {
					t.Errorf("the turn of run %s is received twice", d.Turn().Run)
				}
				if d.Delivered() != 1 && !returns {
					t.Errorf("Delivered = %d: another puller had it", d.Delivered())
				}
				if err := d.Ack(); err != nil {
					t.Errorf("Ack: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// Other pullers receive messages that a full worker has fetched (I6).
func testBusyPullerHoardsNothing(t *testing.T, b bus.Bus) {
	busy, idle := lane(t, b, normal), lane(t, b, normal)
	publish(t, b, bus.Turn{Run: newID(), Version: 1}, "held")
	held := next(t, busy)
	for i := range 20 {
		publish(t, b, bus.Turn{Run: newID(), Version: 1}, fmt.Sprint(i))
	}
	// A puller that polls several streams for one turn may get one of each: it returns the others at once. The busy
	// one does so once, and the idle one may at several of its pulls. A puller that hoards would have all turns.
	others := 0
	if spread, ok := b.(Spread); ok {
		others = 4 * (spread.Streams() - 1)
	}
	for range 20 {
		d := next(t, idle)
		if d.Delivered() != 1 {
			others--
		}
		if others < 0 {
			t.Fatalf("Delivered = %d: the busy puller had too many turns", d.Delivered())
		}
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if err := held.Ack(); err != nil {
		t.Fatal(err)
	}
}

func testNextEndsWithContext(t *testing.T, b bus.Bus) {
	q := lane(t, b, normal)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next = %v, want canceled", err)
	}
}

// A message in flight to a caller that no longer waits reaches the next caller, long before the ack wait.
func testCancelledNextLosesNothing(t *testing.T, b bus.Bus) {
	q := lane(t, b, normal)
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
	next(t, lane(t, b, normal))
}

// Many callers give up while messages arrive: every message reaches a caller.
func testCancelledNextsLoseNothing(t *testing.T, b bus.Bus) {
	const messages = 50
	q := lane(t, b, normal)
	done, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan state.RunID, 10*messages)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for done.Err() == nil {
				ctx, stop := context.WithTimeout(done, time.Duration(i+1)*time.Millisecond)
				d, err := q.Next(ctx)
				stop()
				if err != nil {
					continue
				}
				if err := d.Ack(); err != nil {
					t.Errorf("Ack: %v", err)
				}
				got <- d.Turn().Run
			}
		})
	}
	missing := map[state.RunID]bool{}
	for i := range messages {
		id := newID()
		missing[id] = true
		publish(t, b, bus.Turn{Run: id, Version: 1}, fmt.Sprint(i))
	}
	limit := time.After(soon)
	for len(missing) > 0 {
		select {
		case id := <-got:
			delete(missing, id)
		case <-limit:
			t.Errorf("%d messages did not arrive", len(missing))
			clear(missing)
		}
	}
	cancel()
	wg.Wait()
}

func testQueueCloseEndsNext(t *testing.T, b bus.Bus) {
	q, err := b.Turns(t.Context(), normal)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := q.Next(context.WithoutCancel(t.Context()))
		ended <- err
	}()
	for range 2 {
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantClosed(t, ended)
	publish(t, b, bus.Turn{Run: newID(), Version: 1}, "1")
	next(t, lane(t, b, normal)) // the others continue
}

func testClosedBus(t *testing.T, b bus.Bus) {
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Ready(t.Context()); err == nil {
		t.Error("Ready = nil after Close")
	}
	if err := b.IntakeReady(t.Context()); err == nil {
		t.Error("IntakeReady = nil after Close")
	}
	if q, err := b.Turns(t.Context(), normal); err == nil {
		if _, err := q.Next(t.Context()); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("Next = %v, want %v", err, bus.ErrClosed)
		}
	}
}

func wantClosed(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, bus.ErrClosed) {
			t.Errorf("Next = %v, want %v", err, bus.ErrClosed)
		}
	case <-time.After(soon):
		t.Fatal("Next still waits after Close")
	}
}

func testCloseEndsNext(t *testing.T, b bus.Bus) {
	q := lane(t, b, normal)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Next(context.WithoutCancel(t.Context()))
		ended <- err
	}()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, ended)
}
