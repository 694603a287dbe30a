package statetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testClaimOutcomes(t *testing.T, s *suite) {
	// A claim that read no clock must return no time.
	if got := s.claim(t, newRun(t).ID, 1); got.Outcome != state.ClaimMissing || !got.Now.IsZero() {
		t.Errorf("unknown run: %s at %s", got.Outcome, got.Now)
	}
	run := s.create(t)
	if got := s.claim(t, run.ID, 2).Outcome; got != state.ClaimStoreBehind {
		t.Errorf("newer version: %s", got)
	}
	c := s.mustClaim(t, run.ID, 1)
	if c.Attempt != 1 || c.Base != 1 || c.State.LogLen() != 1 || c.State.Version != 1 || c.Now.IsZero() {
		t.Errorf("Claim of a new run = Attempt %d, Base %d, LogLen %d, Version %d, Now %s; want 1, 1, 1, 1 and a time", c.Attempt, c.Base, c.State.LogLen(), c.State.Version, c.Now)
	}
	if got := s.claim(t, run.ID, 1); got.Outcome != state.ClaimBusy || got.Busy <= 0 || got.Busy > long+time.Minute { // two processes may read the store's clock with different delays
		t.Errorf("leased: %s for %s", got.Outcome, got.Busy)
	}
	if got, _ := s.Load(t.Context(), run.ID); got.Status != state.Running || got.StartedAt.IsZero() {
		t.Errorf("a claimed run is %s, started %s", got.Status, got.StartedAt)
	}
	s.commit(t, c, state.NextTurn, state.Entry{})
	if got := s.claim(t, run.ID, 1); got.Outcome != state.ClaimStale || got.Status != state.Queued || got.Version != 2 || got.LogLen != 2 || got.FinalizedSeq != 0 || got.Priority != state.Normal {
		t.Errorf("older version: %+v", got)
	}
	c = s.mustClaim(t, run.ID, 2)
	s.commit(t, c, state.EndCompleted, state.Entry{})
	if got := s.claim(t, run.ID, 3); got.Outcome != state.ClaimTerminal || got.Status != state.Completed {
		t.Errorf("ended run: %+v", got)
	}
	run = s.create(t)
	v := s.wait(t, run.ID, 1, "c1")
	if got := s.claim(t, run.ID, v).Outcome; got != state.ClaimWaiting {
		t.Errorf("waiting run: %s", got)
	}
}

// Of any number of claims for one version, one holds (I8).
func testClaimRace(t *testing.T, s *suite) {
	run := s.create(t)
	var mu sync.Mutex
	outcomes := map[state.Outcome]int{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			c, err := s.Claim(t.Context(), s.request(run.ID, 1, "w"))
			if err != nil {
				t.Errorf("Claim: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[c.Outcome]++
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[state.Outcome]int{state.Claimed: 1, state.ClaimBusy: 15}, outcomes); diff != "" {
		t.Error(diff)
	}
}

// A lease that is not renewed ends; the next claim counts the attempt and fences the first (I8).
func testLeaseExpiry(t *testing.T, s *suite) {
	run := s.create(t)
	q := s.request(run.ID, 1, "w1")
	q.Lease = short
	first, err := s.Claim(t.Context(), q)
	if err != nil || first.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", first.Outcome, err)
	}
	deadline := time.Now().Add(soon)
	second := new(state.Claim)
	for second.Outcome != state.Claimed && time.Now().Before(deadline) {
		breathe(t)
		second = s.claim(t, run.ID, 1)
	}
	if second.Outcome != state.Claimed || second.Attempt != 2 {
		t.Fatalf("second claim = %s, attempt %d; want claimed, 2", second.Outcome, second.Attempt)
	}
	if _, err := s.Renew(t.Context(), first.Lease, long, long); !errors.Is(err, state.ErrFenced) {
		t.Errorf("Renew with the first lease = %v, want ErrFenced", err)
	}
	if _, err := s.Record(t.Context(), first.Lease, state.Record{From: 1, Entries: []state.Entry{response(1, "x")}}); !errors.Is(err, state.ErrFenced) {
		t.Errorf("Record with the first lease = %v, want ErrFenced", err)
	}
	if err := s.Release(t.Context(), first.Lease, 0); !errors.Is(err, state.ErrFenced) {
		t.Errorf("Release with the first lease = %v, want ErrFenced", err)
	}
	s.commit(t, second, state.EndCompleted, state.Entry{})
}

func testRenew(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	abort, err := s.Renew(t.Context(), c.Lease, long, long)
	if err != nil || abort != nil {
		t.Fatalf("Renew = %v, %v", abort, err)
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); err != nil {
		t.Fatal(err)
	}
	abort, err = s.Renew(t.Context(), c.Lease, long, long)
	if err != nil || abort == nil || abort.Reason != "enough" {
		t.Fatalf("Renew = %v, %v; want the abort", abort, err)
	}
}

// The next attempt finds the journaled entries; the first result stays (I3).
func testRecord(t *testing.T, s *suite) {
	run := s.create(t)
	q := s.request(run.ID, 1, "w1")
	first, err := s.Claim(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	rec := state.Record{From: 1, Entries: []state.Entry{response(1, "c1", "c2")}, Started: []string{"c1"}}
	rec.Entries[0].Seq = 2
	for range 2 { // a repetition changes nothing
		if _, err := s.Record(t.Context(), first.Lease, rec); err != nil {
			t.Fatalf("Record: %v", err)
		}
	}
	for _, text := range []string{"first", "second"} {
		if _, err := s.Record(t.Context(), first.Lease, state.Record{From: 2, Results: []state.Entry{result("c1", text)}, Started: []string{"c2"}}); err != nil {
			t.Fatalf("Record: %v", err)
		}
	}
	for _, from := range []int64{1, 3, 7} {
		_, err := s.Record(t.Context(), first.Lease, state.Record{From: from, Entries: []state.Entry{response(1), response(1)}})
		if gap, _ := errors.AsType[*state.GapError](err); gap == nil || *gap != (state.GapError{ID: run.ID, Have: 2, From: from}) {
			t.Errorf("Record from entry %d into a log of 2 = %v, want a GapError with both", from, err)
		}
	}
	ahead := move(t, first.State.Append(response(1)).Append(response(1)), state.NextTurn, state.Entry{})
	_, err = s.Commit(t.Context(), first.Lease, state.Commit{ID: "ahead", State: &ahead, From: 3})
	if gap, _ := errors.AsType[*state.GapError](err); gap == nil || *gap != (state.GapError{ID: run.ID, Have: 2, From: 3}) {
		t.Errorf("Commit from entry 3 to a log of 2 = %v, want a GapError with both", err)
	}
	log, err := s.Log(t.Context(), run.ID, 0, 0)
	if err != nil || len(log) != 2 || log[1].Type != state.EntryModel {
		t.Fatalf("Log = %d entries, %v; want the journaled response as the second", len(log), err)
	}
	if _, err := s.Evict(t.Context(), "w1", 100, long); err != nil {
		t.Fatal(err)
	}
	again := s.mustClaim(t, run.ID, 1)
	if again.Base != 1 || again.State.LogLen() != 2 || again.Attempt != 2 {
		t.Fatalf("claim = base %d, log %d, attempt %d; want 1, 2, 2", again.Base, again.State.LogLen(), again.Attempt)
	}
	if !again.Journal.Started["c1"] || !again.Journal.Started["c2"] || again.Journal.Results["c1"].Message.Parts[0].Content != "first" {
		t.Fatalf("journal = %s", encode(t, again.Journal))
	}
	s.commit(t, again, state.NextTurn, state.Entry{})
	next := s.mustClaim(t, run.ID, 2)
	if len(next.Journal.Started)+len(next.Journal.Results) != 0 || next.Base != 3 {
		t.Errorf("Claim after Commit = journal %s, Base %d; want an empty journal, 3", encode(t, next.Journal), next.Base)
	}
}

// A commit applies once, however often it is sent, and is durable (I1).
func testCommit(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	next := move(t, c.State.Append(response(1, "c1")).Append(result("c1", "42")), state.NextTurn, state.Entry{Detail: "x"})
	want := state.Committed{Status: state.Queued, Version: 2}
	for range 3 {
		if got := s.commitState(t, c, next); got != want {
			t.Fatalf("Commit = %+v, want %+v", got, want)
		}
	}
	log, err := s.Log(t.Context(), run.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(encode(t, next.Log), encode(t, log)); diff != "" {
		t.Errorf("log:\n%s", diff)
	}
	for i, e := range log {
		if e.Seq != int64(i+1) {
			t.Errorf("entry %d has number %d (I9)", i+1, e.Seq)
		}
	}
	got, err := s.Load(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != state.Queued || got.Turn != 1 || got.Version != 2 || got.Usage.OutputTokens != 7 {
		t.Errorf("state = %s", encode(t, got))
	}
	// The next claim builds on it, and its commit is a new one.
	c = s.mustClaim(t, run.ID, 2)
	if diff := cmp.Diff(encode(t, log), encode(t, c.State.Log)); diff != "" {
		t.Errorf("claimed log:\n%s", diff)
	}
	if got := s.commit(t, c, state.EndCompleted, state.Entry{}); got.Status != state.Completed || got.Version != 3 {
		t.Errorf("Commit = %+v", got)
	}
}

func testCommitFenced(t *testing.T, s *suite) {
	run := s.create(t)
	first := s.mustClaim(t, run.ID, 1)
	if _, err := s.Evict(t.Context(), "w1", 100, long); err != nil {
		t.Fatal(err)
	}
	next := move(t, *first.State, state.EndModelError, state.Entry{})
	if _, err := s.Commit(t.Context(), first.Lease, commitOf(first, next)); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("Commit after eviction = %v, want ErrFenced", err)
	}
	second := s.mustClaim(t, run.ID, 1)
	if _, err := s.Commit(t.Context(), first.Lease, commitOf(first, next)); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("Commit with a second lease = %v, want ErrFenced", err)
	}
	s.commit(t, second, state.NextTurn, state.Entry{})
	if _, err := s.Commit(t.Context(), first.Lease, commitOf(first, next)); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("Commit of a finished turn = %v, want ErrFenced", err)
	}
	if got, _ := s.Load(t.Context(), run.ID); got.Version != 2 || got.Status != state.Queued {
		t.Errorf("state = %s, version %d", got.Status, got.Version)
	}
}

// Many workers compete for one run; every version is committed once (I1, I8).
func testCommitRace(t *testing.T, s *suite) {
	const versions = 20
	run := s.create(t)
	commits := make([]int, versions+2)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for v := int64(1); v <= versions; {
				c, err := s.Claim(t.Context(), s.request(run.ID, v, fmt.Sprint("w", w)))
				if err != nil {
					t.Errorf("Claim: %v", err)
					return
				}
				switch c.Outcome {
				case state.Claimed:
					next, err := c.State.Move(state.NextTurn, state.Entry{At: created})
					if err != nil {
						t.Errorf("Move: %v", err)
						return
					}
					if _, err := s.Commit(t.Context(), c.Lease, commitOf(c, next)); err != nil {
						t.Errorf("Commit: %v", err)
						return
					}
					mu.Lock()
					commits[v]++
					mu.Unlock()
				case state.ClaimStale:
					v = c.Version
				case state.ClaimBusy:
					breathe(t)
				default:
					t.Errorf("Claim = %s", c.Outcome)
					return
				}
			}
		})
	}
	wg.Wait()
	for v := 1; v <= versions; v++ {
		if commits[v] != 1 {
			t.Errorf("version %d was committed %d times", v, commits[v])
		}
	}
	if log, _ := s.Log(t.Context(), run.ID, 0, 0); len(log) != versions+1 {
		t.Errorf("log has %d entries, want %d", len(log), versions+1)
	}
}

func testRelease(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	if _, err := s.Record(t.Context(), c.Lease, state.Record{From: 1, Started: []string{"c1"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), c.Lease, 0); err != nil {
		t.Fatal(err)
	}
	if d := s.sweepFor(t, run.ID, long); !d.NeedsTurn || d.Version != 1 {
		t.Errorf("Sweep = %+v, want the turn", d)
	}
	c = s.mustClaim(t, run.ID, 1)
	if c.Attempt != 1 || !c.Journal.Started["c1"] {
		t.Errorf("Claim after Release = attempt %d, journal %s; want attempt 1, and the journal with the start of c1", c.Attempt, encode(t, c.Journal))
	}
	if err := s.Release(t.Context(), c.Lease, long); err != nil {
		t.Fatal(err)
	}
	s.notDue(t, run.ID) // before the delay
}

// A long log is read completely and in order (I12).
func testLongRun(t *testing.T, s *suite) {
	run := s.create(t)
	for v := int64(1); v <= 60; v++ {
		c := s.mustClaim(t, run.ID, v)
		if c.State.LogLen() != 1+(v-1)*3 {
			t.Fatalf("version %d: log has %d entries", v, c.State.LogLen())
		}
		call := fmt.Sprintf("c%d", v)
		s.commitState(t, c, move(t, c.State.Append(response(int(v), call)).Append(result(call, "ok")), state.NextTurn, state.Entry{}))
	}
	c := s.mustClaim(t, run.ID, 61)
	for i, e := range c.State.Log {
		if e.Seq != int64(i+1) {
			t.Fatalf("entry %d has number %d", i+1, e.Seq)
		}
	}
}

// A claim that refuses an attempt leaves the run unchanged, and counts nothing.
func testClaimRefuses(t *testing.T, s *suite) {
	run := s.create(t)
	s.mustClaim(t, run.ID, 1)
	if due, err := s.Evict(t.Context(), "w1", 10, time.Minute); err != nil || len(due) != 1 {
		t.Fatal(due, err)
	}
	q := s.request(run.ID, 1, "w2")
	q.Refuse = state.Attempts{From: 2, To: 4}
	for range 3 {
		if c, err := s.Claim(t.Context(), q); err != nil || c.Outcome != state.ClaimDeferred || c.Status != state.Queued {
			t.Fatalf("Claim = %s of a run that is %s, %v", c.Outcome, c.Status, err)
		}
	}
	q.Refuse = state.Attempts{From: 3, To: 4}
	c, err := s.Claim(t.Context(), q)
	if err != nil || c.Outcome != state.Claimed || c.Attempt != 2 {
		t.Fatalf("Claim = %s, attempt %d, %v", c.Outcome, c.Attempt, err)
	}
	if _, err := s.Evict(t.Context(), "w2", 10, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	last := s.request(run.ID, 1, "w3")
	last.Refuse = state.Attempts{From: 2, To: 9}
	if c, err := s.Claim(t.Context(), last); err != nil || c.Outcome != state.Claimed {
		t.Errorf("Claim of an aborted run = %s, %v", c.Outcome, err)
	}
}
