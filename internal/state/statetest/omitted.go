package statetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A claim may leave out a log that is larger than MaxLogBytes. The same claim without the bound returns it.
func testLogOmitted(t *testing.T, s *suite) {
	for _, size := range []int{10, 300_000} {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		next := *c.State
		for i := range 2 {
			next = next.Append(response(i+1, fmt.Sprint("c", i))).Append(result(fmt.Sprint("c", i), strings.Repeat("x", size)))
		}
		s.commitState(t, c, move(t, next, state.NextTurn, state.Entry{}))
		all, err := s.Log(t.Context(), run.ID, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		ask := s.request(run.ID, 2, "w1")
		ask.MaxLogBytes = next.LogBytes << 1
		s.checkOmitted(t, ask, all, true)
		ask.MaxLogBytes = next.LogBytes >> 1
		s.checkOmitted(t, ask, all, false)
		ask.MaxLogBytes = 0
		c = s.checkOmitted(t, ask, all, true)

		l, made := s.commitEagerly(t, c, fmt.Sprint("eager", size))
		if !made.Claimed {
			t.Fatal("the turn was not claimed")
		}
		ask = state.ClaimRequest{Run: run.ID, Version: l.Version, Token: l.Token, Worker: "w1", Lease: long, RedeliveryDelay: long, MaxLogBytes: 1}
		if all, err = s.Log(t.Context(), run.ID, 0, 0); err != nil {
			t.Fatal(err)
		}
		if c, err = s.Claim(t.Context(), ask); err != nil || c.Outcome != state.Claimed || c.LogOmitted != (len(c.State.Log) == 0) {
			t.Fatalf("Claim = %s, %v, log omitted: %v, with %d entries", c.Outcome, err, c.LogOmitted, len(c.State.Log))
		}
		ask.MaxLogBytes = 0
		c = s.checkOmitted(t, ask, all, true)
		s.commit(t, c, state.EndCompleted, state.Entry{})
	}
}

// checkOmitted repeats a claim. It requires the log to be complete if it is within the bound, else complete or omitted.
func (s *suite) checkOmitted(t *testing.T, ask state.ClaimRequest, log []state.Entry, within bool) *state.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), ask)
	if err != nil || c.Outcome != state.Claimed || c.Attempt != 1 {
		t.Fatalf("Claim = %s, attempt %d, %v", c.Outcome, c.Attempt, err)
	}
	if c.LogOmitted && within {
		t.Errorf("a log of %d bytes was omitted, the limit is %d", c.State.LogBytes, ask.MaxLogBytes)
	}
	want := encode(t, log)
	if c.LogOmitted {
		want = encode(t, []state.Entry(nil))
	}
	if got := encode(t, c.State.Log); got != want {
		t.Errorf("the log has %d entries, want %d unless it is omitted: %v", len(c.State.Log), len(log), c.LogOmitted)
	}
	if c.LogLen != int64(len(log)) || c.Base != int64(len(log)) || c.State.LogBytes == 0 {
		t.Errorf("claim has base %d, length %d and %d bytes of log; want %d entries", c.Base, c.LogLen, c.State.LogBytes, len(log))
	}
	return c
}
