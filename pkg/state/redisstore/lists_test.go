package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// all pages through a list.
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

// filtersOf are filters for the runs that fill makes.
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

// Runs of format 1 are found by every list, and sweeps take those that rest into the index.
func TestListsOfBothFormats(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	prefix := fmt.Sprint("formats", time.Now().UnixNano())
	s, rdb := openAt(t, url, prefix), raw(t, url)
	var want [][]state.RunID
	compare := func(when string, f state.Filter, want []state.RunID) {
		t.Helper()
		if got, _ := all(t, s, f); !slices.Equal(got, want) {
			t.Errorf("%s, List(%+v) has %d runs, want %d", when, f, len(got), len(want))
		}
	}
	s.SetFormat(1)
	fill(t, s, 200, true, time.Hour)
	fill(t, s, 50, false, time.Hour)
	s.SetFormat(2)
	fill(t, s, 100, true, time.Hour)
	fill(t, s, 50, false, time.Hour)
	for _, f := range filtersOf("") {
		f.Limit = 30
		ids, _ := all(t, s, f)
		if !slices.IsSortedFunc(ids, func(a, b state.RunID) int { return strings.Compare(string(b), string(a)) }) {
			t.Errorf("List(%+v) is not from the newest to the oldest", f)
		}
		want = append(want, ids)
	}
	for i, n := range []int{400, 300, 100, 400, 0, 300, 0, 0, 0} {
		if len(want[i]) != n {
			t.Errorf("List(%+v) has %d runs, want %d", filtersOf("")[i], len(want[i]), n)
		}
	}
	for range 4 {
		if _, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil {
			t.Fatal(err)
		}
	}
	left, err := rdb.ZCard(t.Context(), prefix+":runs").Result()
	if err != nil || left != 50 {
		t.Errorf("%d runs are not in the index, %v; want the 50 that are queued", left, err)
	}
	for i, f := range filtersOf("") {
		compare("after sweeps", f, want[i])
	}
	// A commit takes a run along, and the next sweep from the set.
	id := want[2][99]
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "token", Worker: "w", Lease: time.Minute})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %+v, %v", c, err)
	}
	done, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "commit", State: done, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	compare("after a commit", state.Filter{Status: []state.Status{state.Completed}}, []state.RunID{id})
	compare("after a commit", state.Filter{Status: []state.Status{state.Queued}}, want[2][:99])
	if _, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if left, err := rdb.ZCard(t.Context(), prefix+":runs").Result(); err != nil || left != 49 {
		t.Errorf("%d runs are not in the index, %v; want 49", left, err)
	}
	compare("at the end", state.Filter{Status: []state.Status{state.Completed}}, []state.RunID{id})
}

// A run that is older than the counts of tenants is in the lists of its tenant once a commit
// has taken it to format 2, and is counted until it ends.
func TestListOfARunWithoutTenant(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	prefix := fmt.Sprint("tenant", time.Now().UnixNano())
	s, rdb := openAt(t, url, prefix), raw(t, url)
	run := newRun(t)
	run.Tenant, run.Agent = "team", "a"
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	shard := fmt.Sprintf("%s:{s%03d}", prefix, run.ID.Shard())
	if err := rdb.HDel(t.Context(), shard+":run:"+string(run.ID), "tn").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Del(t.Context(), shard+":tenants").Err(); err != nil {
		t.Fatal(err)
	}
	s.SetFormat(2)
	for version, r := range []state.Reason{state.NextTurn, state.EndCompleted} {
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: int64(version + 1), Token: fmt.Sprint("token", version), Worker: "w", Lease: time.Minute})
		if err != nil || c.Outcome != state.Claimed {
			t.Fatalf("Claim = %+v, %v", c, err)
		}
		next, err := c.State.Move(r, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: fmt.Sprint("commit", version), State: next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		for _, f := range []state.Filter{{Tenant: "team"}, {Tenant: "team", Agent: "a"}, {Tenant: "team", Status: []state.Status{next.Status}}} {
			if ids, _ := all(t, s, f); len(ids) != 1 {
				t.Errorf("List(%+v) has %d runs", f, len(ids))
			}
		}
		counted, err := rdb.HGet(t.Context(), shard+":tenants", "team").Result()
		if want := map[state.Reason]string{state.NextTurn: "1"}[r]; counted != want {
			t.Errorf("after %s %q runs of the tenant are counted, want %q, %v", r, counted, want, err)
		}
	}
}

// A run whose header is damaged does not keep the others out of the index.
func TestUpgradePassesADamagedRun(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	prefix := fmt.Sprint("damaged", time.Now().UnixNano())
	s, rdb := openAt(t, url, prefix), raw(t, url)
	fill(t, s, 5, true, time.Hour)
	oldest, err := rdb.ZRange(t.Context(), prefix+":runs", 0, 0).Result()
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("%s:{s%03d}:run:%s", prefix, state.RunID(oldest[0]).Shard(), oldest[0])
	if err := rdb.HSet(t.Context(), key, "h", "damaged").Err(); err != nil {
		t.Fatal(err)
	}
	s.SetFormat(2)
	if _, err := s.Sweep(t.Context(), 10, time.Hour, nil); err == nil || !strings.Contains(err.Error(), oldest[0]) {
		t.Errorf("Sweep = %v, want the run named", err)
	}
	if left, err := rdb.ZRange(t.Context(), prefix+":runs", 0, -1).Result(); err != nil || !slices.Equal(left, oldest) {
		t.Errorf("%d runs are not in the index, %v; want the damaged one", len(left), err)
	}
}

// A list costs by what it returns, and a page that nothing matches ends.
func TestListCost(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb, total := openAt(t, p.URL, "list"), raw(t, p.URL), 0
	s.SetFormat(2)
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
	if n, err := rdb.Exists(t.Context(), "list:runs", "list:runs:default").Result(); err != nil || n != 0 {
		t.Errorf("%d keys have all runs, %v", n, err)
	}
}

// Of an agent with few runs and a status with many the page has all, and the other way round.
func TestListTakesTheShorterList(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), fmt.Sprint("shorter", time.Now().UnixNano()))
	s.SetFormat(2)
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

// A page of large runs ends early: it costs by bytes, not by how many runs somebody asks for.
func TestListBytes(t *testing.T) {
	t.Parallel()
	const n, size, most = 60, 100 << 10, 1 << 20
	s := openAt(t, testbed.Redis(t), fmt.Sprint("bytes", time.Now().UnixNano()))
	s.SetFormat(2)
	above := &state.Parent{RunID: newRun(t).ID, CallID: "c", Depth: 1}
	for range n {
		run := newRun(t)
		run.Parent, run.Metadata = above, map[string]string{"large": strings.Repeat("x", size)}
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
			if len(page.Runs) > 2*most/size+12 {
				t.Errorf("a page has %d runs of %d bytes", len(page.Runs), size)
			}
			for _, st := range page.Runs {
				seen[st.ID] = true
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
