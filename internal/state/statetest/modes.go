package statetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func messageIn(mode state.Mode, id string) state.Signal {
	sig := message(id, id)
	sig.Mode = mode
	return sig
}

// An interrupt during a turn is reported by each write of that turn, and by no later turn.
func testInterruptDuringTurn(t *testing.T, s *suite) {
	run := s.create(t)
	c := s.mustClaim(t, run.ID, 1)
	length := c.LogLen
	check := func(what string, want bool, abort *state.Abort, err error) {
		t.Helper()
		if err != nil || want != (abort != nil) || want && (!abort.Interrupt || abort.By != nil) {
			t.Errorf("%s = %+v, %v; want an interrupt: %v", what, abort, err, want)
		}
	}
	record := func(want bool) {
		t.Helper()
		abort, err := s.Record(t.Context(), c.Lease, state.Record{From: length})
		check("Record", want, abort, err)
		abort, err = s.Renew(t.Context(), c.Lease, long, long)
		check("Renew", want, abort, err)
	}
	if w, err := s.Signal(t.Context(), run.ID, message("s0", "later"), long); err != nil || w.Publish {
		t.Fatalf("Signal = %+v, %v", w, err)
	}
	record(false)
	if w, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "s1"), long); err != nil || w.Publish || w.Version != 1 {
		t.Fatalf("Signal = %+v, %v; want it stored without a message", w, err)
	}
	record(true)
	abort, err := s.Record(t.Context(), c.Lease, state.Record{From: length, Entries: []state.Entry{response(1, "c1")}, Awaits: []string{"result:c1"}})
	check("Record of a response", true, abort, err)
	length++
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("late", "c1"), long); err == nil {
		t.Error("Signal accepted a result for a call that an interrupt ended, want an error")
	}
	// The worker claims the turn again to read the message.
	again := c.Lease
	c, err = s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: again.Token, Worker: again.Worker, Lease: long, RedeliveryDelay: long})
	if err != nil || c.Attempt != 1 || c.Abort != nil || len(c.Signals) != 2 || c.Signals[1].Mode != state.Interrupt || c.Signals[0].Mode != state.Enqueue {
		t.Fatalf("Claim = %+v, %v; want both messages", c, err)
	}
	record(false)
	// Another message arrives, and the turn ends without it.
	if _, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "s2"), long); err != nil {
		t.Fatal(err)
	}
	record(true)
	s.commit(t, c, state.UserMessage, state.Entry{})
	c = s.mustClaim(t, run.ID, 2)
	if length = c.LogLen; len(c.Signals) != 1 || c.Signals[0].ID != "s2" {
		t.Fatalf("the next turn has the signals %s", encode(t, c.Signals))
	}
	record(false)
	// An abort takes precedence over an interrupt.
	if _, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "s3"), long); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Abort(t.Context(), run.ID, state.Abort{Reason: "enough"}, long); err != nil {
		t.Fatal(err)
	}
	if abort, err := s.Record(t.Context(), c.Lease, state.Record{From: length}); err != nil || abort == nil || abort.Interrupt || abort.Reason != "enough" {
		t.Errorf("Record = %+v, %v; want the abort", abort, err)
	}
}

// The first write of an eagerly claimed turn reports an interrupt.
func testInterruptEager(t *testing.T, s *suite) {
	run := s.create(t)
	l, done := s.commitEagerly(t, s.mustClaim(t, run.ID, 1), "eager")
	if !done.Claimed {
		t.Fatalf("Commit = %+v, want an eager claim", done)
	}
	if w, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "s1"), long); err != nil || w.Publish || w.Version != 2 {
		t.Fatalf("Signal = %+v, %v", w, err)
	}
	if abort, err := s.Renew(t.Context(), l, long, long); err != nil || abort == nil || !abort.Interrupt {
		t.Errorf("Renew = %+v, %v; want an interrupt", abort, err)
	}
}

// A message that interrupts closes the waits that the turn in flight opens afterwards.
func testInterruptBeforeAwaits(t *testing.T, s *suite) {
	for _, mode := range []state.Mode{state.Interrupt, state.Rollback} {
		run := s.create(t)
		c := s.mustClaim(t, run.ID, 1)
		if _, err := s.Signal(t.Context(), run.ID, messageIn(mode, "stop"), long); err != nil {
			t.Fatal(err)
		}
		// The turn in flight opens a wait, unaware of the message.
		if abort, err := s.Record(t.Context(), c.Lease, state.Record{From: c.State.LogLen(), Awaits: []string{"result:c1"}}); err != nil || abort == nil || !abort.Interrupt {
			t.Fatalf("%s: Record = %+v, %v; want an interrupt", mode, abort, err)
		}
		_, err := s.Signal(t.Context(), run.ID, resultSignal("late", "c1"), long)
		wantErr[*state.NotWaitingError](t, err)
	}
}

// An interrupt closes the waits for its run's calls at once, and those that the turn in flight opens.
func testInterruptClosesWaits(t *testing.T, s *suite) {
	run := s.create(t)
	v := s.wait(t, run.ID, 1, "c1", "c2")
	if _, err := s.Signal(t.Context(), run.ID, resultSignal("early", "c1"), long); err != nil {
		t.Fatal(err)
	}
	refused := func(id, call string) {
		t.Helper()
		_, err := s.Signal(t.Context(), run.ID, resultSignal(id, call), long)
		wantErr[*state.NotWaitingError](t, err)
	}
	if w, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "stop"), long); err != nil || w.Publish {
		t.Fatalf("Signal = %+v, %v", w, err)
	}
	refused("late", "c2")
	if w, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "stop"), long); err != nil || w != (state.Wake{}) {
		t.Errorf("repeated Signal = %+v, %v; want nothing", w, err)
	}
	c := s.mustClaim(t, run.ID, v)
	if len(c.Signals) != 2 {
		t.Fatalf("signals = %s", encode(t, c.Signals))
	}
	// The turn leaves the wait open, unaware of the second interrupt.
	if _, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "again"), long); err != nil {
		t.Fatal(err)
	}
	next := *c.State
	next.Open = []state.OpenCall{{ID: "c2", Name: "t", Arguments: "{}", Needs: state.NeedResult}}
	if done := s.commitState(t, c, move(t, next, state.WaitingClientTool, state.Entry{Waiting: &state.Wait{Reason: state.WaitingClientTool, Calls: []state.WaitCall{}}})); done.Status != state.Queued {
		t.Fatalf("Commit = %+v, want queued", done)
	}
	refused("later", "c2")

	// An interrupt wakes a run that waits, and continues one that has ended.
	run = s.create(t)
	v = s.wait(t, run.ID, 1, "c1")
	if w, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "stop"), long); err != nil || !w.Publish || w.Version != v {
		t.Fatalf("Signal to a waiting run = %+v, %v", w, err)
	}
	c = s.mustClaim(t, run.ID, v)
	commit := commitOf(c, move(t, *c.State, state.EndCompleted, state.Entry{}))
	commit.Consumed, commit.RequireInboxConsumed = 0, true
	if _, err := s.Commit(t.Context(), c.Lease, commit); !errors.Is(err, state.ErrUnconsumedSignals) {
		t.Errorf("Commit that ends a run with an unconsumed signal = %v, want ErrUnconsumedSignals", err)
	}
	commit.RequireInboxConsumed = false
	if done, err := s.Commit(t.Context(), c.Lease, commit); err != nil || done.Status != state.Queued {
		t.Errorf("Commit that ends a run with a message in its inbox = %+v, %v; want the status queued, since the message continues the run", done, err)
	}
	if c := s.mustClaim(t, run.ID, v+1); len(c.Signals) != 1 {
		t.Errorf("the message is lost")
	}
}

// A pending run of a batch, or one that ended poisoned, keeps its wait.
func testInterruptKeepsStart(t *testing.T, s *suite) {
	if state.InterruptClosesWait(state.AwaitStart) || state.InterruptClosesWait(state.AwaitReplay(7)) {
		t.Error("InterruptClosesWait of AwaitStart or of an AwaitReplay = true, want false, since an interrupt must not start these runs")
	}
	run := pending(t, newRun(t).ID, 1)
	s.store(t, run)
	if _, err := s.Signal(t.Context(), run.ID, messageIn(state.Interrupt, "stop"), long); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Signal(t.Context(), run.ID, state.Signal{ID: "start", Start: true, At: created}, long); err != nil {
		t.Errorf("the start after an interrupt = %v", err)
	}
}

// A busy run rejects a message in the same atomic step that would have accepted it.
func testReject(t *testing.T, s *suite) {
	run := s.create(t)
	busy := func(id string, want state.Status) {
		t.Helper()
		_, err := s.Signal(t.Context(), run.ID, messageIn(state.Reject, id), long)
		if e := wantErr[*state.BusyError](t, err); e.Status != want || e.ID != run.ID {
			t.Errorf("Signal with the mode reject = %v, want a BusyError of the run with the status %s", err, want)
		}
	}
	busy("s1", state.Queued)
	c := s.mustClaim(t, run.ID, 1)
	busy("s2", state.Running)
	_, done := s.commitEagerly(t, c, "eager")
	busy("s3", state.Running)
	q := s.request(run.ID, done.Version, "w1")
	q.Token = "eager"
	s.commit(t, s.mustRepeat(t, q), state.EndCompleted, state.Entry{})
	// The signal refused before is accepted once the run has ended. Of several concurrent ones, exactly one is.
	var taken atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, err := s.Signal(t.Context(), run.ID, messageIn(state.Reject, fmt.Sprintf("s%d", i+1)), long)
			var refused *state.BusyError
			switch {
			case err == nil:
				taken.Add(1)
			case !errors.As(err, &refused):
				t.Errorf("Signal = %v", err)
			}
		})
	}
	group.Wait()
	if n := taken.Load(); n != 1 {
		t.Errorf("%d messages were accepted, want 1", n)
	}
	c = s.mustClaim(t, run.ID, done.Version+1)
	if len(c.Signals) != 1 {
		t.Fatalf("signals = %s", encode(t, c.Signals))
	}
	// Repeating an accepted signal adds no message.
	if w, err := s.Signal(t.Context(), run.ID, c.Signals[0], long); err != nil || w != (state.Wake{}) {
		t.Errorf("repeated Signal = %+v, %v; want nothing", w, err)
	}
	// A waiting run is not busy.
	run = s.create(t)
	s.wait(t, run.ID, 1, "c1")
	if w, err := s.Signal(t.Context(), run.ID, messageIn(state.Reject, "s1"), long); err != nil || !w.Publish {
		t.Errorf("Signal to a waiting run = %+v, %v", w, err)
	}
	busy("s2", state.Queued)
}

// A signal with a basis is accepted only if the run is still in the state that its sender saw: no claim, write
// or commit has come in between. A rollback interrupts like an interrupt.
func testBasis(t *testing.T, s *suite) {
	run := s.create(t)
	send := func(id string, b state.Basis, want error) {
		t.Helper()
		sig := messageIn(state.Rollback, id)
		sig.Basis = &b
		if _, err := s.Signal(t.Context(), run.ID, sig, long); !errors.Is(err, want) {
			t.Errorf("Signal %s on %+v = %v, want %v", id, b, err, want)
		}
	}
	length := run.LogLen()
	send("queued", state.Basis{Status: state.Queued, Version: 1, LogLen: length + 1}, state.ErrMoved)
	send("queued", state.Basis{Status: state.Queued, Version: 2, LogLen: length}, state.ErrMoved)
	send("queued", state.Basis{Status: state.Queued, Version: 1, LogLen: length}, nil)
	c := s.mustClaim(t, run.ID, 1)
	if len(c.Signals) != 1 || c.Signals[0].Mode != state.Rollback || c.Signals[0].Basis != nil {
		t.Fatalf("signals = %s", encode(t, c.Signals))
	}
	send("claimed", state.Basis{Status: state.Queued, Version: 1, LogLen: length}, state.ErrMoved)
	entry := state.Entry{Seq: length + 1, Type: state.EntryModel, Turn: 1, At: created, Message: &state.Message{ID: "m", Role: state.RoleAssistant}}
	if abort, err := s.Record(t.Context(), c.Lease, state.Record{From: length, Entries: []state.Entry{entry}}); err != nil || abort != nil {
		t.Fatalf("Record = %+v, %v", abort, err)
	}
	send("recorded", state.Basis{Status: state.Running, Version: 1, LogLen: length}, state.ErrMoved)
	send("running", state.Basis{Status: state.Running, Version: 1, LogLen: length + 1}, nil)
	if abort, err := s.Record(t.Context(), c.Lease, state.Record{From: length + 1}); err != nil || abort == nil || !abort.Interrupt {
		t.Fatalf("Record after a rollback = %+v, %v; want an interrupt", abort, err)
	}
	// Repeating an accepted signal succeeds, whatever has happened to the run since.
	send("queued", state.Basis{Version: 9}, nil)
}
