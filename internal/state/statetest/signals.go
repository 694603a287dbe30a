package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testSignalWakes(t *testing.T, s *suite) {
	run := s.create(t)
	v := s.wait(t, run.ID, 1, "c1", "c2")
	if got, _ := s.Load(t.Context(), run.ID); got.Status != state.Waiting || got.Waiting == nil {
		t.Fatalf("run is %s, waiting %v", got.Status, got.Waiting)
	}
	w, err := s.Signal(t.Context(), run.ID, resultSignal("s1", "c1"), long)
	if err != nil || !w.Publish || w.Version != v || w.Priority != state.Normal {
		t.Fatalf("Signal = %+v, %v; want to publish version %d", w, err, v)
	}
	if got, _ := s.Load(t.Context(), run.ID); got.Status != state.Queued || got.Waiting != nil {
		t.Errorf("woken run is %s, waiting %v", got.Status, got.Waiting)
	}
	// The second result is accepted while the run is queued.
	if w, err := s.Signal(t.Context(), run.ID, resultSignal("s2", "c2"), long); err != nil || w.Publish {
		t.Errorf("Signal with a second result, for a queued run = %+v, %v; want it stored, and Publish false", w, err)
	}
	c := s.mustClaim(t, run.ID, v)
	if len(c.Signals) != 2 || c.Signals[0].ID != "s1" || c.Signals[1].ID != "s2" {
		t.Fatalf("signals = %s", encode(t, c.Signals))
	}
	s.commit(t, c, state.ToolResults, state.Entry{})
	if c = s.mustClaim(t, run.ID, v+1); len(c.Signals) != 0 {
		t.Errorf("signals after the commit = %s", encode(t, c.Signals))
	}
}

// A wait that a turn opens while it runs, for a tool that answers later, accepts its signal once, even before
// the turn has ended.
func testSignalToOpenedWait(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	rec := state.Record{From: 1, Started: []string{"c1"}, Awaits: []string{state.AwaitCall(state.NeedAsync, "c1")}}
	if _, err := s.Record(t.Context(), c.Lease, rec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("s1", "c1"), long); err != nil {
		t.Fatalf("Signal during the turn = %v", err)
	}
	if _, err := s.Record(t.Context(), c.Lease, rec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("s2", "c1"), long); err == nil {
		t.Error("a second result for the call is accepted")
	}
	if _, err := s.Evict(t.Context(), "w1", 100, long); err != nil {
		t.Fatal(err)
	}
	if again := s.mustClaim(t, run.ID, 1); len(again.Signals) != 1 || again.Signals[0].ID != "s1" || !again.Journal.Started["c1"] {
		t.Errorf("the next attempt has signals %s, journal %v", encode(t, again.Signals), again.Journal)
	}
}

func testSignalRefused(t *testing.T, s *suite) {
	if _, err := s.Signal(t.Context(), newRun(t).ID, message("s1", "x"), long); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Signal to a missing run = %v, want not found", err)
	}
	run := s.create(t)
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("s1", "c1"), long); wantErr[*state.NotWaitingError](t, err).Status != state.Queued {
		t.Errorf("Signal to a queued run = %v", err)
	}
	v := s.wait(t, run.ID, 1, "c1", "c2")
	// All waits of a signal must be open, or the whole signal is refused.
	_, err := s.Signal(t.Context(), run.ID, resultSignal("s2", "c1", "other"), long)
	if e := wantErr[*state.NotWaitingError](t, err); e.Name != "result:other" {
		t.Errorf("refused for %q", e.Name)
	}
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("s3", "c1", "c1"), long); err == nil {
		t.Error("one signal answers a call twice")
	}
	answer := "x"
	if _, err := s.Signal(t.Context(), run.ID, state.Signal{ID: "s4", Answer: &answer}, long); err == nil {
		t.Error("Signal accepted an answer for a run that has no question, want an error")
	}
	if w, err := s.Signal(t.Context(), run.ID, resultSignal("s5", "c1", "c2"), long); err != nil || !w.Publish {
		t.Fatalf("Signal = %+v, %v", w, err)
	}
	// The repeated signal counts once and returns no error.
	if w, err := s.Signal(t.Context(), run.ID, resultSignal("s5", "c1", "c2"), long); err != nil || w != (state.Wake{}) {
		t.Errorf("repeated Signal = %+v, %v; want nothing", w, err)
	}
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("s6", "c1"), long); err == nil {
		t.Error("a second result for one call is accepted")
	}
	c := s.mustClaim(t, run.ID, v)
	if len(c.Signals) != 1 {
		t.Fatalf("inbox holds %d signals, want 1", len(c.Signals))
	}
	s.commit(t, c, state.EndCompleted, state.Entry{})
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("s7", "c1"), long); wantErr[*state.NotWaitingError](t, err).Status != state.Completed {
		t.Errorf("Signal to an ended run = %v", err)
	}
}

// A decision with the hash of a call applies only to exactly that call, checked in the step that accepts the
// signal.
func testSignalShown(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	next := c.State.Append(response(1, "c1", "c2"))
	for i := range next.Open {
		next.Open[i].Needs = state.NeedApproval
	}
	hash := func(call, arguments string) string { return next.ApprovalHash(call, "t", json.RawMessage(arguments)) }
	v := s.commitState(t, c, move(t, next, state.WaitingApproval, state.Entry{
		Waiting: &state.Wait{Reason: state.WaitingApproval, Since: created, Calls: []state.WaitCall{}},
	})).Version
	approval := func(id, call, hash string) state.Signal {
		return state.Signal{ID: id, At: created, Approvals: []state.Approval{{CallID: call, Decision: state.Approve, Hash: hash}}}
	}
	for name, other := range map[string]string{"other arguments": hash("c1", `{"a":2}`), "another call": hash("c2", `{"a":1}`)} {
		_, err := s.Signal(t.Context(), run.ID, approval(name, "c1", other), long)
		if e := wantErr[*state.NotWaitingError](t, err); e.Name != state.AwaitApprovalHash("c1", other) {
			t.Errorf("%s: refused for %q", name, e.Name)
		}
	}
	if w, err := s.Signal(t.Context(), run.ID, approval("s1", "c1", hash("c1", `{"a":1}`)), long); err != nil || !w.Publish {
		t.Fatalf("the waiting call: %+v, %v", w, err)
	}
	_, err := s.Signal(t.Context(), run.ID, approval("s2", "c1", hash("c1", `{"a":1}`)), long)
	wantErr[*state.NotWaitingError](t, err)
	// A decision without a hash counts for an id that was not decided before.
	if _, err := s.Signal(t.Context(), run.ID, approval("s3", "c2", ""), long); err != nil {
		t.Fatal(err)
	}
	c = s.mustClaim(t, run.ID, v)
	if len(c.Signals) != 2 || c.Signals[0].Approvals[0].Hash == "" {
		t.Errorf("signals = %s", encode(t, c.Signals))
	}
	// The next response repeats a decided id, and has a new one.
	next = c.State.Append(state.Entry{Type: state.EntryDecided, CallID: "c1", Name: "t", At: created, Approval: &state.Decided{Decision: state.Approve}})
	next = next.Append(result("c1", "done")).Append(result("c2", "done")).Append(response(2, "c1", "c3"))
	for i := range next.Open {
		next.Open[i].Needs = state.NeedApproval
	}
	s.commitState(t, c, move(t, next, state.WaitingApproval, state.Entry{
		Waiting: &state.Wait{Reason: state.WaitingApproval, Since: created, Calls: []state.WaitCall{}},
	}))
	_, err = s.Signal(t.Context(), run.ID, approval("s4", "c1", ""), long)
	if e := wantErr[*state.NotWaitingError](t, err); !state.AwaitsUnhashed(e.Name) {
		t.Errorf("a decided id: refused for %q", e.Name)
	}
	for id, a := range map[string]state.Signal{
		"c1": approval("s5", "c1", next.ApprovalHash("c1", "t", json.RawMessage(`{"a":1}`))), "c3": approval("s6", "c3", ""),
	} {
		if _, err := s.Signal(t.Context(), run.ID, a, long); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// If several signals race for one wait, exactly one wins.
func testSignalRace(t *testing.T, s *suite) {
	run := s.create(t)
	v := s.wait(t, run.ID, 1, "c1")
	var won, wakes atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			w, err := s.Signal(t.Context(), run.ID, resultSignal(fmt.Sprint("s", i), "c1"), long)
			var refused *state.NotWaitingError
			switch {
			case err == nil:
				won.Add(1)
				if w.Publish {
					wakes.Add(1)
				}
			case !errors.As(err, &refused):
				t.Errorf("Signal: %v", err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || wakes.Load() != 1 {
		t.Errorf("%d signals won and %d woke, want 1 and 1", won.Load(), wakes.Load())
	}
	if c := s.mustClaim(t, run.ID, v); len(c.Signals) != 1 {
		t.Errorf("inbox holds %d signals", len(c.Signals))
	}
}

// A signal that arrives while the turn runs is found by the commit: no wake is lost (I2).
func testSignalDuringTurn(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	if w, err := s.Signal(t.Context(), run.ID, message("s1", "wait"), long); err != nil || w.Publish {
		t.Fatalf("Signal = %+v, %v; want it stored", w, err)
	}
	done := s.commit(t, c, state.WaitingHumanInput, state.Entry{Waiting: &state.Wait{Reason: state.WaitingHumanInput, Calls: []state.WaitCall{}}})
	if done.Status != state.Queued || done.Version != 2 {
		t.Fatalf("Commit = %+v, want queued", done)
	}
	c = s.mustClaim(t, run.ID, 2)
	if len(c.Signals) != 1 || c.State.Status != state.Waiting {
		t.Errorf("Claim of a run that a message continues = signals %s, status %s; want the message, and the status waiting as committed", encode(t, c.Signals), c.State.Status)
	}
}

// If a turn leaves waits open that a pending signal answers, they count as answered, whatever else the signal
// contains: the store accepts no second signal for them.
func testSignalPartlyReopened(t *testing.T, s *suite) {
	for _, calls := range [][]string{{"c1", "c2"}, {"c2", "c1"}} {
		run := s.create(t)
		v := s.wait(t, run.ID, 1, calls...)
		if _, err := s.Signal(t.Context(), run.ID, resultSignal("first", calls...), long); err != nil {
			t.Fatal(err)
		}
		c := s.mustClaim(t, run.ID, v)
		next := *c.State
		next.Open = []state.OpenCall{{ID: "c2", Name: "t", Arguments: "{}", Needs: state.NeedResult}}
		next = move(t, next, state.WaitingClientTool, state.Entry{Waiting: &state.Wait{Reason: state.WaitingClientTool, Calls: []state.WaitCall{}}})
		commit := commitOf(c, next)
		commit.Consumed = 0
		if done, err := s.Commit(t.Context(), c.Lease, commit); err != nil || done.Status != state.Queued {
			t.Fatalf("Commit = %+v, %v; want queued: a signal is pending", done, err)
		}
		if _, err := s.Signal(t.Context(), run.ID, resultSignal("second", "c2"), long); wantErr[*state.NotWaitingError](t, err).Name != "result:c2" {
			t.Errorf("a second result for c2 = %v", err)
		}
	}
}

func testMessageContinues(t *testing.T, s *suite) {
	run := s.create(t)
	s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
	w, err := s.Signal(t.Context(), run.ID, message("s1", "more"), long)
	if err != nil || !w.Publish || w.Version != 2 {
		t.Fatalf("Signal = %+v, %v", w, err)
	}
	c := s.mustClaim(t, run.ID, 2)
	if c.State.Status != state.Completed || len(c.Signals) != 1 {
		t.Fatalf("claim = %s with %d signals", c.State.Status, len(c.Signals))
	}
	if done := s.commit(t, c, state.UserMessage, state.Entry{}); done.Status != state.Queued {
		t.Errorf("Commit = %+v", done)
	}
	// A user message that arrives while the run is about to end also continues it.
	c = s.mustClaim(t, run.ID, 3)
	if _, err := s.Signal(t.Context(), run.ID, message("s2", "and more"), long); err != nil {
		t.Fatal(err)
	}
	if done := s.commit(t, c, state.EndCompleted, state.Entry{}); done.Status != state.Queued {
		t.Errorf("Commit that ends a run with a message in its inbox = %+v, want the status queued", done)
	}
}

func testAbort(t *testing.T, s *suite) {
	if _, err := s.Abort(t.Context(), newRun(t).ID, state.Abort{Reason: "x"}, long); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Abort of a missing run = %v", err)
	}
	run := s.create(t)
	if w, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "first"}, long); err != nil || !w.Publish || w.Version != 1 {
		t.Fatalf("Abort of a queued run = %+v, %v; want a message that overtakes", w, err)
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "second"}, long); err != nil {
		t.Fatalf("repeated Abort: %v", err)
	}
	c := s.mustClaim(t, run.ID, 1)
	if c.Abort == nil || c.Abort.Reason != "first" {
		t.Fatalf("claim's abort = %v, want the first reason", c.Abort)
	}
	s.commit(t, c, state.EndAbortedQueued, state.Entry{})
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "late"}, long); wantErr[*state.TerminalError](t, err).Status != state.Cancelled {
		t.Errorf("Abort of an ended run = %v", err)
	}
	// The abort flag ends with the run: a user message continues it.
	if _, err := s.Signal(t.Context(), run.ID, message("s1", "go on"), long); err != nil {
		t.Fatal(err)
	}
	if c := s.mustClaim(t, run.ID, 2); c.Abort != nil {
		t.Errorf("the continued run still has the abort: %v", c.Abort)
	}

	run = s.create(t)
	v := s.wait(t, run.ID, 1, "c1")
	if w, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "x"}, long); err != nil || !w.Publish || w.Version != v {
		t.Fatalf("Abort of a waiting run = %+v, %v", w, err)
	}
	if c := s.mustClaim(t, run.ID, v); c.Abort == nil || c.State.Status != state.Waiting {
		t.Errorf("claim = abort %v, header %s", c.Abort, c.State.Status)
	}

	// The sweeper's message also overtakes others.
	lost := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: lost, RedeliveryDelay: short}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Abort(t.Context(), lost.ID, state.Abort{Reason: "x"}, long); err != nil {
		t.Fatal(err)
	}
	if d := s.sweepFor(t, lost.ID, long); !d.NeedsTurn || d.Priority != state.High {
		t.Errorf("Sweep after Abort of the run = %+v, want NeedsTurn with the priority high", d)
	}
}

// An abort during a turn is reported by the next claim at the latest (I7).
func testAbortDuringTurn(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	if abort, err := s.Record(t.Context(), c.Lease, state.Record{From: c.LogLen, Entries: []state.Entry{response(1, "c1")}}); err != nil || abort != nil {
		t.Fatalf("Record = %+v, %v; want no abort", abort, err)
	}
	by := &state.By{Principal: "ann"}
	if w, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "x", By: by}, long); err != nil || w.Publish {
		t.Fatalf("Abort = %+v, %v", w, err)
	}
	for _, r := range []state.Record{
		{From: c.LogLen, Entries: []state.Entry{response(1, "c1")}}, // repeated
		{From: c.LogLen + 1, Started: []string{"c1"}}, {From: c.LogLen + 1},
	} {
		if abort, err := s.Record(t.Context(), c.Lease, r); err != nil || abort == nil || abort.Reason != "x" || abort.By == nil || abort.By.Principal != "ann" {
			t.Errorf("Record = %+v, %v; want the abort", abort, err)
		}
	}
	next := c.State.Append(response(1, "c1"))
	c.State = &next
	done := s.commit(t, c, state.WaitingHumanInput, state.Entry{Waiting: &state.Wait{Reason: state.WaitingHumanInput, Calls: []state.WaitCall{}}})
	if done.Status != state.Queued {
		t.Fatalf("Commit = %+v, want queued", done)
	}
	if c := s.mustClaim(t, run.ID, 2); c.Abort == nil {
		t.Error("the abort is forgotten")
	}
}

// An abort ends the run together with the messages before it; messages after it continue the run (I7).
func testAbortAndMessages(t *testing.T, s *suite) {
	say := func(t *testing.T, id state.RunID, signal string) {
		t.Helper()
		if _, err := s.Signal(t.Context(), id, message(signal, signal), long); err != nil {
			t.Fatal(err)
		}
	}
	abort := func(t *testing.T, id state.RunID) {
		t.Helper()
		if _, err := s.Abort(t.Context(), id, state.Abort{Reason: "x"}, long); err != nil {
			t.Fatal(err)
		}
	}
	end := func(t *testing.T, c *state.Claim) state.Status {
		t.Helper()
		return s.commit(t, c, state.EndAbortedTools, state.Entry{}).Status
	}
	t.Run("during the turn", func(t *testing.T) {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		say(t, run.ID, "before")
		abort(t, run.ID)
		if got := end(t, c); got != state.Cancelled {
			t.Errorf("the run is %s, want cancelled", got)
		}
	})
	t.Run("before the turn", func(t *testing.T) {
		run := s.create(t)
		say(t, run.ID, "before")
		abort(t, run.ID)
		say(t, run.ID, "after")
		c := s.mustClaim(t, run.ID, 1)
		if len(c.Signals) != 1 || c.Signals[0].ID != "before" || c.Abort == nil {
			t.Fatalf("the claim has signals %s, abort %v", encode(t, c.Signals), c.Abort)
		}
		if got := end(t, c); got != state.Queued {
			t.Fatalf("the run is %s, want queued", got)
		}
		if c = s.mustClaim(t, run.ID, 2); len(c.Signals) != 1 || c.Signals[0].ID != "after" || c.Abort != nil {
			t.Errorf("the next claim has signals %s, abort %v", encode(t, c.Signals), c.Abort)
		}
	})
	t.Run("after a turn that continues", func(t *testing.T) {
		run := s.create(t)
		say(t, run.ID, "before")
		c := s.mustClaim(t, run.ID, 1)
		abort(t, run.ID)
		say(t, run.ID, "after")
		if got := s.commit(t, c, state.NextTurn, state.Entry{}).Status; got != state.Queued {
			t.Fatalf("the run is %s, want queued", got)
		}
		if c = s.mustClaim(t, run.ID, 2); len(c.Signals) != 0 || c.Abort == nil {
			t.Fatalf("the claim has signals %s, abort %v, want the abort alone", encode(t, c.Signals), c.Abort)
		}
		if got := end(t, c); got != state.Queued {
			t.Fatalf("the run is %s, want queued", got)
		}
		if c = s.mustClaim(t, run.ID, 3); len(c.Signals) != 1 || c.Signals[0].ID != "after" || c.Abort != nil {
			t.Errorf("the claim after the end has signals %s, abort %v", encode(t, c.Signals), c.Abort)
		}
	})
	t.Run("too late", func(t *testing.T) {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		abort(t, run.ID)
		if got := s.commit(t, c, state.EndCompleted, state.Entry{}).Status; got != state.Completed {
			t.Errorf("a run that was committing its end is %s, want completed", got)
		}
	})
	t.Run("again", func(t *testing.T) {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		abort(t, run.ID)
		say(t, run.ID, "between")
		abort(t, run.ID)
		if got := end(t, c); got != state.Cancelled {
			t.Errorf("the run is %s, want cancelled", got)
		}
	})
}

// The inbox is bounded. The turn can process what the inbox has accepted, an abort always fits, and the turn
// frees capacity.
func testInboxLimit(t *testing.T, s *suite) { fillInbox(t, s, strings.Repeat("x", 400<<10)) }

// SmallSignals tests a store with as many small signals as an inbox accepts. It is slow if a run is one value.
func SmallSignals(t *testing.T, s state.RunStore) {
	t.Helper()
	if taken := fillInbox(t, &suite{RunStore: s}, "x"); taken != state.MaxSignals {
		t.Errorf("the inbox accepted %d signals, want %d", taken, state.MaxSignals)
	}
}

func fillInbox(t *testing.T, s *suite, text string) (taken int) {
	t.Helper()
	run := s.create(t)
	for ; ; taken++ {
		_, err := s.Signal(t.Context(), run.ID, message(strconv.Itoa(taken), text), long)
		if full, ok := errors.AsType[*state.InboxFullError](err); ok {
			if full.ID != run.ID || full.Signals != int64(taken+1) || full.Bytes < int64(len(text)*taken) || full.Limit == 0 {
				t.Errorf("signal %d was refused with %+v", taken+1, full)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if taken == 0 || taken > state.MaxSignals || taken*len(text) > state.MaxSignalBytes {
		t.Errorf("Signal filled the inbox with %d signals and %d bytes of text, want 1 to %d signals with at most %d bytes", taken, taken*len(text), state.MaxSignals, state.MaxSignalBytes)
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); err != nil {
		t.Errorf("Abort = %v", err)
	}
	c := s.mustClaim(t, run.ID, 1)
	if len(c.Signals) != taken || c.Abort == nil {
		t.Errorf("the claim has %d signals of %d, abort %v", len(c.Signals), taken, c.Abort)
	}
	s.commit(t, c, state.EndAbortedQueued, state.Entry{})
	if _, err := s.Signal(t.Context(), run.ID, message("later", text), long); err != nil {
		t.Errorf("Signal after the turn = %v", err)
	}
	return taken
}

// A signal that a turn has consumed no longer counts in the inbox, although a later one remains there.
func testInboxAfterTurn(t *testing.T, s *suite) {
	run, text := s.create(t), strings.Repeat("x", 100<<10)
	send := func(id, text string) error {
		_, err := s.Signal(t.Context(), run.ID, message(id, text), long)
		return err
	}
	if err := send("consumed", text); err != nil {
		t.Fatal(err)
	}
	c := s.mustClaim(t, run.ID, 1)
	if err := send("later", text); err != nil {
		t.Fatal(err)
	}
	s.commit(t, c, state.NextTurn, state.Entry{})
	full := wantErr[*state.InboxFullError](t, send("large", strings.Repeat("x", state.MaxSignalBytes)))
	if most := int64(state.MaxSignalBytes + len(text) + 2<<10); full.Signals != 2 || full.Bytes > most {
		t.Errorf("a large signal was refused with %+v, want 2 signals of at most %d bytes", full, most)
	}
}

// No id that a user chooses collides with a signal of Turnpike or of another user: the store accepts each once.
func testSignalKeys(t *testing.T, s *suite) {
	run := pending(t, newRun(t).ID, 1)
	run.Tenant = "acme"
	s.store(t, run)
	start := state.Signal{ID: "start:" + string(run.ID), Start: true, At: created}
	said := message("said", "first")
	said.Fingerprint = "f"
	sent := []state.Signal{said}
	for _, id := range []string{
		start.ID, start.Key(), "turnpike " + start.Key(), "start", "turnpike", "said\x00f", said.Key() + "\x00f", "mark " + said.Key() + "\x00f", "mark said\x00f", said.Key(),
		"child:" + string(run.ID), "replay:1", "", " ", "\x00", "SAID",
	} {
		m := message(id, "user")
		m.Fingerprint = "g"
		sent = append(sent, m)
	}
	for _, from := range []string{"token ann", "token bob", "trigger orders", "hook orders"} {
		m := message("said", "of "+from)
		m.From, m.Fingerprint = from, "h"
		sent = append(sent, m, message(m.Key(), "user"))
		sent[len(sent)-1].Fingerprint = "i"
	}
	for i, m := range sent {
		if _, err := s.Signal(t.Context(), run.ID, m, long); err != nil {
			t.Fatalf("message with the id %q: %v", m.ID, err)
		}
		if _, err := s.Signal(t.Context(), run.ID, m, long); err != nil {
			t.Errorf("message with the id %q, again: %v", m.ID, err)
		}
		m.Fingerprint = "other"
		if _, err := s.Signal(t.Context(), run.ID, m, long); !errors.Is(err, state.ErrIdempotencyConflict) {
			t.Errorf("Signal with the used id %q and another message = %v, want ErrIdempotencyConflict (signal %d)", m.ID, err, i)
		}
	}
	w, err := s.Signal(t.Context(), run.ID, start, long)
	if err != nil || w.Tenant != "acme" {
		t.Fatalf("start = %+v, %v; want one of tenant acme", w, err)
	}
	if _, err := s.Signal(t.Context(), run.ID, start, long); err != nil {
		t.Errorf("start again: %v", err)
	}
	c := s.mustClaim(t, run.ID, w.Version)
	if len(c.Signals) != len(sent)+1 || !c.Signals[len(sent)].Start {
		t.Errorf("Claim after the start of a waiting run = %d signals, want its %d messages, then the start", len(c.Signals), len(sent))
	}
}
