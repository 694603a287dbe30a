package statetest

import (
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The next attempt gets the starts of calls that earlier attempts recorded; the last
// start of a call counts, and the commit deletes them. The store rejects a late result of
// a call that another attempt has started again: it would count for the repeated call.
func testStarts(t *testing.T, s *suite) {
	run := s.create(t)
	first := s.mustClaim(t, run.ID, 1)
	n := first.LogLen
	starts := []state.Start{{CallID: "c1", Key: "k1", Until: future, Arguments: `{"n":1}`}, {CallID: "c2", Key: "k2", Until: future}}
	for range 2 { // a repetition changes nothing
		if _, err := s.Record(t.Context(), first.Lease, state.Record{From: n, Started: []string{"c3"}, Starts: starts}); err != nil {
			t.Fatalf("Record: %v", err)
		}
	}
	evict := func(worker string) {
		t.Helper()
		if due, err := s.Evict(t.Context(), worker, 100, long); err != nil || len(due) != 1 {
			t.Fatalf("Evict = %+v, %v", due, err)
		}
	}
	evict("w1")
	second, err := s.Claim(t.Context(), s.request(run.ID, 1, "w2"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range starts {
		starts[i].Token = first.Lease.Token
		id := starts[i].CallID
		if got := second.Journal.Starts[id]; encode(t, got) != encode(t, starts[i]) || !second.Journal.Started[id] {
			t.Errorf("start of %s = %s, want %s", id, encode(t, got), encode(t, starts[i]))
		}
	}
	if _, ok := second.Journal.Starts["c3"]; ok || !second.Journal.Started["c3"] {
		t.Errorf("journal = %s", encode(t, second.Journal))
	}

	again := state.Start{CallID: "c1", Key: "k3", Until: past, Again: true}
	if _, err := s.Record(t.Context(), second.Lease, state.Record{From: n, Starts: []state.Start{again}}); err != nil {
		t.Fatalf("Record: %v", err)
	}
	never := first.Lease
	never.Token = "of nobody"
	foreign := state.Record{From: n, Results: []state.Entry{result("c3", "of a lease that nobody had")}}
	if _, err := s.Record(t.Context(), never, foreign); !errors.Is(err, state.ErrFenced) {
		t.Errorf("Record with a lease that no worker ever had = %v, want ErrFenced", err)
	}
	late := state.Record{From: n, Results: []state.Entry{result("c1", "late"), result("c2", "late"), result("c3", "late")}}
	if _, err := s.Record(t.Context(), first.Lease, late); !errors.Is(err, state.ErrFenced) {
		t.Errorf("Record of the evicted worker = %v, want ErrFenced", err)
	}
	repeated := state.Record{From: n, Results: []state.Entry{result("c2", "later still"), result("c3", "later still")}}
	if _, err := s.Record(t.Context(), first.Lease, repeated); !errors.Is(err, state.ErrFenced) {
		t.Errorf("second Record of the evicted worker = %v, want ErrFenced: it may report its results once", err)
	}
	evict("w2")
	late.Results = []state.Entry{result("c1", "of the second start")}
	if _, err := s.Record(t.Context(), second.Lease, late); !errors.Is(err, state.ErrFenced) {
		t.Errorf("Record of the evicted worker = %v, want ErrFenced", err)
	}
	third := s.mustClaim(t, run.ID, 1)
	again.Token = second.Lease.Token
	if got := third.Journal.Starts["c1"]; encode(t, got) != encode(t, again) {
		t.Errorf("second start of c1 = %s, want %s", encode(t, got), encode(t, again))
	}
	for id, want := range map[string]string{"c1": "of the second start", "c2": "late", "c3": "late"} {
		if e, ok := third.Journal.Results[id]; !ok || e.Message.Parts[0].Content != want {
			t.Errorf("result of %s = %s, want %q", id, encode(t, e), want)
		}
	}
	s.commit(t, third, state.NextTurn, state.Entry{})
	if next := s.mustClaim(t, run.ID, 2); len(next.Journal.Starts) != 0 {
		t.Errorf("after the commit: journal %s", encode(t, next.Journal))
	}
}
