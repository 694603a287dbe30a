package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// all returns all pages of a list.
func all(t *testing.T, s *redisstore.Store, f state.Filter) (ids []state.RunID, pages int) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Runs {
			ids = append(ids, r.ID)
		}
		pages++
		if f.Cursor = page.Next; f.Cursor == "" {
			return ids, pages
		}
	}
}

// filtersOf returns filters for the runs that fill creates.
func filtersOf(tenant string) []state.Filter {
	return []state.Filter{
		{Tenant: tenant},
		{Tenant: tenant, Status: []state.Status{state.Waiting}},
		{Tenant: tenant, Status: []state.Status{state.Queued}},
		{Tenant: tenant, Status: []state.Status{state.Running, state.Queued, state.Waiting}},
		{Tenant: tenant, Status: []state.Status{state.Completed}},
		{Tenant: tenant, Waiting: state.WaitingSchedule},
		{Tenant: tenant, Waiting: state.WaitingHumanInput},
		{Tenant: tenant, Agent: "nobody"},
		{Tenant: tenant, Metadata: map[string]string{"k": "v"}},
	}
}

// Each list has the runs that its filter selects, newest first, and a commit moves a run from one to another.
func TestLists(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), fmt.Sprint("lists", time.Now().UnixNano()))
	fill(t, s, 300, true, time.Hour)
	fill(t, s, 100, false, time.Hour)
	var queued []state.RunID
	for i, n := range []int{400, 300, 100, 400, 0, 300, 0, 0, 0} {
		f := filtersOf("")[i]
		f.Limit = 30
		ids, _ := all(t, s, f)
		if len(ids) != n {
			t.Errorf("List(%+v) has %d runs, want %d", f, len(ids), n)
		}
		if !slices.IsSortedFunc(ids, func(a, b state.RunID) int { return strings.Compare(string(b), string(a)) }) {
			t.Errorf("List(%+v) is not newest first", f)
		}
		if i == 2 {
			queued = ids
		}
	}
	id := queued[99]
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "token", Worker: "w", Lease: time.Minute})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %+v, %v", c, err)
	}
	done, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "commit", State: &done, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[state.Status][]state.RunID{state.Completed: {id}, state.Queued: queued[:99]} {
		if got, _ := all(t, s, state.Filter{Status: []state.Status{status}}); !slices.Equal(got, want) {
			t.Errorf("after a commit %d runs are %s, want %d", len(got), status, len(want))
		}
	}
	more := state.UserText("more")
	if _, err := s.Signal(t.Context(), id, state.Signal{ID: "more", Message: &more}, time.Hour); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[state.Status][]state.RunID{state.Completed: nil, state.Queued: queued} {
		if got, _ := all(t, s, state.Filter{Status: []state.Status{status}}); !slices.Equal(got, want) {
			t.Errorf("after a message that continues the run %d runs are %s, want %d", len(got), status, len(want))
		}
	}
}

// The cost of a list depends on its results, and a list without matches ends.
func TestListCost(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb, total := openAt(t, p.URL, "list"), raw(t, p.URL), 0
	with := map[int]map[int]cost{}
	for _, n := range []int{few, many} {
		fill(t, s, n-total, true, time.Hour)
		total = n
		for i, f := range filtersOf("") {
			if with[i] == nil {
				with[i] = map[int]cost{}
			}
			with[i][n] = spent(t, rdb, func() {
				if _, err := s.List(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	for i, f := range filtersOf("") {
		compare(t, fmt.Sprintf("a page of List(%+v)", f), with[i])
	}
	if ids, pages := all(t, s, state.Filter{Metadata: map[string]string{"k": "v"}}); len(ids) > 0 || pages != many/1000+1 && pages != many/1000 {
		t.Errorf("a list without a match has %d runs on %d pages, want a page for every thousand runs", len(ids), pages)
	}
}

// A page takes one round trip, whatever its filter, and two on a cluster: each counts when the store is distant. Where
// the filter rejects runs, a list doubles the number it reads at a time.
func TestListRoundTrips(t *testing.T) {
	t.Parallel()
	const tenant, runs = "acme", 1_500
	prefix := fmt.Sprint("rounds", time.Now().UnixNano())
	s := openAt(t, testbed.Redis(t), prefix)
	var g errgroup.Group
	g.SetLimit(32)
	for i := range runs {
		g.Go(func() error {
			run := newRun(t)
			run.Tenant, run.Agent, run.Metadata = tenant, fmt.Sprint("agent-", i%3), map[string]string{"user": fmt.Sprint(i % 5)}
			_, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour, Indexed: []string{"user"}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	spread := openAt(t, testbed.Redis(t), prefix)
	spread.Spread()
	var trips atomic.Int64
	for _, s := range []*redisstore.Store{s, spread} {
		if _, err := s.List(t.Context(), state.Filter{Limit: 1}); err != nil { // loads the scripts
			t.Fatal(err)
		}
		s.AfterEach(func() { trips.Add(1) })
	}
	queued, indexed := []state.Status{state.Queued}, map[string]state.RunID{"user": "run_0"}
	for _, tt := range []struct {
		filter      state.Filter
		runs        int
		one, spread int64 // round trips
	}{
		{state.Filter{}, 50, 1, 2},
		{state.Filter{Bytes: 8 << 20}, 50, 1, 2},
		{state.Filter{Status: queued}, 50, 1, 2},
		{state.Filter{Agent: "agent-1", Status: queued}, 50, 1, 2},
		{state.Filter{Agent: "nobody", Status: queued}, 0, 1, 1},
		{state.Filter{Metadata: map[string]string{"user": "2"}, Indexed: indexed}, 50, 1, 2},
		{state.Filter{Metadata: map[string]string{"user": "2"}, Indexed: indexed, Status: queued}, 50, 1, 2},
		{state.Filter{Limit: 1000, Bytes: 8 << 20}, 1000, 6, 7}, // two hundred runs at a time
		{state.Filter{Limit: 20, Metadata: map[string]string{"user": "nobody"}}, 0, 9, 14},
	} {
		f := tt.filter
		f.Tenant = tenant
		list := func(s *redisstore.Store, most int64) (ids []state.RunID, next string) {
			trips.Store(0)
			page, err := s.List(t.Context(), f)
			if err != nil || len(page.Runs) != tt.runs {
				t.Fatalf("List(%+v) = %d runs, %v; want %d", f, len(page.Runs), err, tt.runs)
			}
			if n := trips.Load(); n > most {
				t.Errorf("List(%+v) takes %d round trips, want at most %d", f, n, most)
			}
			for _, run := range page.Runs {
				ids = append(ids, run.ID)
			}
			return ids, page.Next
		}
		ids, next := list(s, tt.one)
		if on, at := list(spread, tt.spread); !slices.Equal(on, ids) || at != next {
			t.Errorf("List(%+v) = %v, next %q; on a cluster %v, next %q", f, ids, next, on, at)
		}
	}
}

// Headers of 1 MB cost one round trip more.
func TestListRoundTripsOfLargeRuns(t *testing.T) {
	t.Parallel()
	const n, size = 30, 1 << 20
	s := openAt(t, testbed.Redis(t), fmt.Sprint("large", time.Now().UnixNano()))
	for range n {
		run := newRun(t)
		run.Tenant, run.Metadata = "acme", map[string]string{"large": strings.Repeat("x", size)}
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	f := state.Filter{Tenant: "acme", Bytes: 8 << 20}
	if _, err := s.List(t.Context(), f); err != nil { // loads the script
		t.Fatal(err)
	}
	var trips atomic.Int64
	s.AfterEach(func() { trips.Add(1) })
	if page, err := s.List(t.Context(), f); err != nil || len(page.Runs) != 7 || page.Next != string(page.Runs[6].ID) {
		t.Errorf("a page has %d runs, %v, next %q; want 7", len(page.Runs), err, page.Next)
	}
	if n := trips.Load(); n != 2 {
		t.Errorf("a page of large runs takes %d round trips, want 2", n)
	}
}

// The runs of a batch have the same time in their ids, and are in order too.
func TestListOfBatch(t *testing.T) {
	t.Parallel()
	const n = 300
	s := openAt(t, testbed.Redis(t), fmt.Sprint("moment", time.Now().UnixNano()))
	first := newRun(t)
	want := make([]state.RunID, n)
	for i := range n {
		run := first
		run.ID, run.Tenant = first.ID.Plus(i), "acme"
		want[n-1-i] = run.ID
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 20, 250, 1000} {
		if got, _ := all(t, s, state.Filter{Tenant: "acme", Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("pages of %d have %d runs, or in another order: %v", limit, len(got), got)
		}
	}
}

// For an agent with few runs and a status with many, the page has all matches, and the other way round.
func TestListTakesTheShorterList(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), fmt.Sprint("shorter", time.Now().UnixNano()))
	for range 3 {
		run := newRun(t)
		run.Agent = "rare"
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, s, 1_100, false, time.Hour)
	for status, want := range map[state.Status]int{state.Queued: 3, state.Waiting: 0} {
		f := state.Filter{Agent: "rare", Status: []state.Status{status}}
		if page, err := s.List(t.Context(), f); err != nil || len(page.Runs) != want || page.Next != "" {
			t.Errorf("List(%+v) = %d runs, %v, next %q; want all %d", f, len(page.Runs), err, page.Next, want)
		}
	}
}

// A page of large runs ends early: its cost is bounded in bytes, not by the requested number of runs.
func TestListBytes(t *testing.T) {
	t.Parallel()
	const n, small, size, most = 60, 30, 100 << 10, 1 << 20
	s := openAt(t, testbed.Redis(t), fmt.Sprint("bytes", time.Now().UnixNano()))
	above := &state.Parent{RunID: newRun(t).ID, CallID: "c", Depth: 1}
	for i := range n { // the newest are small, so their sizes say nothing about the others
		run := newRun(t)
		if run.Parent = above; i < n-small {
			run.Metadata = map[string]string{"large": strings.Repeat("x", size)}
		}
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []state.Filter{{}, {Parents: []state.RunID{above.RunID, "run_0"}}} {
		seen := map[state.RunID]bool{}
		for f.Limit, f.Bytes = 1000, most; ; {
			page, err := s.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, st := range page.Runs {
				seen[st.ID] = true
				bytes += len(st.Metadata["large"])
			}
			if bytes > most {
				t.Errorf("a page has %d runs of %d bytes, want at most %d bytes", len(page.Runs), bytes, most)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		if len(seen) != n {
			t.Errorf("the pages below %v have %d runs, want %d", f.Parents, len(seen), n)
		}
	}
	if page, err := s.List(t.Context(), state.Filter{Limit: 1000}); err != nil || len(page.Runs) != n {
		t.Errorf("a list without a bound has %d runs, %v", len(page.Runs), err)
	}
}

// The tenants of a shard, and the workers that hold leases in it, take few round trips however many they are: each
// counts when the store is distant.
func TestManyOwnersInFewRoundTrips(t *testing.T) {
	t.Parallel()
	prefix := fmt.Sprint("owners", time.Now().UnixNano())
	s, rdb := openAt(t, testbed.Redis(t), prefix), raw(t, testbed.Redis(t))
	var want []string
	var members []redis.Z
	for i := range 1_200 {
		want = append(want, fmt.Sprintf("w%04d", i))
		for n := range 3 {
			members = append(members, redis.Z{Member: fmt.Sprintf("%s\x00run_%d", want[i], n)})
		}
	}
	if _, err := s.Owners(t.Context()); err != nil { // loads the script
		t.Fatal(err)
	}
	key := s.LeasesKey()
	t.Cleanup(func() { rdb.Del(context.Background(), key) })
	if err := rdb.ZAdd(t.Context(), key, members...).Err(); err != nil {
		t.Fatal(err)
	}
	var trips atomic.Int64
	s.AfterEach(func() { trips.Add(1) })
	got, err := s.Owners(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Owners = %d workers, %v; want %d", len(got), err, len(want))
	}
	if n := trips.Load(); n > 3 {
		t.Errorf("Owners takes %d round trips for %d workers, want at most 3", n, len(want))
	}
}
