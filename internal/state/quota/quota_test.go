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

// clock is a bucket and the time that it is asked at.
type clock struct {
	quota.Bucket
	now time.Time
}

func (c *clock) take(t state.Take) state.Taken { return c.Take(t, c.now) }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func (c *clock) mustEnter(t *testing.T, q state.Take) {
	t.Helper()
	if got := c.take(q); got != (state.Taken{}) {
		t.Fatalf("Take(%+v) = %+v, want to be let in", q, got)
	}
}

// most returns how many of times lie in a minute at most.
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

// caller is a run that wants to make a call: now, or when it was told to come.
type caller struct {
	at          time.Time
	reservation int64
	asked       int
}

// A17: whoever comes whenever, with waits kept to or not, no minute sees more calls
// than the quota.
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
			rt.Fatalf("%d calls in a minute, %d are allowed", n, limit)
		}
	})
}

// A17: no minute sees more tokens than the quota, but for the call that passes it.
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
			// What a call used is known only afterwards.
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
					rt.Fatalf("%d tokens in a minute, and another call is let in; %d are allowed", sum, q.Tokens)
				}
				sum += last.tokens
			}
		}
	})
}

// run lets everybody come when told until all are in, and returns how often they
// asked and when the last one entered.
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
			t.Fatal("a caller was sent away 50 times")
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

// Ten thousand runs get a place each: they ask twice, come in the order of their
// places, and none waits longer than the quota needs.
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
		t.Errorf("%d calls asked %d times", n, asked)
	}
	if got := most(entered); got > 600 {
		t.Errorf("%d calls in a minute", got)
	}
	// A twentieth of the pace is what a burst costs.
	if want := began.Add(n * time.Minute / 600 * 106 / 100); last.After(want) {
		t.Errorf("the last call is made after %s, want %s at most", last.Sub(began), want.Sub(began))
	}
}

// After an outage, everybody's time has come. They do not come all at once, nor do
// they ask all the time.
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
		t.Errorf("%d calls asked %d times", n, asked)
	}
	if want := began.Add(100*time.Second + time.Duration(n)*1100*time.Millisecond); last.After(want) {
		t.Errorf("the last call is made after %s, want %s at most", last.Sub(began), want.Sub(began))
	}
}

// Nobody comes before those who wait, and who waits gets in at the first try.
func TestReservationsComeFirst(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Take{Quota: state.Quota{Requests: 10}}
	c.mustEnter(t, q)
	first := c.take(q)
	if first.Wait == 0 || first.Reservation == 0 {
		t.Fatalf("Take = %+v, want to wait", first)
	}
	c.pass(first.Wait - time.Millisecond)
	if again := c.take(state.Take{Quota: q.Quota, Reservation: first.Reservation}); again.Wait != time.Millisecond || again.Reservation != first.Reservation {
		t.Errorf("Take a moment early = %+v, want to wait for it", again)
	}
	c.pass(time.Millisecond)
	if got := c.take(q); got.Wait == 0 {
		t.Error("a newcomer is let in before the one who waited")
	}
	c.mustEnter(t, state.Take{Quota: q.Quota, Reservation: first.Reservation})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Quota{Tokens: 60_000}
	// However large a call is, it is let in, and those after it wait until it is paid.
	c.mustEnter(t, state.Take{Quota: q, Tokens: 120_000})
	got := c.take(state.Take{Quota: q, Tokens: 1, NoReservation: true})
	if got.Wait < 2*time.Minute || got.Wait > 130*time.Second || got.Reservation != 0 {
		t.Errorf("Take after twice the quota = %+v, want two minutes and a bit", got)
	}
	// The call used less: the time comes earlier.
	c.Correct(q, -118_000, c.now)
	c.mustEnter(t, state.Take{Quota: q, Tokens: 1})
	// And more: later.
	c.Correct(q, 60_000, c.now)
	if got := c.take(state.Take{Quota: q, Tokens: 1}); got.Wait < 59*time.Second || got.Wait > 70*time.Second {
		t.Errorf("Take after a call that used more = %+v, want about a minute", got)
	}
}

// A17: a provider that has enough is left alone, and then asked at half the pace,
// which recovers.
func TestPause(t *testing.T) {
	t.Parallel()
	c := &clock{now: began}
	q := state.Take{Quota: state.Quota{Requests: 60}}
	c.mustEnter(t, q)
	for range 50 { // those that were in flight say the same
		c.Pause(20*time.Second, c.now)
	}
	first, second := c.take(q), c.take(q)
	if first.Wait < 20*time.Second || first.Wait > 25*time.Second || !first.Paused {
		t.Errorf("the first is to wait %+v, want the pause and no more than its place", first)
	}
	if gap := second.Wait - first.Wait; gap < 2*time.Second || gap > 2200*time.Millisecond {
		t.Errorf("after a pause calls are %s apart, want twice as far as before", gap)
	}
	// A pause that comes while they wait moves all of them on.
	c.pass(20 * time.Second)
	c.Pause(time.Minute, c.now)
	c.pass(first.Wait)
	if got := c.take(state.Take{Quota: q.Quota, Reservation: first.Reservation}); got.Wait == 0 || got.Reservation != first.Reservation {
		t.Errorf("Take with a place in a pause = %+v, want to wait with it", got)
	}
	c.pass(10 * time.Minute)
	if c.mustEnter(t, q); c.Speed != 100 {
		t.Errorf("ten minutes later the pace is %d %%", c.Speed)
	}
}

// Without a limit a pause is all there is, and those who waited come one by one.
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
			t.Fatalf("Take = %+v, want a place of its own after the pause", got)
		}
		seen[got.Wait] = true
	}
	if got := c.take(state.Take{NoReservation: true}); got.Reservation != 0 || !got.Paused {
		t.Errorf("Take without a place = %+v", got)
	}
	c.pass(time.Minute)
	c.mustEnter(t, state.Take{})
	c.mustEnter(t, state.Take{})
	if until := quota.SlowUntil(10*time.Second, began); c.now.After(until) {
		t.Errorf("slow until %s", until)
	}
}

// However many wait, places are given for an hour; who comes then gets none, and
// looks again earlier.
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

// A clock that goes back changes nothing.
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
