package statetest

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The store's time equals the one that its claims return.
func testNow(t *testing.T, s *suite) {
	now := func() time.Time {
		at, err := s.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	run := s.create(t)
	before := now().Truncate(time.Millisecond)
	c := s.mustClaim(t, run.ID, run.Version)
	if after := now(); c.Now.Before(before) || c.Now.After(after) {
		t.Errorf("Claim returned %s as the time, want one between %s and %s, which Now returned before and after it", c.Now, before, after)
	}
}

func testReady(t *testing.T, s *suite) {
	for range 3 {
		if err := s.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := s.List(t.Context(), state.Filter{}); err != nil || len(page.Runs) > 0 {
		t.Fatalf("List = %v, %v: the read left something behind", page, err)
	}
}

func testCreate(t *testing.T, s *suite) {
	run := newRun(t)
	run.Metadata = map[string]string{"k": "v"}
	made, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: long})
	if got := made.State; err != nil || made.Existing || got.ID != run.ID || got.Status != state.Queued {
		t.Fatalf("Create = %s, %v, %v", encode(t, got), made.Existing, err)
	}
	loaded, err := s.Load(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Format, run.Format = 0, 0
	if diff := cmp.Diff(encode(t, run), encode(t, loaded)); diff != "" {
		t.Errorf("Load:\n%s", diff)
	}
	if made, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: long}); err != nil || !made.Existing {
		t.Errorf("second Create = existing %v, %v", made.Existing, err)
	}
	if _, err := s.Load(t.Context(), newRun(t).ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Load of a missing run = %v", err)
	}
	s.notDue(t, run.ID)
}

// Concurrent submissions with one key create one run.
func testCreateIdempotent(t *testing.T, s *suite) {
	var mu sync.Mutex
	ids := map[state.RunID]int{}
	fresh := 0
	var wg sync.WaitGroup
	for range 8 {
		run := newRun(t)
		wg.Go(func() {
			made, err := s.Create(t.Context(), state.NewRun{State: run, Key: "key", Fingerprint: "f", RedeliveryDelay: long})
			if err != nil {
				t.Errorf("Create: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[made.State.ID]++
			if !made.Existing {
				fresh++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || fresh != 1 {
		t.Errorf("%d runs, %d of them new; want 1 and 1", len(ids), fresh)
	}
	if _, err := s.Create(t.Context(), state.NewRun{State: newRun(t), Key: "key", Fingerprint: "other", RedeliveryDelay: long}); !errors.Is(err, state.ErrIdempotencyConflict) {
		t.Errorf("Create with another body = %v", err)
	}
	other := newRun(t)
	other.Tenant = "other"
	if made, err := s.Create(t.Context(), state.NewRun{State: other, Key: "key", Fingerprint: "f", RedeliveryDelay: long}); err != nil || made.Existing {
		t.Errorf("Create of another tenant = existing %v, %v", made.Existing, err)
	}
}

// A run whose message was lost is due again and again (I2).
func testSweepLostMessage(t *testing.T, s *suite) {
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: short}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		d := s.sweepFor(t, run.ID, time.Millisecond)
		if !d.NeedsTurn || d.Version != 1 || d.Sweeps != n || d.Priority != state.Normal {
			t.Fatalf("Sweep %d = %+v", n, d)
		}
	}
	// A run whose worker was lost is due once the lease has ended.
	q := s.request(run.ID, 1, "w1")
	q.Lease, q.RedeliveryDelay = short, time.Millisecond
	if c, err := s.Claim(t.Context(), q); err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	if d := s.sweepFor(t, run.ID, long); !d.NeedsTurn {
		t.Fatalf("Sweep = %+v", d)
	}
	c := s.mustClaim(t, run.ID, 1)
	if c.Attempt != 2 {
		t.Errorf("attempt = %d, want 2", c.Attempt)
	}
	s.notDue(t, run.ID)
}

// If several sweepers run at once, one gets a run.
func testSweepRace(t *testing.T, s *suite) {
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: 0}); err != nil {
		t.Fatal(err)
	}
	var found atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			due, err := s.Sweep(t.Context(), 1000, long, nil)
			if err != nil {
				t.Errorf("Sweep: %v", err)
			}
			for _, d := range due {
				if d.Run == run.ID {
					found.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if found.Load() != 1 {
		t.Errorf("%d sweepers got the run, want 1", found.Load())
	}
}

// A sweep returns at most limit runs, and the next sweeps return the rest.
func testSweepLimit(t *testing.T, s *suite) {
	const runs = 9
	for range runs {
		if _, err := s.Create(t.Context(), state.NewRun{State: newRun(t), RedeliveryDelay: 0}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[state.RunID]bool{}
	for range 3 {
		due, err := s.Sweep(t.Context(), 4, long, nil)
		if err != nil || len(due) > 4 {
			t.Fatalf("Sweep = %d runs, %v; want 4 at most", len(due), err)
		}
		for _, d := range due {
			if seen[d.Run] {
				t.Errorf("run %s was due twice within its delay", d.Run)
			}
			seen[d.Run] = true
		}
	}
	if len(seen) != runs {
		t.Errorf("%d runs were due, want %d", len(seen), runs)
	}
}

// Sweep queues a run whose wait has expired; one that waits without a limit is never due (I6).
func testSweepSchedule(t *testing.T, s *suite) {
	for _, finalized := range []int64{2, 0} { // a run that was not finalized is due as well
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		next := *c.State
		next.ResumeAt = state.At(c.Now.Add(short))
		done := s.commitState(t, c, move(t, next, state.WaitingSchedule, state.Entry{Waiting: &state.Wait{Reason: state.WaitingSchedule, Calls: []state.WaitCall{}}}))
		if done.Status != state.Waiting {
			t.Fatalf("Commit = %+v", done)
		}
		if err := s.MarkFinalized(t.Context(), run.ID, finalized); err != nil {
			t.Fatal(err)
		}
		if d := s.sweepFor(t, run.ID, long); !d.NeedsTurn || d.Version != 2 {
			t.Fatalf("Sweep = %+v", d)
		}
		if c := s.mustClaim(t, run.ID, 2); c.State.Status != state.Waiting {
			t.Errorf("header = %s", c.State.Status)
		}
	}

	run := s.create(t)
	s.wait(t, run.ID, 1, "c1")
	if err := s.MarkFinalized(t.Context(), run.ID, 99); err != nil {
		t.Fatal(err)
	}
	s.notDue(t, run.ID)
}

// A run whose finalization failed, or takes long, is woken in time nevertheless (I6).
func testSweepScheduleBeforeFinalized(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	next := *c.State
	next.ResumeAt = state.At(c.Now.Add(10 * short)) // else a slow machine sees no finalization
	commit := commitOf(c, move(t, next, state.WaitingSchedule, state.Entry{Waiting: &state.Wait{Reason: state.WaitingSchedule, Calls: []state.WaitCall{}}}))
	commit.RedeliveryDelay = time.Millisecond
	if _, err := s.Commit(t.Context(), c.Lease, commit); err != nil {
		t.Fatal(err)
	}
	d := s.sweepFor(t, run.ID, long)
	if d.Finalize {
		d = s.sweepFor(t, run.ID, long)
	}
	if !d.NeedsTurn || d.Version != 2 {
		t.Errorf("Sweep = %+v, want a turn", d)
	}
}

// An ended run stays due until it is finalized.
func testSweepFinalize(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	commit := commitOf(c, move(t, *c.State, state.EndCompleted, state.Entry{}))
	commit.RedeliveryDelay = time.Millisecond
	if _, err := s.Commit(t.Context(), c.Lease, commit); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if d := s.sweepFor(t, run.ID, time.Millisecond); !d.Finalize || d.NeedsTurn {
			t.Fatalf("Sweep = %+v, want it finalized only", d)
		}
	}
	for _, seq := range []int64{2, 1} { // a late worker does not undo another's report
		if err := s.MarkFinalized(t.Context(), run.ID, seq); err != nil {
			t.Fatal(err)
		}
		s.notDue(t, run.ID)
		if c := s.claim(t, run.ID, 1); c.FinalizedSeq != 2 {
			t.Errorf("after MarkFinalized(%d) the run is finalized up to entry %d, want 2", seq, c.FinalizedSeq)
		}
	}
}

// A run that waits for another run stays due after it was finalized, until it continues (I2).
func testSweepDependent(t *testing.T, s *suite) {
	child := s.create(t)
	c := s.mustClaim(t, child.ID, 1)
	next := *c.State
	next.Open = []state.OpenCall{{ID: "c1", Name: "leaf", Needs: state.NeedChild, Child: "run_c"}}
	commit := commitOf(c, move(t, next, state.WaitingChild, state.Entry{Waiting: &state.Wait{Reason: state.WaitingChild, Calls: []state.WaitCall{}}}))
	commit.RedeliveryDelay = time.Millisecond
	if _, err := s.Commit(t.Context(), c.Lease, commit); err != nil {
		t.Fatal(err)
	}
	behind := pending(t, newRun(t).ID, 1)
	if _, err := s.Create(t.Context(), state.NewRun{State: behind, RedeliveryDelay: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for _, run := range []state.State{child, behind} {
		if err := s.MarkFinalized(t.Context(), run.ID, 2); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if d := s.sweepFor(t, run.ID, time.Millisecond); !d.Finalize || d.NeedsTurn || d.FinalizedSeq != 2 {
				t.Fatalf("Sweep of %s = %+v, want it finalized again, with 2 known entries", run.ID, d)
			}
		}
	}
	for id, sig := range map[state.RunID]state.Signal{
		child.ID:  {ID: "s1", Child: &state.ChildResult{CallID: "c1", RunID: "run_c"}, At: created},
		behind.ID: {ID: "s2", Start: true, At: created},
	} {
		if w, err := s.Signal(t.Context(), id, sig, long); err != nil || !w.Publish {
			t.Fatalf("Signal = %+v, %v", w, err)
		}
		s.notDue(t, id)
	}
}

// The runs of an evicted worker are resumed without waiting for the lease.
func testEvict(t *testing.T, s *suite) {
	mine, other := s.create(t), s.create(t)
	first := s.mustClaim(t, mine.ID, 1)
	q := s.request(other.ID, 1, "w2")
	if _, err := s.Claim(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if owners, err := s.Owners(t.Context()); err != nil || !slices.Equal(owners, []string{"w1", "w2"}) {
		t.Errorf("Owners = %v, %v", owners, err)
	}
	for worker, want := range map[string][]state.RunID{"w1": {mine.ID}, "w2": {other.ID}, "w": nil} {
		if held, err := s.Leases(t.Context(), worker, 10); err != nil || !slices.Equal(held, want) {
			t.Errorf("Leases by %s = %v, %v; want %v", worker, held, err, want)
		}
	}
	due, err := s.Evict(t.Context(), "w1", 100, long)
	if err != nil || len(due) != 1 || due[0].Run != mine.ID || !due[0].NeedsTurn || due[0].Version != 1 {
		t.Fatalf("Evict = %+v, %v", due, err)
	}
	if due, err := s.Evict(t.Context(), "w1", 100, long); err != nil || len(due) != 0 {
		t.Errorf("second Evict = %+v, %v", due, err)
	}
	if c := s.mustClaim(t, mine.ID, 1); c.Attempt != 2 {
		t.Errorf("attempt = %d, want 2", c.Attempt)
	}
	if _, err := s.Renew(t.Context(), first.Lease, long, long); !errors.Is(err, state.ErrFenced) {
		t.Errorf("Renew of the evicted worker = %v, want ErrFenced", err)
	}
	if c := s.claim(t, other.ID, 1); c.Outcome != state.ClaimBusy {
		t.Errorf("the other worker's run is %s, want busy", c.Outcome)
	}
}

// Several callers that evict one worker share its runs, part by part, and none is lost.
func testEvictParts(t *testing.T, s *suite) {
	left := map[state.RunID]bool{}
	for range 25 {
		run := s.create(t)
		if _, err := s.Claim(t.Context(), s.request(run.ID, 1, "w1")); err != nil {
			t.Fatal(err)
		}
		left[run.ID] = true
	}
	other := s.create(t)
	if _, err := s.Claim(t.Context(), s.request(other.ID, 1, "w11")); err != nil { // a name with the other as its prefix
		t.Fatal(err)
	}
	for _, want := range []int{10, 10, 5, 0} {
		due, err := s.Evict(t.Context(), "w1", 10, long)
		if err != nil || len(due) != want {
			t.Fatalf("Evict = %d runs, %v, want %d", len(due), err, want)
		}
		for _, d := range due {
			if !left[d.Run] {
				t.Errorf("Evict of w1 returned run %s again, or w1 has no lease of it; want each run of w1 once", d.Run)
			}
			delete(left, d.Run)
		}
	}
	if owners, err := s.Owners(t.Context()); err != nil || !slices.Equal(owners, []string{"w11"}) {
		t.Errorf("Owners = %v, %v", owners, err)
	}
}

// A worker whose lease was ended may only have been paused. For the worker that takes over the turn, the store
// keeps the results of its calls and nothing else. If the paused worker calls Release, its attempt does not count.
func testPaused(t *testing.T, s *suite) {
	for name, lose := range map[string]func(run state.RunID){
		"swept": func(run state.RunID) { s.sweepFor(t, run, long) },
		"claimed by another after the lease": func(run state.RunID) {
			for {
				c, err := s.Claim(t.Context(), s.request(run, 1, "w2"))
				if err != nil || c.Outcome != state.Claimed && c.Outcome != state.ClaimBusy {
					t.Fatalf("Claim = %+v, %v", c, err)
				}
				if c.Outcome != state.Claimed {
					continue
				}
				if c.TakenOver.IsZero() || c.Attempt != 2 {
					t.Errorf("Claim after the lease of another worker ended = attempt %d, TakenOver %s; want attempt 2 and a time", c.Attempt, c.TakenOver)
				}
				return
			}
		},
		"evicted": func(state.RunID) {
			if due, err := s.Evict(t.Context(), "w1", 100, long); err != nil || len(due) != 1 {
				t.Fatalf("Evict = %+v, %v", due, err)
			}
		},
		"evicted and taken up": func(run state.RunID) {
			if _, err := s.Evict(t.Context(), "w1", 100, long); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Claim(t.Context(), s.request(run, 1, "w2")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := s.create(t)
			first := s.mustClaim(t, run.ID, 1)
			if !first.TakenOver.IsZero() {
				t.Errorf("a first claim has the takeover time %s", first.TakenOver)
			}
			n := first.LogLen
			if _, err := s.Record(t.Context(), first.Lease, state.Record{From: n, Started: []string{"c1", "c2"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Record(t.Context(), first.Lease, state.Record{From: n, Results: []state.Entry{result("c2", "early")}}); err != nil {
				t.Fatal(err)
			}
			if name == "swept" || name == "claimed by another after the lease" {
				if _, err := s.Renew(t.Context(), first.Lease, short, short); err != nil {
					t.Fatal(err)
				}
			}
			lose(run.ID)
			late := state.Record{
				From: n, Started: []string{"c9"}, Entries: []state.Entry{{Type: state.EntryProgress}},
				Results: []state.Entry{result("c1", "late"), result("c2", "late"), result("c3", "never started")},
			}
			if _, err := s.Record(t.Context(), first.Lease, late); !errors.Is(err, state.ErrFenced) {
				t.Errorf("Record of the evicted worker = %v, want ErrFenced", err)
			}
			other := first.Lease
			other.Token = "a token that nobody had"
			if _, err := s.Record(t.Context(), other, state.Record{From: n, Results: []state.Entry{result("c1", "forged")}}); !errors.Is(err, state.ErrFenced) {
				t.Errorf("Record with another token = %v, want ErrFenced", err)
			}
			for range 2 {
				if err := s.Release(t.Context(), first.Lease, 0); !errors.Is(err, state.ErrFenced) {
					t.Errorf("Release of the evicted worker = %v, want ErrFenced", err)
				}
			}
			if _, err := s.Evict(t.Context(), "w2", 100, long); err != nil {
				t.Fatal(err)
			}
			want := 2
			if name == "evicted and taken up" || name == "claimed by another after the lease" {
				want = 3
			}
			c := s.mustClaim(t, run.ID, 1)
			if c.TakenOver.IsZero() {
				t.Error("Claim after its worker was lost = TakenOver zero, want the time at which the turn was taken over")
			}
			if c.Attempt != want || c.Paused != 1 {
				t.Errorf("Claim after its worker was lost = attempt %d, Paused %d; want attempt %d, Paused 1", c.Attempt, c.Paused, want)
			}
			results := map[string]string{}
			for id, e := range c.Journal.Results {
				results[id] = e.Message.Parts[0].Content
			}
			if want := map[string]string{"c1": "late", "c2": "early"}; !maps.Equal(results, want) {
				t.Errorf("the journal has the results %v, want %v", results, want)
			}
			if c.Journal.Started["c9"] || c.LogLen != n {
				t.Errorf("Record of an evicted worker stored the start of call c9 (%v) or %d log entries, want neither: only results count after the eviction", c.Journal.Started, c.LogLen-n)
			}
			s.commit(t, c, state.NextTurn, state.Entry{})
			next := s.mustClaim(t, run.ID, 2)
			if !next.TakenOver.IsZero() || len(next.Journal.Results) > 0 {
				t.Errorf("Claim of the turn after a takeover = TakenOver %s, journal results %v; want zero and none", next.TakenOver, next.Journal.Results)
			}
			s.commit(t, next, state.EndCompleted, state.Entry{})
			if _, err := s.Record(t.Context(), first.Lease, late); !errors.Is(err, state.ErrFenced) {
				t.Errorf("Record after the commit = %v, want ErrFenced", err)
			}
		})
	}
}

// Heartbeats tests a store that records live workers: a heartbeat lasts, and expires.
func Heartbeats(t *testing.T, s state.RunStore) {
	t.Helper()
	alive := func(worker string) bool {
		t.Helper()
		ok, err := s.Alive(t.Context(), worker)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if alive("w1") {
		t.Error("a worker without any heartbeat is alive")
	}
	if err := s.Heartbeat(t.Context(), "w1", time.Hour); err != nil {
		t.Fatal(err)
	}
	if !alive("w1") || alive("w2") {
		t.Errorf("after a heartbeat of w1, Alive(w1) = %t and Alive(w2) = %t, want true and false", alive("w1"), alive("w2"))
	}
	if err := s.Heartbeat(t.Context(), "w1", 0); err != nil {
		t.Fatal(err)
	}
	if alive("w1") {
		t.Error("a worker is alive after a heartbeat that lasts 0")
	}
	if err := s.Heartbeat(t.Context(), "w1", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for alive("w1") {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("a heartbeat never expires")
		}
	}
}

func testList(t *testing.T, s *suite) {
	var ids []state.RunID
	for i := range 7 {
		run := newRun(t)
		run.Metadata = map[string]string{"n": string(rune('a' + i))}
		run.Agent = []string{"even", "odd"}[i%2]
		s.store(t, run)
		ids = append(ids, run.ID)
	}
	s.commit(t, s.mustClaim(t, ids[0], 1), state.EndCompleted, state.Entry{})

	var got []state.RunID
	f := state.Filter{Limit: 3}
	for pages := 0; ; pages++ {
		page, err := s.List(t.Context(), f)
		if err != nil || pages > 5 {
			t.Fatalf("List: page %d, %v", pages, err)
		}
		for _, r := range page.Runs {
			got = append(got, r.ID)
		}
		if page.Next == "" {
			break
		}
		f.Cursor = page.Next
	}
	want := []state.RunID{ids[6], ids[5], ids[4], ids[3], ids[2], ids[1], ids[0]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List, newest first:\n%s", diff)
	}
	filters := []struct {
		f    state.Filter
		want int
	}{
		{state.Filter{Status: []state.Status{state.Completed}}, 1},
		{state.Filter{Status: []state.Status{state.Completed, state.Queued}}, 7},
		{state.Filter{Status: []state.Status{state.Running}}, 0},
		{state.Filter{Status: []state.Status{state.Queued}, Agent: "odd"}, 3},
		{state.Filter{Waiting: state.WaitingSchedule}, 0},
		{state.Filter{Parent: ids[0]}, 0},
		{state.Filter{Parents: ids[:2]}, 0},
		{state.Filter{Agent: "odd"}, 3},
		{state.Filter{Metadata: map[string]string{"n": "c"}}, 1},
		{state.Filter{Tenant: "nobody"}, 0},
		{state.Filter{CreatedAfter: created.Time}, 0},
		{state.Filter{CreatedAfter: created.Add(-time.Second)}, 7},
	}
	for _, tt := range filters {
		page, err := s.List(t.Context(), tt.f)
		if err != nil || len(page.Runs) != tt.want {
			t.Errorf("List(%+v) = %d runs, %v; want %d", tt.f, len(page.Runs), err, tt.want)
		}
	}
}

func testCounts(t *testing.T, s *suite) {
	s.create(t)
	s.mustClaim(t, s.create(t).ID, 1)
	s.wait(t, s.create(t).ID, 1, "c1")
	s.commit(t, s.mustClaim(t, s.create(t).ID, 1), state.EndCompleted, state.Entry{})
	got, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for st, n := range got {
		if n == 0 {
			delete(got, st)
		}
	}
	want := map[state.Status]int64{state.Queued: 1, state.Running: 1, state.Waiting: 1, state.Completed: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Counts:\n%s", diff)
	}
}
