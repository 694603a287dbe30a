package statetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// An ended run can be deleted, with all its data; one in flight cannot.
func testDelete(t *testing.T, s *suite) {
	run := newRun(t)
	run.Agent = "doomed"
	made, err := s.Create(t.Context(), state.NewRun{State: run, Key: "order 7", Fingerprint: "f", RedeliveryDelay: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var live *state.NotEndedError
	if err := s.Delete(t.Context(), run.ID); !errors.As(err, &live) || live.Status != state.Queued {
		t.Fatalf("Delete of a queued run = %v", err)
	}
	if _, err := s.Admit(t.Context(), run.ID, []state.RunID{newRun(t).ID}, 9); err != nil {
		t.Fatal(err)
	}
	s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
	kept := s.create(t) // without a key, whose deletion would seal it first
	if err := s.Delete(t.Context(), kept.ID); !errors.As(err, &live) || live.ID != kept.ID {
		t.Errorf("Delete of a queued run without a key = %v", err)
	}
	if err := s.Delete(t.Context(), made.State.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), run.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Delete again = %v", err)
	}
	if _, err := s.Load(t.Context(), run.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}
	if _, err := s.Log(t.Context(), run.ID, 0, 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Log = %v", err)
	}
	if c := s.claim(t, run.ID, 2); c.Outcome != state.ClaimDeleted {
		t.Errorf("Claim = %s", c.Outcome)
	}
	if _, err := s.Signal(t.Context(), run.ID, state.Signal{ID: "late", Message: &state.Message{Role: state.RoleUser}}, time.Minute); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Signal = %v", err)
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "late"}, time.Minute); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Abort = %v", err)
	}
	for _, f := range []state.Filter{{}, {Tenant: run.Tenant}, {Agent: run.Agent}, {Status: state.Statuses()}} {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Runs {
			if r.ID == run.ID {
				t.Errorf("List(%+v) has the deleted run", f)
			}
		}
	}
	counts, err := s.Counts(t.Context())
	if err != nil || counts[state.Completed] != 0 || counts[state.Queued] != 1 {
		t.Errorf("Counts = %v, %v; want only the other run", counts, err)
	}
	if due, err := s.Sweep(t.Context(), 10, time.Minute, nil); err != nil || len(due) > 0 {
		t.Errorf("Sweep = %v, %v", due, err)
	}
	again := newRun(t)
	second, err := s.Create(t.Context(), state.NewRun{State: again, Key: "order 7", Fingerprint: "another", RedeliveryDelay: time.Minute})
	if err != nil || second.State.ID != again.ID {
		t.Errorf("the idempotency key returns %s, %v", second.State.ID, err)
	}
	if _, err := s.Load(t.Context(), kept.ID); err != nil {
		t.Error(err)
	}
}

// A deletion leaves a marker: later calls that name the run get ErrDeleted, and no call creates
// the run again. A run that never existed is ErrNotFound.
func testDeleteMarker(t *testing.T, s *suite) {
	run := s.create(t)
	s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
	if err := s.Delete(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	never := newRun(t)
	if err := s.PreventCreation(t.Context(), never.Tenant, never.ID); err != nil {
		t.Fatal(err)
	}
	there := s.create(t)
	if err := s.PreventCreation(t.Context(), there.Tenant, there.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), there.ID); err != nil {
		t.Errorf("PreventCreation of an existing run, then Load = %v, want the run unchanged", err)
	}
	for _, gone := range []state.State{run, never} {
		calls := map[string]func() error{
			"Load":          func() error { _, err := s.Load(t.Context(), gone.ID); return err },
			"Log":           func() error { _, err := s.Log(t.Context(), gone.ID, 0, 0); return err },
			"LogPage":       func() error { _, err := s.LogPage(t.Context(), gone.ID, 0, 1, 1); return err },
			"Delete":        func() error { return s.Delete(t.Context(), gone.ID) },
			"Seal":          func() error { _, err := s.Seal(t.Context(), gone.ID, "t"); return err },
			"Signal":        func() error { _, err := s.Signal(t.Context(), gone.ID, message("m", "more"), long); return err },
			"Abort":         func() error { _, err := s.Abort(t.Context(), gone.ID, state.Abort{Reason: "x"}, long); return err },
			"Admit":         func() error { _, err := s.Admit(t.Context(), gone.ID, []state.RunID{newRun(t).ID}, 9); return err },
			"MarkFinalized": func() error { return s.MarkFinalized(t.Context(), gone.ID, 1) },
			"Create": func() error {
				again := newRun(t)
				again.ID = gone.ID
				_, err := s.Create(t.Context(), state.NewRun{State: again, RedeliveryDelay: long})
				return err
			},
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, state.ErrDeleted) || !errors.Is(err, state.ErrNotFound) {
				t.Errorf("%s of a deleted run = %v", name, err)
			}
		}
		if c := s.claim(t, gone.ID, 1); c.Outcome != state.ClaimDeleted {
			t.Errorf("Claim of a deleted run = %s", c.Outcome)
		}
		if err := s.Unseal(t.Context(), gone.ID, "t"); err != nil {
			t.Errorf("Unseal of a deleted run = %v", err)
		}
	}
	if _, err := s.Load(t.Context(), newRun(t).ID); !errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrDeleted) {
		t.Errorf("Load of a run that never existed = %v", err)
	}
	if page, err := s.List(t.Context(), state.Filter{}); err != nil || len(page.Runs) != 1 || page.Runs[0].ID != there.ID {
		t.Errorf("List = %v, %v; want the run that exists", page.Runs, err)
	}
}

// A deletion removes the idempotency key of its run, and a deletion that is refused does not.
func testDeleteKey(t *testing.T, s *suite) {
	submit := func(key string) state.Created {
		t.Helper()
		made, err := s.Create(t.Context(), state.NewRun{State: newRun(t), Key: key, Fingerprint: "f", RedeliveryDelay: long})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	run := submit("k").State
	s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
	if _, err := s.Signal(t.Context(), run.ID, message("m1", "more"), long); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), run.ID); wantErr[*state.NotEndedError](t, err).ID != run.ID {
		t.Fatal(err)
	}
	if again := submit("k"); !again.Existing || again.State.ID != run.ID {
		t.Errorf("after Delete refused the run, Create with its idempotency key returned run %s, want %s again", again.State.ID, run.ID)
	}
	s.commit(t, s.mustClaim(t, run.ID, 2), state.UserMessage, state.Entry{})
	s.commit(t, s.mustClaim(t, run.ID, 3), state.EndCompleted, state.Entry{})
	if err := s.Delete(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if st, err := s.LoadByKey(t.Context(), run.Tenant, "k", "f"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("after Delete, LoadByKey = run %q, %v; want ErrNotFound", st.ID, err)
	}
	if again := submit("k"); again.Existing || again.State.ID == run.ID {
		t.Errorf("after Delete, Create with the idempotency key of the run returned run %s, want a new run", again.State.ID)
	}
}

// A batch keeps the status of each deleted run.
func testDeleteBatch(t *testing.T, s *suite) {
	first := newRun(t).ID
	runs := []state.State{pending(t, first, 0), pending(t, first, 1)}
	for _, run := range runs {
		s.store(t, run)
	}
	if _, err := s.DeletedOfBatch(t.Context(), first); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("before any deletion: %v", err)
	}
	want := map[int]state.Status{}
	for i, end := range []state.Reason{state.EndCompleted, state.EndAbortedWaiting} {
		if i == 1 {
			if _, err := s.Abort(t.Context(), runs[1].ID, state.Abort{Reason: "x"}, long); err != nil {
				t.Fatal(err)
			}
		}
		s.commit(t, s.mustClaim(t, runs[i].ID, runs[i].Version), end, state.Entry{})
		if err := s.Delete(t.Context(), runs[i].ID); err != nil {
			t.Fatal(err)
		}
		want[i] = []state.Status{state.Completed, state.Cancelled}[i]
		got, err := s.DeletedOfBatch(t.Context(), first)
		if err != nil || got.Tenant != runs[0].Tenant || got.Size != 2 || got.MaxParallel != 1 || !got.CreatedAt.Equal(runs[0].CreatedAt.Time) {
			t.Errorf("record of the batch = %+v, %v", got, err)
		}
		if encode(t, got.Deleted) != encode(t, want) {
			t.Errorf("deleted runs = %v, want %v", got.Deleted, want)
		}
	}
}

// A sealed run rejects messages but can be read. Removing the seal with its token restores it.
func testSeal(t *testing.T, s *suite) {
	run, child := s.create(t), newRun(t).ID
	if _, err := s.Admit(t.Context(), run.ID, []state.RunID{child}, 9); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context(), run.ID, "a"); wantErr[*state.NotEndedError](t, err).Status != state.Queued {
		t.Errorf("Seal of a queued run = %v", err)
	}
	s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
	before, err := s.Load(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"a", "a", "b"} {
		if admitted, err := s.Seal(t.Context(), run.ID, token); err != nil || !slices.Equal(admitted, []state.RunID{child}) {
			t.Errorf("Seal = %v, %v; want %s", admitted, err, child)
		}
	}
	refused := func(when string) {
		t.Helper()
		if _, err := s.Signal(t.Context(), run.ID, message("m1", "more"), long); !errors.Is(err, state.ErrDeleting) {
			t.Errorf("%s: Signal = %v", when, err)
		}
	}
	refused("sealed")
	if got, err := s.Load(t.Context(), run.ID); err != nil || encode(t, got) != encode(t, before) {
		t.Errorf("Load of a sealed run = %s, %v; want %s", encode(t, got), err, encode(t, before))
	}
	if err := s.Unseal(t.Context(), run.ID, "a"); err != nil {
		t.Fatal(err)
	}
	refused("sealed with another token")
	if err := s.Unseal(t.Context(), run.ID, "b"); err != nil {
		t.Fatal(err)
	}
	if w, err := s.Signal(t.Context(), run.ID, message("m1", "more"), long); err != nil || !w.Publish {
		t.Errorf("Signal after Unseal = %+v, %v", w, err)
	}
	if _, err := s.Seal(t.Context(), run.ID, "c"); wantErr[*state.NotEndedError](t, err).Status != state.Queued {
		t.Errorf("Seal of a continued run = %v", err)
	}
	if _, err := s.Seal(t.Context(), newRun(t).ID, "c"); !errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrDeleted) {
		t.Errorf("Seal of a run that never existed = %v", err)
	}
	if _, err := s.Admit(t.Context(), run.ID, []state.RunID{child}, 9); err != nil {
		t.Errorf("Admit after Unseal = %v", err)
	}
}

// If a message and a deletion race, the store refuses one of them.
func testSealRace(t *testing.T, s *suite) {
	for i := range 20 {
		run := s.create(t)
		s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
		var both sync.WaitGroup
		var said, deleted error
		both.Go(func() { _, said = s.Signal(t.Context(), run.ID, message("m1", "more"), long) })
		both.Go(func() {
			if _, deleted = s.Seal(t.Context(), run.ID, fmt.Sprint(i)); deleted == nil {
				deleted = s.Delete(t.Context(), run.ID)
			}
		})
		both.Wait()
		_, err := s.Load(t.Context(), run.ID)
		switch {
		case said == nil && (deleted == nil || err != nil):
			t.Errorf("Signal accepted a message during Delete, which returned %v, and Load then returned %v; want Delete refused, and the run", deleted, err)
		case said != nil && (deleted != nil || !errors.Is(err, state.ErrDeleted)):
			t.Errorf("Signal refused a message (%v) during Delete, which returned %v, and Load then returned %v; want no error from Delete, and ErrDeleted from Load", said, deleted, err)
		}
	}
}
