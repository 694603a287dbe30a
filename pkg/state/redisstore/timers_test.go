package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The cost of a page of timers depends on its results, not on the number of timers.
func TestListTimersCost(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb, total, with := openAt(t, p.URL, "timers"), raw(t, p.URL), 0, map[int]cost{}
	for _, n := range []int{few, many} {
		var puts errgroup.Group
		puts.SetLimit(64)
		for ; total < n; total++ {
			id := state.TimerID{Tenant: fmt.Sprint("tenant-", total%2), Kind: "webhook", Name: fmt.Sprintf("run %06d", total)}
			puts.Go(func() error { return s.PutTimer(t.Context(), id, time.Now()) })
		}
		if err := puts.Wait(); err != nil {
			t.Fatal(err)
		}
		with[n] = spent(t, rdb, func() {
			if page, err := s.ListTimers(t.Context(), "tenant-1", "webhook", "run 000100", 50); err != nil || len(page) != 50 || page[0].Name != "run 000101" {
				t.Fatal(len(page), err)
			}
		})
	}
	compare(t, "a page of 50 timers", with)
}

// A removed timer leaves no key.
func TestTimerLeavesNothing(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	s, r := openAt(t, url, prefix), raw(t, url)
	id := state.TimerID{Tenant: "acme", Kind: "webhook", Name: "doomed"}
	for _, remove := range []func(c state.TimerClaim) error{
		func(c state.TimerClaim) error { return s.AckTimer(t.Context(), c, time.Time{}) },
		func(c state.TimerClaim) error { return s.PutTimer(t.Context(), c.TimerID, time.Time{}) },
	} {
		if err := s.PutTimer(t.Context(), id, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
		claims, err := s.ClaimTimers(t.Context(), id.Kind, 9, time.Hour)
		if err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		if found := mentions(t, r, prefix, id.Name); len(found) < 3 {
			t.Fatalf("before the removal only %q mention the timer", found)
		}
		if err := remove(claims[0]); err != nil {
			t.Fatal(err)
		}
		if found := mentions(t, r, prefix, id.Name); len(found) > 0 {
			t.Errorf("after the removal %q mention the timer", found)
		}
	}
}
