package webhook_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A replay is pending until the receiver has accepted the event; from then on the event counts as delivered as long as
// its run exists. Two replays at once are one series of attempts. The time of the last letter stays while a further
// replay is pending, and after its delivery.
func TestReplays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		status := http.StatusGone
		f.receiver.answer = func(int, *http.Request) int { return status }
		s := f.run(first, "https://one.example/events")
		f.end(s.ID, "done")
		sender := f.sender()
		f.work(time.Minute, sender)
		seq := f.letters.all[0].Events
		replay := func() {
			t.Helper()
			if err := webhook.Replay(t.Context(), f.store, "acme", s.ID, seq, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string, pending, delivered bool) {
			t.Helper()
			r, err := webhook.ReplaysOf(t.Context(), f.store, "acme", s.ID, seq)
			if err != nil || r.Pending != pending || r.DeliveredAt.IsZero() == delivered {
				t.Errorf("%s: %+v, %v, want pending %t, delivered %t", when, r, err, pending, delivered)
			}
			var want state.Time // of the last letter, but for the first one
			if n := len(f.letters.all); n > 1 {
				want = f.letters.all[n-1].At
			}
			if !r.DeadAt.Equal(want.Time) {
				t.Errorf("%s: the last letter of a replay is of %v, want %v", when, r.DeadAt, want)
			}
		}
		check("before a replay", false, false)
		replay()
		check("after a replay", true, false)
		f.work(time.Minute, sender)
		check("after a refused replay", false, false)
		for range 20 { // more than maxReplays
			replay()
			check("after a further replay", true, false)
			f.work(time.Minute, sender)
		}
		check("after refused replays", false, false)
		if len(f.letters.all) != 22 {
			t.Errorf("%d letters, want 22: one for each time that the receiver has refused the event", len(f.letters.all))
		}
		if all := f.pending(); len(all) > 0 {
			t.Errorf("pending after refused replays: %+v", all)
		}

		status = http.StatusBadGateway
		replay()
		f.work(time.Minute, sender)
		check("while attempts fail", true, false)
		status = http.StatusOK
		replay()
		f.work(time.Minute, sender)
		if got := f.receiver.delivered(); len(got) != 1 {
			t.Errorf("%d deliveries of two replays, want 1", len(got))
		}
		check("after the delivery", false, true)
		if all := f.pending(); len(all) > 0 {
			t.Errorf("pending after the delivery: %+v", all)
		}
		time.Sleep(100 * 24 * time.Hour) // of the bubble
		f.work(time.Minute, sender)
		check("months later", false, true)

		if err := f.store.Delete(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * 24 * time.Hour) // of the bubble
		f.work(time.Minute, sender)
		timers, err := f.store.ListTimers(t.Context(), "acme", webhook.Kind, "", 9)
		if err != nil || len(timers) > 0 || len(f.receiver.delivered()) != 1 || len(f.letters.all) != 22 {
			t.Errorf("in the end: timers %v, %v, %d deliveries, %d letters", timers, err, len(f.receiver.delivered()), len(f.letters.all))
		}
	})
}

// The three days of a replay begin with the replay, however old its event is.
func TestReplayOfAnOldEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		status := http.StatusBadGateway
		f.receiver.answer = func(int, *http.Request) int { return status }
		s := f.run(first, "https://one.example/events")
		f.end(s.ID, "done")
		f.work(75*time.Hour, f.sender())
		if len(f.letters.all) != 1 {
			t.Fatalf("%d letters after three days, want 1", len(f.letters.all))
		}
		if err := webhook.Replay(t.Context(), f.store, "acme", s.ID, f.letters.all[0].Events, time.Now()); err != nil {
			t.Fatal(err)
		}
		f.work(time.Minute, f.sender())
		status = http.StatusOK
		f.work(time.Minute, f.sender())
		if got := f.receiver.delivered(); len(got) != 1 || len(f.letters.all) != 1 {
			t.Errorf("%d deliveries, %d letters after a replay whose first attempts failed; want 1 and 1", len(got), len(f.letters.all))
		}
	})
}

// A worker that dies between the letter of a replay and its record leaves a letter, which the next one closes.
func TestReplayAfterKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(int, *http.Request) int { return http.StatusGone }
		s := f.run(first, "https://one.example/events")
		f.end(s.ID, "done")
		f.work(time.Second, f.sender())
		seq := f.letters.all[0].Events
		if err := webhook.Replay(t.Context(), f.store, "acme", s.ID, seq, time.Now()); err != nil {
			t.Fatal(err)
		}
		f.work(500*time.Millisecond, f.dying())
		f.work(time.Minute, f.sender())
		r, err := webhook.ReplaysOf(t.Context(), f.store, "acme", s.ID, seq)
		if err != nil || r.Pending || len(f.letters.all) != 3 || !r.DeadAt.Equal(f.letters.all[2].At.Time) || !f.letters.all[1].At.Before(r.DeadAt.Time) {
			t.Errorf("%+v, %v, want the time of the last of the letters %+v", r, err, f.letters.all)
		}
	})
}

// A worker that dies after it has stored a dead letter and before it has recorded that leaves one letter: the next
// worker's has the same name, by which a bus drops it. Two events have two letters.
func TestDeadLetterAfterKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(int, *http.Request) int { return http.StatusGone }
		one, two := f.run(first, "https://one.example/events"), f.run(second, "https://one.example/events")
		f.end(one.ID, "done")
		f.work(500*time.Millisecond, f.dying())
		f.work(time.Minute, f.sender())
		f.end(two.ID, "done")
		f.work(time.Minute, f.sender())
		all := f.letters.all
		if len(all) != 3 || all[0].Message == "" || all[0].Message != all[1].Message || all[1].Message == all[2].Message {
			t.Errorf("the letters are %+v", all)
		}
	})
}

// A replay of one event leaves alone those of the same run whose numbers begin with the same digits.
func TestReplayOfOneEvent(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	s := state.State{ID: first, Tenant: "acme"}
	for _, seq := range []int64{50, 53, 59, 500} {
		if err := store.PutTimer(t.Context(), webhook.Timer(s, seq), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := webhook.ReplaysOf(t.Context(), store, "acme", first, 5); err != nil || r.Pending {
		t.Errorf("before its replay event 5 is pending: %+v, %v", r, err)
	}
	for range 2 {
		if err := webhook.Replay(t.Context(), store, "acme", first, 5, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if timers, err := store.ListTimers(t.Context(), "acme", webhook.Kind, "", 9); err != nil || len(timers) != 5 {
		t.Errorf("%d timers, %v, want the four of other events and one of the replay", len(timers), err)
	}
}
