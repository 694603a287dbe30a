package statetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Of many concurrent callers, the quota admits no more than its limit, and every other one gets its own
// reservation, none later than necessary (A17).
func testQuotaRace(t *testing.T, s state.Quotas) {
	const workers, limit = 50, 60
	began := time.Now()
	var mu sync.Mutex
	var waits []time.Duration
	reservations := map[int64]bool{}
	entered := 0
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			got, err := s.Take(t.Context(), "k", state.Take{Quota: state.Quota{Requests: limit}})
			if err != nil {
				t.Errorf("Take: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if got.Wait == 0 {
				entered++
				return
			}
			waits, reservations[got.Reservation] = append(waits, got.Wait), true
		})
	}
	group.Wait()
	took := time.Since(began)
	// A twentieth of the minute's calls may come at once, and then one each second.
	if most := limit/20 + 1 + int(took.Seconds()); entered == 0 || entered > most {
		t.Errorf("%d of %d are admitted after %s, want 1 to %d", entered, workers, took, most)
	}
	if len(reservations) != workers-entered || reservations[0] {
		t.Errorf("%d reservations for %d waiting callers", len(reservations), workers-entered)
	}
	if most := slices.Max(waits); most > time.Minute {
		t.Errorf("a caller waits %s for %d calls at %d a minute", most, workers, limit)
	}
}

// A caller that has waited is admitted with its reservation.
func testQuotaReservation(t *testing.T, s state.Quotas) {
	q := state.Take{Quota: state.Quota{Requests: 30_000}}
	var got state.Taken
	for range 100_000 {
		var err error
		if got, err = s.Take(t.Context(), "k", q); err != nil {
			t.Fatal(err)
		}
		if got.Wait > 0 {
			break
		}
		// The quota is larger than the speed of some stores, so the tokens of calls count as well. The least of
		// them is smaller than the speed of any store on a busy machine.
		q.Quota.Requests = max(q.Quota.Requests/2, 60)
	}
	if got.Wait == 0 || got.Reservation == 0 || got.Paused {
		t.Fatalf("Take = %+v, want a reservation to wait for", got)
	}
	for deadline := time.Now().Add(soon); got.Wait > 0; breathe(t) {
		if time.Now().After(deadline) {
			t.Fatalf("not admitted with a reservation: %+v", got)
		}
		var err error
		if got, err = s.Take(t.Context(), "k", state.Take{Quota: q.Quota, Reservation: got.Reservation}); err != nil {
			t.Fatal(err)
		}
	}
}

func testQuotaCorrect(t *testing.T, s state.Quotas) {
	q := state.Quota{Tokens: 1000}
	take := func(tokens int64) state.Taken {
		t.Helper()
		got, err := s.Take(t.Context(), "k", state.Take{Quota: q, Tokens: tokens, NoReservation: true})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	correct := func(tokens int64) {
		t.Helper()
		if err := s.Correct(t.Context(), "k", q, tokens); err != nil {
			t.Fatal(err)
		}
	}
	if got := take(10_000); got.Wait > 0 {
		t.Fatalf("the first Take = %+v", got)
	}
	if got := take(1); got.Wait < 9*time.Minute {
		t.Errorf("Take after ten times the quota = %+v", got)
	}
	correct(-10_000)
	if got := take(1); got.Wait > 0 {
		t.Errorf("Take after everything was returned = %+v", got)
	}
	correct(5000)
	if got := take(1); got.Wait < 4*time.Minute {
		t.Errorf("Take after more was used = %+v", got)
	}
}

func testQuotaPause(t *testing.T, s state.Quotas) {
	paused := func(want ...string) {
		t.Helper()
		got, err := s.Paused(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("Paused = %v, want %v", got, want)
		}
	}
	paused()
	for _, key := range []string{"a", "b", "a"} {
		if err := s.Pause(t.Context(), key, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	paused("a", "b")
	for key, waits := range map[string]bool{"a": true, "b": true, "c": false} {
		got, err := s.Take(t.Context(), key, state.Take{})
		if err != nil {
			t.Fatal(err)
		}
		if waits && (got.Wait < 9*time.Minute || got.Wait > 10*time.Minute || !got.Paused || got.Reservation == 0) || !waits && got != (state.Taken{}) {
			t.Errorf("Take of %s = %+v", key, got)
		}
	}
}

// AgreeQuotas makes the same random calls on the quotas of a store and of a model
// of it, at the same times, and compares every answer.
func AgreeQuotas(t *testing.T, open, model func(t *testing.T, now func() time.Time) state.Quotas) {
	t.Helper()
	var at atomic.Int64
	now := func() time.Time { return time.UnixMicro(at.Load()) }
	stores := []state.Quotas{model(t, now), open(t, now)}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		at.Store(created.UnixMicro())
		key := fmt.Sprint("k", n)
		reservations := []int64{0, 0}
		quota := state.Quota{
			Requests: rapid.SampledFrom([]int64{0, 1, 7, 60, 5000, 1_000_000}).Draw(rt, "requests"),
			Tokens:   rapid.SampledFrom([]int64{0, 0, 1, 997, 100_000, 1_000_000_000}).Draw(rt, "tokens"),
		}
		both := func(name string, call func(context.Context, state.Quotas) (state.Taken, error)) state.Taken {
			var got [2]state.Taken
			for i, s := range stores {
				var err error
				if got[i], err = call(t.Context(), s); err != nil {
					rt.Fatalf("%s: %v", name, err)
				}
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				rt.Fatalf("%s: -model +store\n%s", name, diff)
			}
			return got[0]
		}
		pause := func(d time.Duration) {
			both("Pause", func(ctx context.Context, s state.Quotas) (state.Taken, error) {
				return state.Taken{}, s.Pause(ctx, key, d)
			})
		}
		take := func(rt *rapid.T) {
			q := state.Take{
				Quota: quota, Tokens: rapid.Int64Range(0, 1<<40).Draw(rt, "of tokens") >> rapid.IntRange(0, 40).Draw(rt, "by"),
				Reservation: rapid.SampledFrom(reservations).Draw(rt, "place"), NoReservation: rapid.IntRange(0, 5).Draw(rt, "no place") == 0,
			}
			got := both("Take", func(ctx context.Context, s state.Quotas) (state.Taken, error) { return s.Take(ctx, key, q) })
			if got.Reservation != 0 {
				reservations = append(reservations, got.Reservation)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"take": take, "take 2": take, "take 3": take,
			"time": func(rt *rapid.T) {
				at.Add(rapid.Int64Range(-1000, 1<<34).Draw(rt, "µs") >> rapid.IntRange(0, 34).Draw(rt, "by"))
			},
			"correct": func(rt *rapid.T) {
				tokens := rapid.Int64Range(-1<<40, 1<<40).Draw(rt, "tokens") >> rapid.IntRange(0, 40).Draw(rt, "by")
				both("Correct", func(ctx context.Context, s state.Quotas) (state.Taken, error) {
					return state.Taken{}, s.Correct(ctx, key, quota, tokens)
				})
			},
			"pause": func(rt *rapid.T) { pause(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "seconds")) * time.Second) },
			"storm": func(rt *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(rt, "429s") {
					pause(time.Second)
					at.Add(time.Second.Microseconds())
				}
			},
		})
	})
}

// PausedKeys tests that a pause is over after its time, and that a shorter one does not end it earlier.
func PausedKeys(t *testing.T, open func(t *testing.T, now func() time.Time) state.Quotas) {
	t.Helper()
	var at atomic.Int64
	at.Store(time.Now().Add(-20 * time.Minute).UnixMicro())
	s := open(t, func() time.Time { return time.UnixMicro(at.Load()) })
	for _, p := range []struct {
		key string
		d   time.Duration
	}{{"short", time.Second}, {"long", 30 * time.Minute}, {"long", time.Second}} {
		if err := s.Pause(t.Context(), p.key, p.d); err != nil {
			t.Fatal(err)
		}
	}
	at.Store(time.Now().UnixMicro())
	if got, err := s.Paused(t.Context()); err != nil || !slices.Equal(got, []string{"long"}) {
		t.Errorf("Paused after twenty minutes = %v, %v, want the key that was paused for thirty", got, err)
	}
}
