package quota_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/internal/state/quota"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// clock is a bucket with the current time.
type clock struct {
	quota.Bucket
	now time.Time
}

func (c *clock) take(t state.Take) state.Taken { return c.Take(t, c.now) }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func (c *clock) mustEnter(t *testing.T, q state.Take) {
	t.Helper()
	if got := c.take(q); got != (state.Taken{}) {
		t.Fatalf("Take(%+v) = %+v, want it admitted", q, got)
	}
}

// most returns the maximum number of times within a minute.
func most(times []time.Time) int {
	slices.SortFunc(times, time.Time.Compare)
	n := 0
	for i, from := range times {
		j := i
		for j < len(times) && times[j].Before(from.Add(time.Minute)) {
			j++
		}
		n = max(n, j-i)
	}
	return n
}

// caller is a run that wants to make a call, now or at its assigned time.
type caller struct {
	at          time.Time
	reservation int64
	asked       int
}

// No minute has more calls than the quota, whenever callers arrive and whether or not they wait as told (A17).
func TestNeverMoreThanTheQuota(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := &clock{now: began}
		limit := int64(rapid.IntRange(1, 120).Draw(rt, "requests a minute"))
		q := state.Take{Quota: state.Quota{Requests: limit}}
		var entered []time.Time
		var waiting []caller
		for range rapid.IntRange(1, 300).Draw(rt, "steps") {
			c.pass(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			if rapid.IntRange(0, 30).Draw(rt, "outage") == 0 {
				c.pass(10 * time.Minute)
			}
			if rapid.IntRange(0, 40).Draw(rt, "429") == 0 {
				c.Pause(time.Duration(rapid.IntRange(0, 30).Draw(rt, "retry after"))*time.Second, c.now)
			}
			due := []caller{{}}
			for i, w := range waiting {
				if !c.now.Before(w.at) {
					due, waiting = append(due, waiting[i]), slices.Delete(slices.Clone(waiting), i, i+1)
					break
				}
			}
			for _, w := range due {
				q.Reservation = w.reservation
				if got := c.take(q); got.Wait > 0 {
					waiting = append(waiting, caller{at: c.now.Add(got.Wait), reservation: got.Reservation})
				} else {
					entered = append(entered, c.now)
				}
			}
		}
		if n := most(entered); int64(n) > limit {
			rt.Fatalf("%d calls in a minute, want at most %d", n, limit)
		}
	})
}

// No minute has more tokens than the quota, except for the call that exceeds it (A17).
func TestNeverMoreTokensThanTheQuota(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := &clock{now: began}
		q := state.Quota{Requests: int64(rapid.SampledFrom([]int{0, 30}).Draw(rt, "requests a minute")), Tokens: 10_000}
		type call struct {
			at     time.Time
			tokens int64
		}
		var calls []call
		var reservation int64
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			c.pass(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "ms")) * time.Millisecond)
			n := rapid.Int64Range(0, 8000).Draw(rt, "tokens")
			got := c.take(state.Take{Quota: q, Tokens: n, Reservation: reservation})
			reservation = got.Reservation
			if got.Wait > 0 {
				continue
			}
			// The usage of a call is known only afterwards.
			used := rapid.Int64Range(0, n).Draw(rt, "used")
			c.Correct(q, used-n, c.now)
			calls = append(calls, call{c.now, used})
		}
		for i, first := range calls {
			sum := int64(0)
			for _, last := range calls[i:] {
				if !last.at.Before(first.at.Add(time.Minute)) {
					break
				}
				if sum > q.Tokens {
					rt.Fatalf("%d tokens in a minute, and another call is admitted; want at most %d", sum, q.Tokens)
				}
				sum += last.tokens
			}
		}
	})
}

// run makes all callers return at their assigned times until all are admitted. It returns the number of
// requests and the time of the last admission.
func (c *clock) run(t *testing.T, q state.Take, callers []caller) (asked int, last time.Time, entered []time.Time) {
	t.Helper()
	for len(callers) > 0 {
		slices.SortStableFunc(callers, func(a, b caller) int { return a.at.Compare(b.at) })
		w := callers[0]
		callers = callers[1:]
		if w.at.After(c.now) {
			c.now = w.at
		}
		q.Reservation = w.reservation
		w.asked++
		asked++
		if w.asked > 50 {
			t.Fatal("a caller was deferred 50 times")
		}
		got := c.take(q)
		if got.Wait == 0 {
			entered = append(entered, c.now)
			continue
		}
		w.at, w.reservation = c.now.Add(got.Wait), got.Reservation
		callers = append(callers, w)
	}
	return asked, c.now, entered
}

// Each of ten thousand runs gets one reservation: each asks twice, in the order of the reservations, and none
// waits longer than the quota requires.
func TestQueue(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	const n = 10_000
	q := state.Take{Quota: state.Quota{Requests: 600}}
	callers := make([]caller, n)
	for i := range callers {
		callers[i].at = began
	}
	asked, last, entered := c.run(t, q, callers)
	if asked > 2*n {
		t.Errorf("%d calls made %d requests", n, asked)
	}
	if got := most(entered); got > 600 {
		t.Errorf("%d calls in a minute", got)
	}
	// A burst costs a twentieth of the pace.
	if want := began.Add(n * time.Minute / 600 * 106 / 100); last.After(want) {
		t.Errorf("the last call is made after %s, want %s at most", last.Sub(began), want.Sub(began))
	}
}

// After an outage, the time of all reservations has passed. The callers are still not admitted all at once, and
// do not ask continuously.
func TestQueueAfterOutage(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Take{Quota: state.Quota{Requests: 60}}
	var callers []caller
	for range 200 {
		if got := c.take(q); got.Wait > 0 {
			callers = append(callers, caller{at: c.now.Add(got.Wait), reservation: got.Reservation})
		}
	}
	c.pass(100 * time.Second)
	n := len(callers)
	asked, last, entered := c.run(t, q, callers)
	if got := most(entered); got > 60 {
		t.Errorf("%d calls in a minute", got)
	}
	if asked > 4*n {
		t.Errorf("%d calls made %d requests", n, asked)
	}
	if want := began.Add(100*time.Second + time.Duration(n)*1100*time.Millisecond); last.After(want) {
		t.Errorf("the last call is made after %s, want %s at most", last.Sub(began), want.Sub(began))
	}
}

// No newcomer precedes waiting callers, and a caller that has waited is admitted at its first try.
func TestReservationsComeFirst(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Take{Quota: state.Quota{Requests: 10}}
	c.mustEnter(t, q)
	first := c.take(q)
	if first.Wait == 0 || first.Reservation == 0 {
		t.Fatalf("Take = %+v, want a wait", first)
	}
	c.pass(first.Wait - time.Millisecond)
	if again := c.take(state.Take{Quota: q.Quota, Reservation: first.Reservation}); again.Wait != time.Millisecond || again.Reservation != first.Reservation {
		t.Errorf("Take a moment early = %+v, want a wait for it", again)
	}
	c.pass(time.Millisecond)
	if got := c.take(q); got.Wait == 0 {
		t.Error("a newcomer is admitted before the waiting caller")
	}
	c.mustEnter(t, state.Take{Quota: q.Quota, Reservation: first.Reservation})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Quota{Tokens: 60_000}
	// A call of any size is admitted, and those after it wait until the quota has paid for it.
	c.mustEnter(t, state.Take{Quota: q, Tokens: 120_000})
	got := c.take(state.Take{Quota: q, Tokens: 1, NoReservation: true})
	if got.Wait < 2*time.Minute || got.Wait > 130*time.Second || got.Reservation != 0 {
		t.Errorf("Take after twice the quota = %+v, want slightly more than two minutes", got)
	}
	// The call used less, so the time moves forward.
	c.Correct(q, -118_000, c.now)
	c.mustEnter(t, state.Take{Quota: q, Tokens: 1})
	// It used more, so the time moves back.
	c.Correct(q, 60_000, c.now)
	if got := c.take(state.Take{Quota: q, Tokens: 1}); got.Wait < 59*time.Second || got.Wait > 70*time.Second {
		t.Errorf("Take after a call that used more = %+v, want about a minute", got)
	}
}

// After a provider's pause, calls resume at half the pace, which recovers (A17).
func TestPause(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Take{Quota: state.Quota{Requests: 60}}
	c.mustEnter(t, q)
	for range 50 { // the calls in flight report the same
		c.Pause(20*time.Second, c.now)
	}
	first, second := c.take(q), c.take(q)
	if first.Wait < 20*time.Second || first.Wait > 25*time.Second || !first.Paused {
		t.Errorf("the first waits %+v, want the pause and no later than its reservation", first)
	}
	if gap := second.Wait - first.Wait; gap < 2*time.Second || gap > 2200*time.Millisecond {
		t.Errorf("after a pause calls are %s apart, want twice the previous interval", gap)
	}
	// A pause during the wait moves all reservations back.
	c.pass(20 * time.Second)
	c.Pause(time.Minute, c.now)
	c.pass(first.Wait)
	if got := c.take(state.Take{Quota: q.Quota, Reservation: first.Reservation}); got.Wait == 0 || got.Reservation != first.Reservation {
		t.Errorf("Take with a reservation during a pause = %+v, want it moved", got)
	}
	c.pass(10 * time.Minute)
	if c.mustEnter(t, q); c.Speed != 100 {
		t.Errorf("ten minutes later the pace is %d %%", c.Speed)
	}
}

// Without a limit there is only the pause, and callers that waited are admitted one by one.
func TestPauseWithoutLimit(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	for range 1000 {
		c.mustEnter(t, state.Take{Tokens: 1_000_000})
	}
	c.Pause(10*time.Second, c.now)
	seen := map[time.Duration]bool{}
	for range 100 {
		got := c.take(state.Take{})
		if got.Wait < 10*time.Second || got.Wait > 25*time.Second || seen[got.Wait] {
			t.Fatalf("Take = %+v, want its own reservation after the pause", got)
		}
		seen[got.Wait] = true
	}
	if got := c.take(state.Take{NoReservation: true}); got.Reservation != 0 || !got.Paused {
		t.Errorf("Take without a reservation = %+v", got)
	}
	c.pass(time.Minute)
	c.mustEnter(t, state.Take{})
	c.mustEnter(t, state.Take{})
	if until := quota.SlowUntil(10*time.Second, began); c.now.After(until) {
		t.Errorf("slow until %s", until)
	}
}

// Reservations cover at most an hour, however many callers wait; a later caller gets none, and asks again
// sooner.
func TestHorizon(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Take{Quota: state.Quota{Requests: 1}}
	for range 1000 {
		if got := c.take(q); got.Wait > 62*time.Minute || got.Wait > 0 && got.Reservation == 0 && got.Wait > 31*time.Minute {
			t.Fatalf("Take = %+v", got)
		}
	}
}

// A clock that steps back changes nothing.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Take{Quota: state.Quota{Requests: 1}}
	c.mustEnter(t, q)
	c.pass(-time.Hour)
	if got := c.take(q); got.Wait < 59*time.Second || got.Wait > 2*time.Minute {
		t.Errorf("Take = %+v, want a minute", got)
	}
}
