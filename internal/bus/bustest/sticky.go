package bustest

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func sticky(t *testing.T, b bus.Bus, worker string) bus.TurnQueue {
	t.Helper()
	q, err := b.StickyTurns(t.Context(), worker)
	if err != nil {
		t.Fatalf("StickyTurns: %v", err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// The queue of a worker delivers the turns that are sticky to it, of all lanes, and no other queue does.
func testStickyTurns(t *testing.T, b bus.Bus) {
	own, other := sticky(t, b, "host-1.example/a b"), sticky(t, b, "host-2")
	want := map[state.RunID]bus.Turn{}
	perLane := map[state.Priority]bus.LaneLag{}
	for _, key := range bus.QueueKeys() {
		turn := bus.Turn{Run: newID(), Version: 3, Priority: key.Lane, Noisy: key.Noisy, Tenant: "acme", Sticky: "host-1.example/a b", TraceParent: "00-x"}
		want[turn.Run] = turn
		perLane[key.Lane] = bus.LaneLag{Fetched: perLane[key.Lane].Fetched + 1}
		publish(t, b, turn, "sticky-"+key.String())
		publish(t, b, turn, "sticky-"+key.String()) // a duplicate
	}
	awaitLag(t, b, int64(len(want)))
	if lanes, err := b.LagByLane(t.Context()); err != nil || !maps.Equal(lanes, perLane) {
		t.Errorf("LagByLane = %v, %v; want %v", lanes, err, perLane)
	}
	if oldest, err := b.Backlog(t.Context()); err != nil || len(oldest) != 0 {
		t.Errorf("Backlog = %v, %v: turns in the queue of a worker do not wait in their lanes", oldest, err)
	}
	nothing(t, other)
	for _, key := range bus.QueueKeys() {
		nothing(t, lane(t, b, key))
	}
	got := map[state.RunID]bus.Turn{}
	for range want {
		d := next(t, own)
		got[d.Turn().Run] = d.Turn()
		if err := d.Ack(); err != nil {
			t.Fatalf("Ack: %v", err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns:\n%s", diff)
	}
	nothing(t, own)
	awaitLag(t, b, 0)
}

// A turn in the queue of a worker and the same turn in its lane have the same id, and neither replaces the other: a
// worker that stops publishes in the lane what it has left. The queue keeps its messages until the worker is back.
func testStickyTurnsOfALostWorker(t *testing.T, b bus.Bus) {
	turn := bus.Turn{Run: newID(), Version: 3, Priority: state.Normal, Sticky: "w1"}
	if err := sticky(t, b, "w1").Close(); err != nil {
		t.Fatal(err)
	}
	publish(t, b, turn, "same")
	inLane := turn
	inLane.Sticky = ""
	publish(t, b, inLane, "same")
	if diff := cmp.Diff(inLane, next(t, lane(t, b, normal)).Turn()); diff != "" {
		t.Errorf("turn in the lane:\n%s", diff)
	}
	if diff := cmp.Diff(turn, next(t, sticky(t, b, "w1")).Turn()); diff != "" {
		t.Errorf("turn in the queue of the worker:\n%s", diff)
	}
}
