package natsstore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// The cost of a page depends on its results, not on the number of runs, and rare runs are found.
func TestListCost(t *testing.T) { //nolint:paralleltest // it counts allocations
	costs := map[int]float64{}
	for _, n := range []int{1_000, 20_000} {
		var log strings.Builder
		s := natsstore.Indexed(&log)
		var failed []state.RunID
		for i := range n {
			st := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: "acme", Agent: "a", Status: state.Completed}
			if i%(n/20) == 0 {
				st.Status = state.Failed
				failed = append(failed, st.ID)
			}
			s.Learn(st, 1)
		}
		slices.Sort(failed)
		slices.Reverse(failed)
		costs[n] = testing.AllocsPerRun(10, func() {
			var found []state.RunID
			page, err := s.List(t.Context(), state.Filter{Tenant: "acme", Status: []state.Status{state.Failed, state.Cancelled}})
			for _, st := range page.Runs {
				found = append(found, st.ID)
			}
			if err != nil || page.Next != "" || !slices.Equal(found, failed) {
				t.Errorf("List of failed runs has %d runs, %v, and a next page %q; want %d", len(found), err, page.Next, len(failed))
			}
		})
		// A list without matches ends after a thousand runs.
		page, err := s.List(t.Context(), state.Filter{Tenant: "acme", Loop: "none"})
		if err != nil || len(page.Runs) != 0 || n > 1_000 && page.Next == "" {
			t.Errorf("List of a loop that no run has = %d runs, %v, next %q", len(page.Runs), err, page.Next)
		}
		if log.Len() > 0 {
			t.Errorf("a warning about %d runs: %s", n, &log)
		}
		if n < 20_000 {
			continue
		}
		for range 2 {
			s.Learn(state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Status: state.Completed}, 1)
		}
		if got := log.String(); strings.Count(got, "more runs than the limit of this store") != 1 || !strings.Contains(got, "TURNPIKE_REDIS_URL") {
			t.Errorf("the warning about 20,002 runs is %q, want one line", got)
		}
		if f := s.CheckRuns(); f.OK || !strings.Contains(f.Detail, "20002") || f.Remedy == "" {
			t.Errorf("doctor says %+v", f)
		}
	}
	if costs[20_000] > costs[1_000]+5 {
		t.Errorf("a page costs %v allocations with 1,000 runs and %v with 20,000", costs[1_000], costs[20_000])
	}
}

// Lists reflect the current state of a run.
func TestListMoves(t *testing.T) {
	t.Parallel()
	s := natsstore.Indexed(&strings.Builder{})
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: "acme", Agent: "a", Status: state.Queued}
	filters := map[string]state.Filter{
		"active": {Status: []state.Status{state.Queued, state.Running}}, "waiting": {Status: []state.Status{state.Waiting}},
		"approval": {Waiting: state.WaitingApproval}, "human": {Waiting: state.WaitingHumanInput}, "failed": {Status: []state.Status{state.Failed}},
		"agent": {Agent: "a"}, "all": {},
	}
	look := func(step string, want ...string) {
		t.Helper()
		for name, f := range filters {
			for _, f.Tenant = range []string{"", "acme"} {
				page, err := s.List(t.Context(), f)
				if err != nil || len(page.Runs) == 1 != slices.Contains(want, name) {
					t.Errorf("%s: list %s of tenant %q has %d runs, %v", step, name, f.Tenant, len(page.Runs), err)
				}
			}
		}
	}
	s.Learn(run, 1)
	look("queued", "active", "agent", "all")
	run.Status = state.Running
	s.Learn(run, 2)
	look("running", "active", "agent", "all")
	for i, w := range []struct {
		reason state.Reason
		name   string
	}{{state.WaitingApproval, "approval"}, {state.WaitingHumanInput, "human"}} {
		run.Status, run.Waiting = state.Waiting, &state.Wait{Reason: w.reason}
		s.Learn(run, uint64(3+i))
		look("waiting", "waiting", w.name, "agent", "all")
	}
	run.Status, run.Waiting = state.Failed, nil
	s.Learn(run, 5)
	look("failed", "failed", "agent", "all")
	s.Forget(run.ID)
	look("forgotten")
}

// For an agent with few runs and a status with many, the page has all matches, and the other way round.
func TestListTakesTheShorterList(t *testing.T) {
	t.Parallel()
	s := natsstore.Indexed(&strings.Builder{})
	learn := func(agent string, status state.Status) {
		s.Learn(state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: "acme", Agent: agent, Status: status}, 1)
	}
	for range 3 {
		learn("rare", state.Completed)
		learn("usual", state.Failed)
	}
	for range 1_100 {
		learn("usual", state.Completed)
	}
	for _, f := range []state.Filter{
		{Tenant: "acme", Agent: "rare", Status: []state.Status{state.Completed}},
		{Tenant: "acme", Agent: "usual", Status: []state.Status{state.Failed}},
	} {
		if page, err := s.List(t.Context(), f); err != nil || len(page.Runs) != 3 || page.Next != "" {
			t.Errorf("List(%+v) = %d runs, %v, next %q; want all 3", f, len(page.Runs), err, page.Next)
		}
	}
}
