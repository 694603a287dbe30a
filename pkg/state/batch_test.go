package state_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const someRun state.RunID = "run_01JD3X9K3W8Q4V5N6M7P8R9S0T"

func TestRunIDPlus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		id   state.RunID
		n    int
		want state.RunID
	}{
		{someRun, 0, someRun},
		{someRun, 1, "run_01JD3X9K3W8Q4V5N6M7P8R9S0V"},
		{someRun, -1, "run_01JD3X9K3W8Q4V5N6M7P8R9S0S"},
		{someRun, 32, "run_01JD3X9K3W8Q4V5N6M7P8R9S1T"},
		{"run_01JD3X9K3W8Q4V5N6M7P8RZZZZ", 1, "run_01JD3X9K3W8Q4V5N6M7P8S0000"},
		{"run_01JD3X9K3W8Q4V5N6M7P8S0000", -1, "run_01JD3X9K3W8Q4V5N6M7P8RZZZZ"},
		{"run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", 1, "run_00000000000000000000000000"},
		{"run_00000000000000000000000000", -1, "run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
		{"run_not an id", 5, "run_not an id"},
	} {
		if got := tt.id.Plus(tt.n); got != tt.want {
			t.Errorf("%s.Plus(%d) = %s, want %s", tt.id, tt.n, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		id := state.RunID("run_" + rapid.StringMatching(`[0-7][0-9A-HJKMNP-TV-Z]{25}`).Draw(t, "id"))
		a, b := rapid.IntRange(-5000, 5000).Draw(t, "a"), rapid.IntRange(-5000, 5000).Draw(t, "b")
		if got, want := id.Plus(a).Plus(b), id.Plus(a+b); got != want {
			t.Errorf("%s plus %d plus %d = %s, want %s", id, a, b, got, want)
		}
		if next := id.Plus(1); next < id && id != "run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ" {
			t.Errorf("%s sorts before %s", next, id)
		}
	})
}

// Every run of a batch is in one lane, and each can compute the batch and its neighbors from its own position
// (L8).
func TestBatchLanes(t *testing.T) {
	t.Parallel()
	place := func(i int) *state.State {
		return &state.State{ID: someRun.Plus(i), Batch: &state.Batch{Index: i, Size: 7, MaxParallel: 3}}
	}
	var got [][]state.RunID
	for lane := range 3 {
		ids := []state.RunID{place(lane).ID}
		for i := lane; ; i += 3 {
			next, ok := place(i).InLane(1)
			if !ok {
				break
			}
			if back, ok := place(i + 3).InLane(-1); !ok || back != place(i).ID {
				t.Errorf("before run %d is %s, %v", i+3, back, ok)
			}
			ids = append(ids, next)
		}
		if _, ok := place(lane).InLane(-1); ok {
			t.Errorf("there is a run before run %d", lane)
		}
		got = append(got, ids)
	}
	want := [][]state.RunID{
		{someRun, someRun.Plus(3), someRun.Plus(6)}, {someRun.Plus(1), someRun.Plus(4)}, {someRun.Plus(2), someRun.Plus(5)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lanes:\n%s", diff)
	}
	for i := range 7 {
		id := place(i).BatchID()
		if first, err := state.ParseBatchID(id); err != nil || first != someRun {
			t.Errorf("run %d is of batch %s, whose first run is %s, %v", i, id, first, err)
		}
	}
	for _, bad := range []string{"", "batch_", "batch_1", string(someRun), "batch_" + string(someRun), "batch_81JD3X9K3W8Q4V5N6M7P8R9S0T"} {
		if _, err := state.ParseBatchID(bad); err == nil {
			t.Errorf("ParseBatchID(%q) takes it", bad)
		}
	}
	if id := (&state.State{ID: someRun}).BatchID(); id != "" {
		t.Errorf("a run on its own is of batch %q", id)
	}
	if _, ok := (&state.State{ID: someRun}).InLane(0); ok {
		t.Error("a run on its own is in a lane")
	}
}

// A pending run waits for the start signal; of timed events, only its deadline applies.
func TestPendingRun(t *testing.T) {
	t.Parallel()
	s := must(t, state.State{ID: someRun, Batch: &state.Batch{Index: 1, Size: 2, MaxParallel: 1, PendingInBatch: true}, ResumeAt: noon}, state.Submitted, state.Entry{})
	if s.PendingInBatch() {
		t.Error("a queued run is held")
	}
	held := must(t, s, state.WaitingSchedule, state.Entry{Detail: state.BatchDetail, Waiting: &state.Wait{Reason: state.WaitingSchedule}})
	if diff := cmp.Diff([]string{state.AwaitStart}, held.Awaits()); diff != "" {
		t.Errorf("a held run awaits:\n%s", diff)
	}
	if diff := cmp.Diff([]string{state.AwaitStart}, (state.Signal{Start: true}).Names()); diff != "" {
		t.Errorf("the start signal answers:\n%s", diff)
	}
	if due := held.Due(); !due.IsZero() {
		t.Errorf("a held run is due at %s", due)
	}
	later := held
	later.Limits.DeadlineAt = noon
	if due := later.Due(); !due.Equal(noon.Time) {
		t.Errorf("a held run with a deadline is due at %s", due)
	}
	let := held.Started()
	if let.PendingInBatch() || len(let.Awaits()) != 0 || !let.Due().Equal(noon.Time) {
		t.Errorf("after the start: held %v, awaits %v, due %s", let.PendingInBatch(), let.Awaits(), let.Due())
	}
	if !held.PendingInBatch() {
		t.Error("Started changed its receiver")
	}
	ended := must(t, held, state.EndAbortedWaiting, state.Entry{})
	if ended.PendingInBatch() || !ended.Batch.Skipped || ended.Awaits() != nil {
		t.Errorf("ended while held: %+v awaits %v", ended.Batch, ended.Awaits())
	}
	again := must(t, must(t, ended, state.UserMessage, state.Entry{}), state.WaitingHumanInput, state.Entry{Waiting: &state.Wait{Reason: state.WaitingHumanInput}})
	if again.PendingInBatch() || !again.Batch.Skipped {
		t.Errorf("continued after that: %+v", again.Batch)
	}
	if done := must(t, let, state.EndCompleted, state.Entry{}); done.Batch.Skipped {
		t.Errorf("ended after its start: %+v", done.Batch)
	}
}
