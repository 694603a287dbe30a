package loop_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// hold returns a pending run of a batch, as the gateway creates it.
func hold(t *testing.T, def agent.Definition, limits state.Limits, startAt state.Time) *run {
	t.Helper()
	r := start(t, def, limits)
	s, err := r.s.Move(state.WaitingSchedule, state.Entry{
		At: state.At(epoch), Detail: state.BatchDetail, Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: state.At(epoch), Calls: []state.WaitCall{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Batch, s.ResumeAt = &state.Batch{Index: 1, Size: 2, MaxParallel: 1, PendingInBatch: true}, startAt
	r.s = s
	return r
}

func said(text string) state.Signal {
	m := state.UserText(text)
	return state.Signal{ID: text, Message: &m}
}

var startSignal = state.Signal{ID: "start", Start: true}

// The start signal leads to the model call at once, without a transition in between. Earlier messages are there
// then, and did not start the run (L8).
func TestPendingRunStarts(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"react", "single_call"} {
		r := hold(t, agent.Definition{Loop: agent.Loop{Type: typ}}, state.Limits{}, state.Time{})
		r.begin(loop.TurnBegan{Signals: []state.Signal{said("and this")}})
		r.wantReason(state.WaitingSchedule)
		if !r.s.PendingInBatch() {
			t.Fatalf("%s: a message started the run: %+v", typ, r.s.Batch)
		}
		version := r.s.Version
		r.begin(loop.TurnBegan{Signals: []state.Signal{startSignal}})
		call := wantEffect[loop.CallModel](r)
		if len(call.Messages) != 2 || call.Messages[1].Text() != "and this" || r.s.Version != version || r.s.Batch.PendingInBatch {
			t.Errorf("%s: the model is called with %s at version %d, held %v", typ, dump(call.Messages), r.s.Version, r.s.Batch.PendingInBatch)
		}
		r.respond(text("done"))
		r.wantReason(state.EndCompleted)
	}
}

// A message in the same turn as the start is read as a message.
func TestPendingRunStartsWithMessage(t *testing.T) {
	t.Parallel()
	r := hold(t, agent.Definition{}, state.Limits{}, state.Time{})
	r.begin(loop.TurnBegan{Signals: []state.Signal{startSignal, said("and this")}})
	r.wantReason(state.UserMessage)
	r.begin(loop.TurnBegan{})
	if call := wantEffect[loop.CallModel](r); len(call.Messages) != 2 {
		t.Errorf("the model is called with %s", dump(call.Messages))
	}
}

// A run with a later start waits for that time once its batch starts it.
func TestPendingRunStartsLater(t *testing.T) {
	t.Parallel()
	at := state.At(epoch.Add(time.Hour))
	r := hold(t, agent.Definition{}, state.Limits{}, at)
	r.begin(loop.TurnBegan{Signals: []state.Signal{startSignal}})
	r.wantReason(state.WaitingSchedule)
	if r.s.PendingInBatch() || !r.s.Due().Equal(at.Time) || r.s.Transition.Detail != "start_at" {
		t.Errorf("held %v, due %s, detail %q", r.s.PendingInBatch(), r.s.Due(), r.s.Transition.Detail)
	}
	r.at = at.Time
	r.begin(loop.TurnBegan{})
	wantEffect[loop.CallModel](r)

	r = hold(t, agent.Definition{}, state.Limits{}, at)
	r.at = at.Time
	r.begin(loop.TurnBegan{Signals: []state.Signal{startSignal}})
	wantEffect[loop.CallModel](r)
}

// A run that ends while pending keeps the mark: its end does not start the next run.
func TestPendingRunEnds(t *testing.T) {
	t.Parallel()
	r := hold(t, agent.Definition{}, state.Limits{}, state.Time{})
	r.begin(loop.TurnBegan{Abort: &state.Abort{Reason: "no"}, Signals: []state.Signal{startSignal}})
	r.wantReason(state.EndAbortedWaiting)
	if !r.s.Batch.Skipped {
		t.Error("an aborted run claims to have started")
	}
	r = hold(t, agent.Definition{}, state.Limits{DeadlineAt: state.At(epoch.Add(time.Second))}, state.Time{})
	r.begin(loop.TurnBegan{})
	r.wantReason(state.EndDeadline)
}
