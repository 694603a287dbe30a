package restore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// unread is a queue whose messages no worker has received.
type unread []bus.Turn

func (u unread) PendingTurns(_ context.Context, fn func(t bus.Turn, untouched bool)) error {
	for _, t := range u {
		fn(t, true)
	}
	return nil
}

// mixed is a queue with messages that workers have received, and others.
type mixed struct {
	unread

	read []bus.Turn
}

func (m mixed) PendingTurns(ctx context.Context, fn func(t bus.Turn, untouched bool)) error {
	for _, t := range m.read {
		fn(t, false)
	}
	return m.unread.PendingTurns(ctx, fn)
}

// first is the id of the first run of each test; that of the run i is first.Plus(i).
const first = state.RunID("run_01ARZ3NDEKTSV4RRFFQ69G5FA0")

// copied is a store in which every run has the place i in a batch with one lane, or waits for children.
type copied struct {
	t        *testing.T
	store    state.Store
	messages unread
}

func (c *copied) add(i int, change func(*state.State), reason state.Reason, e state.Entry) {
	c.t.Helper()
	at := state.At(time.Now())
	e.At = at
	run := state.State{ID: first.Plus(i), Tenant: state.DefaultTenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{state.UserText("x")}})
	if err != nil {
		c.t.Fatal(err)
	}
	change(&run)
	if reason != "" {
		if run, err = run.Move(reason, e); err != nil {
			c.t.Fatal(err)
		}
	}
	if _, err := c.store.Create(c.t.Context(), state.NewRun{State: run}); err != nil {
		c.t.Fatal(err)
	}
}

// lane places a run in the batch.
func lane(i int, pending, counts bool) func(*state.State) {
	return func(s *state.State) {
		s.Batch = &state.Batch{Index: i, Size: 6, MaxParallel: 1, PendingInBatch: pending, CountWaiting: counts}
	}
}

func waits(reason state.Reason) state.Entry {
	return state.Entry{Waiting: &state.Wait{Reason: reason, Since: state.At(time.Now()), Calls: []state.WaitCall{}}}
}

func (c *copied) pending(i int) {
	c.t.Helper()
	c.add(i, lane(i, true, false), state.WaitingSchedule, waits(state.WaitingSchedule))
}

func (c *copied) parent(i int, children ...int) {
	c.t.Helper()
	c.add(i, func(s *state.State) {
		for _, child := range children {
			s.Open = append(s.Open, state.OpenCall{ID: fmt.Sprint("c", child), Name: "delegate", Needs: state.NeedChild, Child: first.Plus(child)})
		}
	}, state.WaitingChild, waits(state.WaitingChild))
}

func alone(*state.State) {}

// A run that waits for another one is found if that one may have continued, has ended or is missing: then it may have
// continued as well.
func TestRunsThatWaitForOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		runs func(c *copied)
		want []int
	}{
		"a batch behind a run in flight": {func(c *copied) {
			c.add(0, lane(0, false, false), "", state.Entry{})
			c.pending(1)
			c.pending(2)
			c.pending(3)
		}, []int{0, 1, 2, 3}},
		"a batch behind a run that no worker has received": {func(c *copied) {
			c.add(0, lane(0, false, false), "", state.Entry{})
			c.messages = unread{{Run: first, Version: 1}}
			c.pending(1)
			c.pending(2)
		}, nil},
		"a batch behind a run that ended": {func(c *copied) {
			c.add(0, lane(0, false, false), state.EndCompleted, state.Entry{})
			c.pending(1)
			c.pending(2)
		}, []int{1, 2}},
		"a batch behind a missing run": {func(c *copied) {
			c.pending(1)
			c.pending(2)
		}, []int{1, 2}},
		"a batch behind one that was skipped, and a run that no worker has received": {func(c *copied) {
			c.add(0, lane(0, false, false), "", state.Entry{})
			c.messages = unread{{Run: first, Version: 1}}
			c.add(1, lane(1, true, false), state.EndAbortedWaiting, state.Entry{})
			c.pending(2)
		}, nil},
		"a batch behind an approval": {func(c *copied) {
			c.add(0, lane(0, false, true), state.WaitingApproval, waits(state.WaitingApproval))
			c.pending(1)
		}, nil},
		"a batch behind an approval that does not count": {func(c *copied) {
			c.add(0, lane(0, false, false), state.WaitingApproval, waits(state.WaitingApproval))
			c.pending(1)
		}, []int{1}},
		"a batch behind a later start": {func(c *copied) {
			c.add(0, lane(0, false, false), "", state.Entry{})
			c.add(1, func(s *state.State) {
				lane(1, true, false)(s)
				s.ResumeAt = state.At(time.Now().Add(time.Hour))
			}, state.WaitingSchedule, waits(state.WaitingSchedule))
			c.pending(2)
		}, []int{0}},
		"parents of a run in flight": {func(c *copied) {
			c.parent(10, 11)
			c.parent(11, 12)
			c.add(12, alone, "", state.Entry{})
		}, []int{10, 11, 12}},
		"parents of an approval": {func(c *copied) {
			c.parent(10, 11)
			c.parent(11, 12)
			c.add(12, alone, state.WaitingApproval, waits(state.WaitingApproval))
		}, nil},
		"a parent of a child that ended": {func(c *copied) {
			c.parent(10, 11, 12)
			c.add(11, alone, state.WaitingApproval, waits(state.WaitingApproval))
			c.add(12, alone, state.EndCompleted, state.Entry{})
		}, []int{10}},
		"a parent of a missing child": {func(c *copied) {
			c.parent(10, 11)
		}, []int{10}},
		"a batch behind a parent": {func(c *copied) {
			c.add(0, func(s *state.State) {
				lane(0, false, false)(s)
				s.Open = []state.OpenCall{{ID: "c", Name: "delegate", Needs: state.NeedChild, Child: first.Plus(10)}}
			}, state.WaitingChild, waits(state.WaitingChild))
			c.pending(1)
			c.add(10, alone, "", state.Entry{})
		}, []int{0, 1, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &copied{t: t, store: memstore.New(memstore.Config{})}
			test.runs(c)
			r := &Review{store: c.store, pending: c.messages}
			found, err := r.find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var want, got []state.RunID
			for _, i := range test.want {
				want = append(want, first.Plus(i))
			}
			for _, run := range found {
				got = append(got, state.RunID(run.RunID))
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("found runs:\n%s", diff)
			}
		})
	}
}

// A run is left out only if no worker has received a message of its turn: the turn may have several messages.
func TestActiveRunsByTheirMessages(t *testing.T) {
	t.Parallel()
	turn := func(version int64) bus.Turn { return bus.Turn{Run: first, Version: version} }
	for name, test := range map[string]struct {
		unread, read []bus.Turn
		want         string // how the run is found, if it is
	}{
		"none":                           {nil, nil, api.RestoreActive},
		"one that was not received":      {[]bus.Turn{turn(1)}, nil, ""},
		"two that were not received":     {[]bus.Turn{turn(1), turn(1)}, nil, ""},
		"one that was received":          {nil, []bus.Turn{turn(1)}, api.RestoreActive},
		"two of which one was received":  {[]bus.Turn{turn(1)}, []bus.Turn{turn(1)}, api.RestoreActive},
		"also one of a later turn":       {[]bus.Turn{turn(1), turn(2)}, nil, api.RestoreAhead},
		"only one of an earlier version": {[]bus.Turn{turn(0)}, nil, api.RestoreActive},
	} {
		c := &copied{t: t, store: memstore.New(memstore.Config{})}
		c.add(0, alone, "", state.Entry{})
		found, err := (&Review{store: c.store, pending: mixed{test.unread, test.read}}).find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(found) > 0 {
			got = found[0].Found
		}
		if got != test.want || len(found) > 1 {
			t.Errorf("messages: %s: the run is found as %q, want %q", name, got, test.want)
		}
	}
}

// Every active run is found, however many the store has.
func TestManyActiveRuns(t *testing.T) {
	t.Parallel()
	c := &copied{t: t, store: memstore.New(memstore.Config{})}
	const each = 2*pageSize + 1
	for i := range each {
		c.add(i, alone, "", state.Entry{})
		c.add(each+i, func(s *state.State) { s.ResumeAt = state.At(time.Now().Add(-time.Minute)) }, state.WaitingSchedule, waits(state.WaitingSchedule))
	}
	found, err := (&Review{store: c.store, pending: c.messages}).find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2*each {
		t.Errorf("found %d runs of %d", len(found), 2*each)
	}
}
