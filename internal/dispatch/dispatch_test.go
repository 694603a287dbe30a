package dispatch_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const run = state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")

// record is a bus that records what is published.
type record struct {
	ids    []string
	turns  []bus.Turn
	aborts []bus.Abort
}

func (r *record) PublishTurn(_ context.Context, t bus.Turn, id string) error {
	r.ids, r.turns = append(r.ids, id), append(r.turns, t)
	return nil
}

func (r *record) PublishAbort(_ context.Context, a bus.Abort) error {
	r.aborts = append(r.aborts, a)
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A turn has the same message id from every publisher. It gets another id only if it is republished because the
// first was lost, or to overtake it.
func TestIDs(t *testing.T) {
	t.Parallel()
	r := &record{}
	d := dispatch.New(r, nil)
	wake := state.Wake{Publish: true, Version: 7, Priority: state.Normal}
	must(t, d.Publish(t.Context(), dispatch.Turn{Run: run, Version: 7, Priority: state.Normal}))
	must(t, d.Wake(t.Context(), run, wake, ""))
	must(t, d.Follow(t.Context(), bus.Turn{Run: run, Version: 6}, 7, state.Normal))
	must(t, d.Abort(t.Context(), run, "acme", "enough", wake, ""))
	for range 2 {
		must(t, d.Republish(t.Context(), state.Due{Run: run, Version: 7, Priority: state.Normal, Sweeps: 3}, dispatch.Swept()))
	}
	must(t, d.Republish(t.Context(), state.Due{Run: run, Version: 7, Priority: state.Normal, Sweeps: 1, Covered: true}, dispatch.Swept()))
	canonical := string(run) + ":7"
	if last := len(r.ids) - 1; r.ids[last] != canonical {
		t.Errorf("the id of a turn that the backlog covers is %s, want %s", r.ids[last], canonical)
	} else {
		r.ids = r.ids[:last]
	}
	if diff := cmp.Diff([]string{canonical, canonical, canonical, canonical + ":abort"}, r.ids[:4]); diff != "" {
		t.Errorf("ids:\n%s", diff)
	}
	for _, id := range r.ids[4:] {
		if !strings.HasPrefix(id, canonical+":s3:") {
			t.Errorf("id of a republished turn: %s", id)
		}
	}
	if r.ids[4] == r.ids[5] {
		t.Errorf("two republications have one id: %s", r.ids[4])
	}
	if diff := cmp.Diff([]bus.Abort{{Run: run, Tenant: "acme", Reason: "enough", Version: 7}}, r.aborts); diff != "" {
		t.Errorf("aborts:\n%s", diff)
	}
}

// A turn goes to the queue for noisy tenants if the store or this process marks its tenant as noisy; an abort
// overtakes in any case.
func TestQueues(t *testing.T) {
	t.Parallel()
	r := &record{}
	d := dispatch.New(r, func(tenant string) bool { return tenant == "loud" })
	for _, turn := range []dispatch.Turn{
		{Run: run, Version: 1, Priority: state.Low, Tenant: "quiet"},
		{Run: run, Version: 1, Priority: state.Low, Tenant: "quiet", Noisy: true},
		{Run: run, Version: 1, Priority: state.Low, Tenant: "loud"},
	} {
		must(t, d.Publish(t.Context(), turn))
	}
	must(t, d.Wake(t.Context(), run, state.Wake{Publish: true, Version: 1, Priority: state.Low, Tenant: "loud"}, ""))
	must(t, d.WakeAborted(t.Context(), run, state.Wake{Publish: true, Version: 1, Priority: state.Low, Tenant: "loud"}, ""))
	for _, due := range []state.Due{{Tenant: "quiet"}, {Tenant: "quiet", Noisy: true}, {Tenant: "loud"}} {
		due.Run, due.Version, due.Priority = run, 1, state.Low
		must(t, d.Republish(t.Context(), due, dispatch.Swept()))
	}
	for _, noisy := range []bool{false, true} {
		must(t, d.Follow(t.Context(), bus.Turn{Run: run, Version: 1, Tenant: "quiet", Noisy: noisy}, 2, state.Low))
	}
	var got []bus.QueueKey
	for _, turn := range r.turns {
		got = append(got, turn.Queue())
	}
	quiet, loud := bus.QueueKey{Lane: state.Low}, bus.QueueKey{Lane: state.Low, Noisy: true}
	want := []bus.QueueKey{quiet, loud, loud, loud, {Lane: state.High}, quiet, loud, loud, quiet, loud}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("queues:\n%s", diff)
	}
}

// A turn goes to the own queue of the worker that claimed it eagerly, and back to its lane under the same id.
func TestSticky(t *testing.T) {
	t.Parallel()
	r := &record{}
	d := dispatch.New(r, nil)
	must(t, d.Publish(t.Context(), dispatch.Turn{Run: run, Version: 7, Priority: state.Low, Tenant: "acme", Noisy: true, Sticky: "w1", TraceParent: "00-x"}))
	must(t, d.GiveBack(t.Context(), r.turns[0]))
	want := bus.Turn{Run: run, Version: 7, Priority: state.Low, Tenant: "acme", Noisy: true, TraceParent: "00-x"}
	if diff := cmp.Diff(want, r.turns[1]); diff != "" {
		t.Errorf("given back:\n%s", diff)
	}
	if want.Sticky = "w1"; !cmp.Equal(want, r.turns[0]) {
		t.Errorf("published: %+v", r.turns[0])
	}
	if r.ids[0] != string(run)+":7" || r.ids[1] != r.ids[0] {
		t.Errorf("ids: %v", r.ids)
	}
}

// Every turn message has the tenant of its run, whichever function published it.
func TestTenant(t *testing.T) {
	t.Parallel()
	r := &record{}
	d := dispatch.New(r, nil)
	wake := state.Wake{Publish: true, Version: 7, Priority: state.Normal, Tenant: "acme"}
	must(t, d.Publish(t.Context(), dispatch.Turn{Run: run, Version: 7, Priority: state.Normal, Tenant: "acme"}))
	must(t, d.Wake(t.Context(), run, wake, ""))
	must(t, d.WakeAborted(t.Context(), run, wake, ""))
	must(t, d.Follow(t.Context(), bus.Turn{Run: run, Version: 6, Tenant: "acme"}, 7, state.Normal))
	must(t, d.Abort(t.Context(), run, "acme", "enough", wake, ""))
	must(t, d.Republish(t.Context(), state.Due{Run: run, Version: 7, Priority: state.Normal, Tenant: "acme"}, dispatch.Swept()))
	for i, turn := range r.turns {
		if turn.Tenant != "acme" {
			t.Errorf("message %d, %s, has the tenant %q", i, r.ids[i], turn.Tenant)
		}
	}
}

// Nothing is published for a run that needs no turn.
func TestNoWake(t *testing.T) {
	t.Parallel()
	r := &record{}
	d := dispatch.New(r, nil)
	must(t, d.Wake(t.Context(), run, state.Wake{Version: 3}, ""))
	must(t, d.WakeAborted(t.Context(), run, state.Wake{Version: 3}, ""))
	if len(r.ids) > 0 {
		t.Errorf("published %v", r.ids)
	}
}

// The turn of an evicted worker names it, so that the bus can take back the message that the worker holds. That of the
// sweeper names none.
func TestTakenFrom(t *testing.T) {
	t.Parallel()
	r := &record{}
	d := dispatch.New(r, nil)
	for _, cause := range []dispatch.Cause{dispatch.Evicted("w1"), dispatch.Evicted(""), dispatch.Swept()} {
		must(t, d.Republish(t.Context(), state.Due{Run: run, Version: 7, Priority: state.Normal}, cause))
	}
	var got []string
	for _, turn := range r.turns {
		got = append(got, turn.TakenFrom)
	}
	if diff := cmp.Diff([]string{"w1", "", ""}, got); diff != "" {
		t.Errorf("the turns are taken from:\n%s", diff)
	}
}

// An interrupting message wakes a run that waits, and notifies the worker of a run in flight. A repeated one does
// neither.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	r := &record{}
	d := dispatch.New(r, nil)
	must(t, d.Interrupt(t.Context(), run, state.Wake{}, ""))
	if len(r.turns)+len(r.aborts) > 0 {
		t.Errorf("a repetition: turns %v, aborts %v", r.turns, r.aborts)
	}
	must(t, d.Interrupt(t.Context(), run, state.Wake{Publish: true, Version: 3, Priority: state.Normal, Tenant: "acme"}, ""))
	if len(r.turns) != 1 || len(r.aborts) > 0 {
		t.Errorf("a run that waits: turns %v, aborts %v", r.turns, r.aborts)
	}
	must(t, d.Interrupt(t.Context(), run, state.Wake{Version: 4, Priority: state.Normal, Tenant: "acme"}, ""))
	if diff := cmp.Diff([]bus.Abort{{Run: run, Tenant: "acme", Reason: string(state.Interrupted), Version: 4, Interrupt: true}}, r.aborts); diff != "" || len(r.turns) != 1 {
		t.Errorf("a run in flight: turns %v, aborts:\n%s", r.turns, diff)
	}
}
