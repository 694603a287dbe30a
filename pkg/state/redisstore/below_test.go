package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Listing the children of many runs costs as much as for one, and children of other runs in between are
// skipped.
func TestListBelowCost(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb := openAt(t, p.URL, "p"), raw(t, p.URL)
	s.SetFormat(state.Format)
	var roots []state.RunID
	create := func(parent *state.Parent) state.RunID {
		run := newRun(t)
		run.Tenant, run.Parent = "default", parent
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		return run.ID
	}
	for range 200 {
		roots = append(roots, create(nil))
	}
	slices.Sort(roots)
	want := create(&state.Parent{RunID: roots[0], CallID: "c", Depth: 1})
	list := func(parents []state.RunID) cost {
		return spent(t, rdb, func() {
			page, err := s.List(t.Context(), state.Filter{Tenant: "default", Parents: parents})
			if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != want || page.Next != "" {
				t.Fatalf("List = %+v, %v", page, err)
			}
		})
	}
	one := list(roots[:1])
	for range 500 {
		create(&state.Parent{RunID: roots[100], CallID: "c", Depth: 1})
	}
	many := list(slices.Concat(roots[:100], roots[101:]))
	if many.commands > one.commands+10 {
		t.Errorf("%d commands for the children of 199 runs, %d for those of one", many.commands, one.commands)
	}
}

// All children are found if a shard has more of them, and more of another run in between, than are requested at once.
func TestListBelowInOneShard(t *testing.T) {
	t.Parallel()
	s := open(t, testbed.Redis(t))
	var parents, want []state.RunID
	for range 3 {
		parents = append(parents, newRun(t).ID)
	}
	slices.Sort(parents)
	for i, n := range []int{130, 130, 2} {
		for range n {
			run := newRun(t)
			for run.ID.Shard() != 0 {
				run.ID = state.RunID(state.RunPrefix + ulid.Make().String())
			}
			run.Parent = &state.Parent{RunID: parents[i], CallID: "c", Depth: 1}
			if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
				t.Fatal(err)
			}
			if i != 1 {
				want = append(want, run.ID)
			}
		}
	}
	page, err := s.List(t.Context(), state.Filter{Parents: []state.RunID{parents[2], parents[0]}, Limit: 1000})
	if err != nil || page.Next != "" {
		t.Fatalf("List = %d runs, next %q, %v", len(page.Runs), page.Next, err)
	}
	var got []state.RunID
	for _, st := range page.Runs {
		got = append(got, st.ID)
	}
	slices.Sort(want)
	slices.Reverse(want)
	if !slices.Equal(got, want) {
		t.Errorf("List = %d runs, want the %d children, newest first", len(got), len(want))
	}
}
