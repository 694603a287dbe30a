package record_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	id    = state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")
	delay = 5 * time.Second
	lease = 25 * time.Second
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func fresh(t *testing.T) record.Record {
	t.Helper()
	s, err := state.State{ID: id, Priority: state.High}.Move(state.Submitted, state.Entry{At: state.At(start)})
	if err != nil {
		t.Fatal(err)
	}
	return record.New(s, start, delay)
}

func claim(t *testing.T, r *record.Record, token string, now time.Time) *state.Claim {
	t.Helper()
	c := r.Claim(state.ClaimRequest{Run: id, Version: r.Version, Token: token, Worker: "w", Lease: lease, RedeliveryDelay: delay}, now)
	if c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s", c.Outcome)
	}
	return c
}

// A run that no worker takes is due after the delay, then at growing intervals of at most 64 times the delay
// (I2).
func TestBackoff(t *testing.T) {
	t.Parallel()
	r := fresh(t)
	next := 5
	for n, gap := range []int{5, 10, 20, 40, 80, 160, 320, 320, 320} {
		if d, ok := r.Sweep(id, at(next).Add(-time.Millisecond), delay, nil); ok {
			t.Fatalf("sweep %d comes early: %+v", n+1, d)
		}
		d, ok := r.Sweep(id, at(next), delay, nil)
		if want := (state.Due{Run: id, Version: 1, Priority: state.High, Sweeps: n + 1, NeedsTurn: true}); !ok || d != want {
			t.Fatalf("sweep %d = %+v, %v; want %+v", n+1, d, ok, want)
		}
		next += gap
	}
	// A commit resets the interval.
	c := claim(t, &r, "t", at(next))
	s, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(start)})
	if err != nil {
		t.Fatal(err)
	}
	s.Log = append(make([]state.Entry, 1), s.Log...) // the entry before belongs to the store
	if _, _, err := r.Commit(c.Lease, state.Commit{ID: "c", State: &s, From: 1, RedeliveryDelay: delay}, at(next)); err != nil {
		t.Fatal(err)
	}
	if d, ok := r.Sweep(id, at(next+5), delay, nil); !ok || d.Sweeps != 1 || d.Version != 2 {
		t.Errorf("Sweep after a commit = %+v, %v", d, ok)
	}
}

// The sweeper skips a run with a renewed lease, and finds one whose lease has expired (I2, I8).
func TestLease(t *testing.T) {
	t.Parallel()
	r := fresh(t)
	c := claim(t, &r, "t1", at(0))
	if _, err := r.Renew(c.Lease, lease, delay, at(20)); err != nil {
		t.Fatal(err)
	}
	if d, ok := r.Sweep(id, at(44), delay, nil); ok {
		t.Fatalf("Sweep of a leased run = %+v", d)
	}
	if got := r.Claim(state.ClaimRequest{Run: id, Version: 1, Token: "t2", Lease: lease}, at(44)); got.Outcome != state.ClaimBusy || got.Busy != time.Second {
		t.Fatalf("Claim = %s for %s, want busy for 1s", got.Outcome, got.Busy)
	}
	if d, ok := r.Sweep(id, at(50), delay, nil); !ok || !d.NeedsTurn {
		t.Fatalf("Sweep after the lease = %+v, %v", d, ok)
	}
	if _, err := r.Renew(c.Lease, lease, delay, at(50)); err == nil {
		t.Error("a lease whose run was swept can be renewed")
	}
	// The same claim, repeated after a lost reply, counts once.
	for range 2 {
		if got := claim(t, &r, "t3", at(51)); got.Attempt != 2 {
			t.Errorf("attempt = %d, want 2", got.Attempt)
		}
	}
}

// A waiting run is woken when its time has come, not before, even if it was not finalized until then.
func TestWake(t *testing.T) {
	t.Parallel()
	r := fresh(t)
	c := claim(t, &r, "t", at(0))
	s := *c.State
	s.Log = make([]state.Entry, 1)
	s.ResumeAt = state.At(at(60))
	s, err := s.Move(state.WaitingSchedule, state.Entry{At: state.At(start), Waiting: &state.Wait{Reason: state.WaitingSchedule}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Commit(c.Lease, state.Commit{ID: "c", State: &s, From: 1, RedeliveryDelay: delay}, at(0)); err != nil {
		t.Fatal(err)
	}
	if d, ok := r.Sweep(id, at(59), delay, nil); !ok || !d.Finalize || d.NeedsTurn {
		t.Fatalf("Sweep = %+v, %v; want it finalized", d, ok)
	}
	r.NoteFinalized(2)
	if d, ok := r.Sweep(id, at(60).Add(-time.Millisecond), delay, nil); ok {
		t.Fatalf("Sweep = %+v before its time", d)
	}
	if d, ok := r.Sweep(id, at(60), delay, nil); !ok || !d.NeedsTurn || r.Status != state.Queued {
		t.Fatalf("Sweep = %+v, %v, %s; want the run queued", d, ok, r.Status)
	}
}

// The inbox has a maximum number of signals.
func TestInboxLimit(t *testing.T) {
	t.Parallel()
	r := fresh(t)
	for n := range state.MaxSignals + 1 {
		m := state.UserText("x")
		_, err := r.Signal(id, state.Signal{ID: fmt.Sprint(n), Message: &m}, start, delay)
		if full, ok := errors.AsType[*state.InboxFullError](err); ok != (n == state.MaxSignals) || !ok && err != nil {
			t.Fatalf("signal %d: %v, %+v", n+1, err, full)
		}
	}
}

// A run keeps the ids of its last 1,000 signals only.
func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	r := fresh(t)
	signal := func(n int) int {
		m := state.UserText("x")
		if _, err := r.Signal(id, state.Signal{ID: fmt.Sprint(n), Message: &m}, start, delay); err != nil {
			t.Fatal(err)
		}
		return len(r.Inbox)
	}
	for n := range 1001 {
		signal(n)
		r.Inbox = nil // as if a turn had consumed it
	}
	if len(r.Seen) != 1000 {
		t.Errorf("%d ids are kept, want 1000", len(r.Seen))
	}
	if n := signal(1); n != 0 {
		t.Errorf("a repeated signal makes the inbox %d long, want 0", n)
	}
	if n := signal(0); n != 1 {
		t.Errorf("a signal with a dropped id makes the inbox %d long, want 1", n)
	}
}

// A signal does not change copies of the record: a store reads them concurrently.
func TestSignalKeepsCopies(t *testing.T) {
	t.Parallel()
	r := fresh(t)
	for n := range 1000 {
		m := state.UserText("x")
		if _, err := r.Signal(id, state.Signal{ID: fmt.Sprint(n), Fingerprint: "f", Message: &m}, start, delay); err != nil {
			t.Fatal(err)
		}
	}
	r.Inbox = nil // as if a turn had consumed it
	before := r
	m := state.UserText("x")
	if _, err := r.Signal(id, state.Signal{ID: "without fingerprint", Message: &m}, start, delay); err != nil {
		t.Fatal(err)
	}
	if n := len(before.SeenMarks); n != 1000 {
		t.Errorf("after a signal, the copy from before it has %d fingerprints, want 1000", n)
	}
	if n := len(r.SeenMarks); n != 999 {
		t.Errorf("the record has %d fingerprints, want those of its last 1000 signals: 999", n)
	}
}

// An invalid commit is refused and changes nothing.
func TestCommitRefuses(t *testing.T) {
	t.Parallel()
	r := fresh(t)
	c := claim(t, &r, "t", at(0))
	for _, commit := range []state.Commit{
		{ID: "gap", From: 0, State: &state.State{}}, {ID: "ahead", From: 2, State: &state.State{}}, {ID: "without its log", From: 1, State: &state.State{Status: state.Queued, Version: 2}},
	} {
		if entries, done, err := r.Commit(c.Lease, commit, at(1)); err == nil {
			t.Errorf("Commit %q = %d entries, %+v", commit.ID, len(entries), done)
		}
	}
	if r.Version != 1 || r.Status != state.Running || r.LogLen != 1 {
		t.Errorf("record = %+v", r)
	}
}
