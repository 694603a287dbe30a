package lookup_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

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
