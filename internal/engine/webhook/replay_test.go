package webhook_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
)

// A replay is pending until the receiver has accepted the event; from then on the event counts as delivered as long as
// its run exists. Two replays at once are one series of attempts. The last letter of a receiver that refuses the event
// again is open.
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
		}
		check("before a replay", false, false)
		replay()
		check("after a replay", true, false)
		f.work(time.Minute, sender)
		if len(f.letters.all) != 2 {
			t.Errorf("%d letters, want 2: the receiver has refused the event twice", len(f.letters.all))
		}
		check("after a refused replay", false, false)

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
		check("after the deletion of the run", false, false)
		timers, err := f.store.ListTimers(t.Context(), "acme", webhook.Kind, "", 9)
		if err != nil || len(timers) > 0 || len(f.receiver.delivered()) != 1 || len(f.letters.all) != 2 {
			t.Errorf("in the end: timers %v, %v, %d deliveries, %d letters", timers, err, len(f.receiver.delivered()), len(f.letters.all))
		}
	})
}
