package gateway_test

import (
	"context"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// slowLists is a store whose lists of one tenant end when they are let go.
type slowLists struct {
	state.Store

	tenant    string
	asked     chan struct{}
	let       chan struct{}
	now, most atomic.Int64
}

func (s *slowLists) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	if f.Tenant == s.tenant {
		s.most.Store(max(s.most.Load(), s.now.Add(1)))
		defer s.now.Add(-1)
		s.asked <- struct{}{}
		select {
		case <-s.let:
		case <-ctx.Done():
		}
	}
	return s.Store.List(ctx, f)
}

// A tenant that asks for many lists at once waits for itself, and nobody else does.
func TestListsOfOneTenantWait(t *testing.T) {
	t.Parallel()
	const atOnce, asked = 4, 12
	store := &slowLists{Store: memstore.New(memstore.Config{}), tenant: "greedy", asked: make(chan struct{}, asked), let: make(chan struct{})}
	g, err := gateway.New(store, membus.New(), gateway.Config{Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	for _, tenant := range []string{"greedy", "other"} {
		if _, err := client.New(server.URL).PutTenant(t.Context(), tenant, api.TenantSettings{}); err != nil {
			t.Fatal(err)
		}
	}
	greedy, other := client.New(server.URL, client.WithTenant("greedy")), client.New(server.URL, client.WithTenant("other"))
	var lists sync.WaitGroup
	for range asked {
		lists.Go(func() {
			if _, err := greedy.List(t.Context(), url.Values{}); err != nil {
				t.Errorf("a list of the greedy tenant: %v", err)
			}
		})
	}
	for range atOnce {
		<-store.asked
	}
	if _, err := other.List(t.Context(), url.Values{}); err != nil {
		t.Errorf("a list of the other tenant: %v", err)
	}
	close(store.let)
	lists.Wait()
	if most := store.most.Load(); most > atOnce {
		t.Errorf("%d lists of one tenant at once, want %d at most", most, atOnce)
	}
}
