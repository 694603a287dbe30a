package statetest

import (
	"slices"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// pending returns the i-th of two runs of a batch, one after the other.
func pending(t *testing.T, first state.RunID, i int) state.State {
	t.Helper()
	run := newRun(t)
	run.ID, run.Batch = first.Plus(i), &state.Batch{Index: i, Size: 2, MaxParallel: 1, PendingInBatch: i > 0}
	if i == 0 {
		return run
	}
	return move(t, run, state.WaitingSchedule, state.Entry{
		Detail: state.BatchDetail, Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: created, Calls: []state.WaitCall{}},
	})
}

// A pending run of a batch is started by one signal, once, and by nothing else (L8).
func testBatchStart(t *testing.T, s *suite) {
	run := pending(t, newRun(t).ID, 1)
	start := state.Signal{ID: "start", Start: true, At: created}
	s.store(t, run)
	if c := s.claim(t, run.ID, run.Version); c.Outcome != state.ClaimWaiting {
		t.Fatalf("Claim of a pending run = %s", c.Outcome)
	}
	// Messages in the meantime leave it pending, and do not prevent its start.
	if w, err := s.Signal(t.Context(), run.ID, message("m1", "and this"), long); err != nil || !w.Publish {
		t.Fatalf("Signal = %+v, %v", w, err)
	}
	c := s.mustClaim(t, run.ID, run.Version)
	s.commit(t, c, state.WaitingSchedule, state.Entry{Waiting: c.State.Waiting})
	w, err := s.Signal(t.Context(), run.ID, start, long)
	if err != nil || !w.Publish || w.Version != run.Version+1 {
		t.Fatalf("start = %+v, %v; want to publish version %d", w, err, run.Version+1)
	}
	if w, err := s.Signal(t.Context(), run.ID, start, long); err != nil || w != (state.Wake{}) {
		t.Errorf("second start = %+v, %v; want nothing", w, err)
	}
	c = s.mustClaim(t, run.ID, run.Version+1)
	if len(c.Signals) != 1 || !c.Signals[0].Start || c.State.Batch == nil || !c.State.Batch.PendingInBatch || c.State.Batch.Index != 1 {
		t.Fatalf("claim has signals %s and batch %s", encode(t, c.Signals), encode(t, c.State.Batch))
	}
	s.commitState(t, c, move(t, c.State.Started(), state.NextTurn, state.Entry{}))
	start.ID = "another"
	if _, err := s.Signal(t.Context(), run.ID, start, long); wantErr[*state.NotWaitingError](t, err).Name != state.AwaitStart {
		t.Errorf("start of a started run = %v", err)
	}
	if got, err := s.Load(t.Context(), run.ID); err != nil || got.Batch.PendingInBatch {
		t.Errorf("started run: held %v, %v", got.Batch.PendingInBatch, err)
	}
}

func testListBatch(t *testing.T, s *suite) {
	s.create(t)
	first := state.RunID(state.RunPrefix + ulid.Make().String())
	for i := range 2 {
		s.store(t, pending(t, first, i))
	}
	s.create(t)
	other := pending(t, first.Plus(2), 0) // the next batch begins where this one ends
	s.store(t, other)
	list := func(f state.Filter) []state.RunID {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		var ids []state.RunID
		for _, st := range page.Runs {
			ids = append(ids, st.ID)
		}
		return ids
	}
	member := pending(t, first, 1)
	batch := member.BatchID()
	if got := list(state.Filter{Batch: batch}); !slices.Equal(got, []state.RunID{first.Plus(1), first}) {
		t.Errorf("runs of the batch = %v, want %s and %s", got, first.Plus(1), first)
	}
	if got := list(state.Filter{Batch: batch, Status: []state.Status{state.Waiting}}); !slices.Equal(got, []state.RunID{first.Plus(1)}) {
		t.Errorf("pending runs of the batch = %v", got)
	}
	if got := list(state.Filter{Batch: batch, Cursor: string(first.Plus(1))}); !slices.Equal(got, []state.RunID{first}) {
		t.Errorf("runs of the batch before the second = %v", got)
	}
	if got := list(state.Filter{Batch: other.BatchID()}); !slices.Equal(got, []state.RunID{other.ID}) {
		t.Errorf("runs of the other batch = %v", got)
	}
	if got := list(state.Filter{Batch: "batch_00000000000000000000000000"}); len(got) != 0 {
		t.Errorf("runs of no batch = %v", got)
	}
}
