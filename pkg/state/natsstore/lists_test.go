package natsstore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
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

// A page of large runs ends early, in the process that has created them and in one that has read them.
func TestListBytes(t *testing.T) {
	t.Parallel()
	const n, size, most = 30, 100 << 10, 1 << 20
	nc := testbed.NATS(t)
	writer := open(t, nc, "p")
	for i := range n {
		run := newRun(t)
		if i%2 == 0 {
			run.Metadata = map[string]string{"large": strings.Repeat("x", size)}
		}
		if _, err := writer.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]*natsstore.Store{"writer": writer, "reader": open(t, nc, "p")} {
		for _, bound := range []int{most, 1} {
			var seen []state.RunID
			for f := (state.Filter{Limit: 1000, Bytes: bound}); ; {
				page, err := s.List(t.Context(), f)
				if err != nil {
					t.Fatal(err)
				}
				bytes := 0
				for _, st := range page.Runs {
					seen = append(seen, st.ID)
					bytes += len(st.Metadata["large"])
				}
				if bytes > bound && len(page.Runs) > 1 {
					t.Errorf("%s: a page has %d runs of %d bytes, want at most %d bytes", name, len(page.Runs), bytes, bound)
				}
				if f.Cursor = page.Next; f.Cursor == "" {
					break
				}
			}
			if distinct := slices.Compact(slices.Clone(seen)); len(seen) != n || len(distinct) != n {
				t.Errorf("%s: pages of %d bytes have %d runs, %d of them distinct, want %d", name, bound, len(seen), len(distinct), n)
			}
		}
		if page, err := s.List(t.Context(), state.Filter{Limit: 1000}); err != nil || len(page.Runs) != n || page.Next != "" {
			t.Errorf("%s: a list without a bound has %d runs, %v", name, len(page.Runs), err)
		}
	}
}
