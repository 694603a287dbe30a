package lookup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/lookup"
)

// Concurrent saves of any number of definitions cost one query per tenant.
func TestServicesAreAskedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := lookup.NewServices(func(_ context.Context, tenant string) ([]string, error) {
		asked.Add(1)
		return []string{tenant + ".tool"}, nil
	})
	var all sync.WaitGroup
	for range 50 {
		for _, tenant := range []string{"a", "b"} {
			all.Go(func() {
				got, err := s.Of(t.Context(), tenant)
				if err != nil || len(got) != 1 || !got[tenant+".tool"] {
					t.Errorf("tenant %s gets %v, %v", tenant, got, err)
				}
			})
		}
	}
	all.Wait()
	if n := asked.Load(); n != 2 {
		t.Errorf("%d queries for two tenants", n)
	}
}

// A caller that cancels does not wait, and a failed query is repeated.
func TestServicesFail(t *testing.T) {
	t.Parallel()
	failed := errors.New("no NATS")
	block := make(chan struct{})
	s := lookup.NewServices(func(context.Context, string) ([]string, error) {
		<-block
		return nil, failed
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Of(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled caller gets %v", err)
	}
	close(block)
	for range 2 {
		if got, err := s.Of(t.Context(), "a"); !errors.Is(err, failed) || got != nil {
			t.Errorf("Of = %v, %v", got, err)
		}
	}
}

// An answer is used for two seconds from its arrival, however long the query took, and by its tenant only.
func TestServicesAreAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		s := lookup.NewServices(func(_ context.Context, tenant string) ([]string, error) {
			time.Sleep(3 * time.Second) // on the clock of the bubble
			asked[tenant]++
			return []string{fmt.Sprint(tenant, asked[tenant])}, nil
		})
		for _, step := range []struct {
			after        time.Duration
			tenant, want string
		}{
			{0, "a", "a1"},
			{2 * time.Second, "a", "a1"},
			{time.Nanosecond, "a", "a2"},
			{time.Second, "b", "b1"},
			{0, "a", "a3"},
			{0, "b", "b2"},
		} {
			time.Sleep(step.after)
			if got, err := s.Of(t.Context(), step.tenant); err != nil || len(got) != 1 || !got[step.want] {
				t.Errorf("tenant %s, %s later: %v, %v; want %s", step.tenant, step.after, got, err, step.want)
			}
		}
	})
}

// A fifth query waits until one of four has ended, and callers of one tenant wait for one query however long it takes.
func TestServicesAreAskedByFewAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, end := 0, make(chan struct{})
		s := lookup.NewServices(func(context.Context, string) ([]string, error) {
			asked++
			<-end
			return nil, nil
		})
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() { _, _ = s.Of(t.Context(), fmt.Sprint(i)) })
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		all.Go(func() { _, _ = s.Of(t.Context(), "0") })
		synctest.Wait()
		if asked != 4 {
			t.Errorf("%d queries at once, want 4", asked)
		}
		close(end)
		all.Wait()
		if asked != 5 {
			t.Errorf("%d queries for five tenants", asked)
		}
	})
}
