package webhook_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A receiver that fails half of its requests, some of them in a row, does not count as dead: its events arrive
// within a few of their own pauses.
func TestFlakyReceiver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var mu sync.Mutex
		random, tries := rand.New(rand.NewPCG(1, 2)), map[string]int{} //nolint:gosec // no secret
		f.receiver.answer = func(_ int, r *http.Request) int {
			mu.Lock()
			defer mu.Unlock()
			id := r.Header.Get("webhook-id")
			if tries[id]++; tries[id] <= 4 && random.IntN(2) == 0 {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		}
		const runs = 400
		sender := f.sender()
		for i := range runs {
			f.end(f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFQQQQ%04d", i), "https://one.example/").ID, "done")
			if i%2 == 0 {
				f.work(time.Second, sender) // few are in flight at once, so none of them ends a pause early
			}
		}
		f.work(time.Minute, sender)
		if n := len(f.receiver.delivered()); n != runs {
			t.Errorf("%d of %d events were delivered within a minute", n, runs)
		}
	})
}

// A failing endpoint is retried soon, then at growing intervals; the first success resets them.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var mu sync.Mutex
		var tried []time.Time
		up := false
		f.receiver.answer = func(int, *http.Request) int {
			mu.Lock()
			defer mu.Unlock()
			if !up {
				tried = append(tried, time.Now())
				return -1
			}
			return http.StatusOK
		}
		const runs = 200
		for i := range runs {
			f.end(f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFQQQQ%04d", i), "https://one.example/").ID, "done")
		}
		sender := f.sender()
		f.work(10*time.Minute, sender)
		mu.Lock()
		if n := len(tried); n > 50 {
			t.Errorf("%d attempts in ten minutes, want a few at first and then two a minute", n)
		}
		if soon := tried[10].Sub(tried[0]); soon > 5*time.Second {
			t.Errorf("attempt 11 came after %s", soon)
		}
		up = true
		mu.Unlock()
		f.work(10*time.Minute, sender)
		if n := len(f.receiver.delivered()); n != runs {
			t.Errorf("%d of %d events were delivered within ten minutes of the receiver's return", n, runs)
		}
	})
}

// Thousands of events for an unresponsive receiver do not delay those for another.
func TestBacklogOfDeadReceiver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(_ int, r *http.Request) int {
			if r.URL.Host == "dead.example" {
				return 0
			}
			return http.StatusOK
		}
		for i := range 3000 {
			f.end(f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFQQQQ%04d", i), "https://dead.example/").ID, "done")
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.sender().Run(ctx) })
		const each = 20
		for round := range 10 {
			for i := range each {
				f.end(f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFRRRR%02d%02d", round, i), "https://live.example/").ID, "done")
			}
			time.Sleep(1500 * time.Millisecond) // the bubble's clock
			live := 0
			for _, d := range f.receiver.delivered() {
				if strings.Contains(d.url, "live") {
					live++
				}
			}
			if want := each * (round + 1); live != want {
				t.Errorf("round %d: %d of %d events were delivered within one and a half seconds", round, live, want)
			}
		}
		stop()
		running.Wait()
	})
}

// The sender postpones an attempt of a tenant that has its share of requests in flight; a postponed attempt takes no
// place at its endpoint.
func TestShareKeepsNoPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(_ int, r *http.Request) int {
			if strings.HasPrefix(r.URL.Host, "slow") {
				time.Sleep(14 * time.Second) // the bubble's clock
			}
			return http.StatusOK
		}
		const slow, live = 64, 20
		for i := range slow {
			s := f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFQQQQ%04d", i), fmt.Sprintf("https://slow%d.example/", i))
			f.end(s.ID, "done")
		}
		var working sync.WaitGroup
		working.Go(func() { f.work(5*time.Minute, f.sender()) })
		time.Sleep(5 * time.Second) // the slow endpoints have the share
		for i := range live {
			s := f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFRRRR%04d", i), "https://live.example/")
			f.end(s.ID, "done")
		}
		working.Wait()
		got := 0
		for _, d := range f.receiver.delivered() {
			if strings.Contains(d.url, "live") {
				got++
			}
		}
		if got != live {
			t.Errorf("%d of %d events were delivered within five minutes to an endpoint whose tenant had its share in flight before", got, live)
		}
	})
}
