package statetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testCheckpoint(t *testing.T, s *suite) { Checkpoint(t, s.RunStore, s.RunStore) }

// Checkpoint tests that a claim returns a log from its committed checkpoint on, while readers get all of it. other is the
// same store, or another process that shares its data.
func Checkpoint(t *testing.T, one, other state.RunStore) {
	t.Helper()
	s, o := &suite{RunStore: one}, &suite{RunStore: other}
	o.tokens.Store(1 << 20)
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	next := *c.State
	for i := range 40 {
		next = next.Append(response(i+1, fmt.Sprint("c", i))).Append(result(fmt.Sprint("c", i), "42"))
	}
	s.commitState(t, c, move(t, next, state.NextTurn, state.Entry{}))
	last := int64(0)
	for version := int64(2); version < 8; version += 2 {
		c = o.mustClaim(t, run.ID, version)
		checkLog(t, c, last)
		base := c.Base

		// A journaled checkpoint does not shorten the log.
		next = c.State.Append(state.Entry{Type: state.EntryCheckpoint, Turn: 40, Checkpoint: state.NewCheckpoint(c.State)})
		view := encode(t, state.View(c.State.Log))
		for range 2 {
			if _, err := o.Record(t.Context(), c.Lease, state.Record{From: base, Entries: next.Log}); err != nil {
				t.Fatalf("Record: %v", err)
			}
		}
		if _, err := o.Evict(t.Context(), "w1", 100, long); err != nil {
			t.Fatal(err)
		}
		c = s.mustClaim(t, run.ID, version)
		if c.Base != base || c.LogLen != base+1 || c.State.LogLen() != base+1 || c.State.Checkpoint != last {
			t.Fatalf("claim has base %d, log %d, state's log %d from %d; want %d, %d, %d, %d", c.Base, c.LogLen, c.State.LogLen(), c.State.Checkpoint, base, base+1, base+1, last)
		}
		checkLog(t, &state.Claim{State: c.State, Base: c.LogLen}, last)

		// A committed one does.
		next.Version = c.State.Version
		next = move(t, next, state.NextTurn, state.Entry{Messages: []state.Message{state.UserText(fmt.Sprint("after ", version))}})
		done := state.Committed{}
		for range 2 {
			done = s.commitState(t, c, next)
		}
		last = base + 1
		if got, err := o.Load(t.Context(), run.ID); err != nil || got.Checkpoint != last || done.Version != version+1 {
			t.Fatalf("the run has the checkpoint %d at version %d, %v; want %d, %d", got.Checkpoint, done.Version, err, last, version+1)
		}
		c = o.mustClaim(t, run.ID, version+1)
		checkLog(t, c, last)
		if c.State.LogLen() != base+2 || len(c.State.Log) != 2 {
			t.Fatalf("the log of the claim has %d entries and ends at %d, want 2 and %d", len(c.State.Log), c.State.LogLen(), base+2)
		}
		if got := encode(t, c.State.Log[0].Checkpoint.Messages); got != view {
			t.Errorf("the checkpoint's messages:\n%s", cmp.Diff(view, got))
		}

		// An eager claim begins there, too.
		l, made := o.commitEagerly(t, c, fmt.Sprint("eager", version))
		if !made.Claimed {
			t.Fatal("the turn was not claimed")
		}
		again, err := o.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: l.Version, Token: l.Token, Worker: "w1", Lease: long, RedeliveryDelay: long})
		if err != nil || again.Outcome != state.Claimed {
			t.Fatalf("Claim = %s, %v", again.Outcome, err)
		}
		checkLog(t, again, last)
		if err := o.Release(t.Context(), l, long); err != nil {
			t.Fatal(err)
		}
	}
	checkPages(t, o, run.ID)
	checkPages(t, s, run.ID)
	c = s.mustClaim(t, run.ID, 8)
	checkLog(t, c, last)
	if got := s.commit(t, c, state.EndCompleted, state.Entry{}); got.Status != state.Completed {
		t.Errorf("Commit = %+v", got)
	}
}

// checkLog requires the log of a claim to begin with the entry number first, or the first of all, and to have none
// left out.
func checkLog(t *testing.T, c *state.Claim, first int64) {
	t.Helper()
	seq := max(1, first)
	for _, e := range c.State.Log {
		if e.Seq != seq {
			t.Fatalf("the log has the entry %d in the place of %d", e.Seq, seq)
		}
		seq++
	}
	if seq-1 != c.Base || c.State.Checkpoint != first {
		t.Fatalf("the log ends at %d, base is %d, the checkpoint %d, want %d", seq-1, c.Base, c.State.Checkpoint, first)
	}
}

// checkPages requires the pages of a log to be the log.
func checkPages(t *testing.T, s *suite, id state.RunID) {
	t.Helper()
	all, err := s.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		if e.Seq != int64(i+1) {
			t.Fatalf("entry %d has the number %d", i+1, e.Seq)
		}
	}
	want := encode(t, all)
	for _, limit := range []int{1, 2, 7, 30, 200} {
		var got []state.Entry
		for {
			page, err := s.Log(t.Context(), id, int64(len(got)), limit)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, page...); len(page) < limit {
				break
			}
		}
		if diff := cmp.Diff(want, encode(t, got)); diff != "" {
			t.Errorf("log in pages of %d:\n%s", limit, diff)
		}
	}
	for i := range all { // in any order
		at := int64((i * 31) % len(all))
		page, err := s.Log(t.Context(), id, at, 1)
		if err != nil || len(page) != 1 || page[0].Seq != at+1 {
			t.Fatalf("entry %d: %d entries, %v", at+1, len(page), err)
		}
	}
}
