package upkeep_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// When a run of a batch leaves its lane, the next run of the lane starts that has neither ended nor was deleted, and
// no run behind it, even if it was started before. The runs of the other lanes do not matter. The store has no marker
// of run 5, but knows that it was deleted, if nothing else is known of it.
func TestLaneHasOneRun(t *testing.T) {
	t.Parallel()
	const lanes, size = 2, 8
	is := func(s state.Status) error { return &state.NotWaitingError{Status: s, Name: "start"} }
	for name, test := range map[string]struct {
		behind []error // how the next runs of the lane take their start
		asked  int     // how many of them are asked
	}{
		"pending":                         {[]error{nil, nil, nil}, 1},
		"running":                         {[]error{is(state.Running), nil, nil}, 1},
		"queued":                          {[]error{is(state.Queued), nil, nil}, 1},
		"waits for a person":              {[]error{is(state.Waiting), nil, nil}, 1},
		"completed":                       {[]error{is(state.Completed), nil, nil}, 2},
		"deleted":                         {[]error{state.ErrDeleted, nil, nil}, 2},
		"ended, before a running one":     {[]error{is(state.Failed), is(state.Running), nil}, 2},
		"ended and deleted":               {[]error{is(state.Cancelled), state.ErrDeleted, nil}, 3},
		"all ended":                       {[]error{is(state.Failed), is(state.Incomplete), is(state.Completed)}, 3},
		"not stored yet":                  {[]error{state.ErrNotFound, nil, nil}, 1},
		"last one not stored yet":         {[]error{state.ErrDeleted, is(state.Completed), state.ErrNotFound}, 3},
		"deleted long ago":                {[]error{is(state.Completed), state.ErrNotFound, nil}, 3},
		"ended, and the rest not started": {[]error{is(state.Completed), nil, state.ErrNotFound}, 2},
	} {
		f := newFamily(t)
		f.takes, f.past = map[state.RunID]error{}, map[int]state.Status{5: state.Completed}
		f.wake = state.Wake{Publish: true, Version: 2, Priority: state.Normal, Tenant: "acme"}
		lane := make([]state.RunID, len(test.behind))
		for i, err := range test.behind {
			lane[i] = childID.Plus(1 + (i+1)*lanes)
			f.takes[lane[i]] = err
		}
		s := f.submitted(childID.Plus(1), "ada")
		s.Status, s.Batch = state.Completed, &state.Batch{Index: 1, Size: size, MaxParallel: lanes}
		if _, err := f.Store.Create(t.Context(), state.NewRun{State: s}); err != nil {
			t.Fatal(err)
		}
		f.finalize(s)
		if got := slices.Sorted(maps.Keys(f.signals)); !slices.Equal(got, lane[:test.asked]) {
			t.Errorf("next is %s: asked to start %v, want %v", name, got, lane[:test.asked])
		}
		var published []state.RunID
		for _, turn := range f.turns {
			published = append(published, turn.Run)
		}
		var started []state.RunID
		if last := lane[test.asked-1]; f.takes[last] == nil {
			started = append(started, last)
		}
		if !slices.Equal(published, started) {
			t.Errorf("next is %s: published turns of %v, want of %v", name, published, started)
		}
		for id, signals := range f.signals {
			if len(signals) != 1 || !signals[0].Start || signals[0].ID != "start:"+string(id) {
				t.Errorf("next is %s: %s got %+v, want one start with the id of every start of this run", name, id, signals)
			}
		}
	}
}

// A run that was cancelled while it was pending lets the next one start only if no run before it is in the lane.
func TestSkippedRunStartsTheNext(t *testing.T) {
	t.Parallel()
	for before, starts := range map[state.Status]bool{state.Running: false, state.Waiting: false, state.Completed: true} {
		f := newFamily(t)
		first, s := f.submitted(childID, "ada"), f.submitted(childID.Plus(1), "ada")
		first.Status, first.Batch = before, &state.Batch{Index: 0, Size: 3, MaxParallel: 1}
		s.Status, s.Batch = state.Cancelled, &state.Batch{Index: 1, Size: 3, MaxParallel: 1, Skipped: true}
		f.runs = map[state.RunID]state.State{first.ID: first}
		if _, err := f.Store.Create(t.Context(), state.NewRun{State: s}); err != nil {
			t.Fatal(err)
		}
		f.finalize(s)
		if got := f.signals[childID.Plus(2)]; (len(got) == 1 && got[0].Start) != starts || len(f.signals) > 1 {
			t.Errorf("the run before is %s: signals %+v, want the next run started: %t", before, f.signals, starts)
		}
	}
}
