package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// slowLists is a store whose lists of one tenant block until released.
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

// A tenant that requests many lists at once only delays itself.
func TestListsOfOneTenantWait(t *testing.T) {
	t.Parallel()
	const atOnce, asked = 4, 12
	store := &slowLists{Store: memstore.New(memstore.Config{}), tenant: "greedy", asked: make(chan struct{}, asked), let: make(chan struct{})}
	g, err := gateway.New(store, membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	for _, tenant := range []string{"greedy", "other"} {
		if _, err := api.New(server.URL).PutTenant(t.Context(), tenant, api.TenantSettings{}); err != nil {
			t.Fatal(err)
		}
	}
	greedy, other := api.New(server.URL, api.WithTenant("greedy")), api.New(server.URL, api.WithTenant("other"))
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

// A page of agents or drafts ends early if the definitions are large: an author may save drafts up to the
// storage limit.
func TestAgentsEndEarly(t *testing.T) {
	t.Parallel()
	const agents, size = 24, 1_000_000
	s := newGuarded(t)
	large := json.RawMessage(`{"instructions":"` + strings.Repeat("x", size) + `"}`)
	for status, review := range map[string]bool{api.StatusPublished: false, api.StatusDraft: true} {
		tenant := "of-" + status
		for i := range agents {
			name := fmt.Sprintf("a%02d", i)
			var err error
			if review {
				draft, _ := json.Marshal(api.AgentDraft{Name: name, Status: status, Definition: large, By: state.By{Via: "key"}, CreatedAt: state.At(time.Now())}) //nolint:errchkjson // raw JSON
				err = s.store.PutDocument(t.Context(), state.DraftsOf(tenant), name, draft)
			} else {
				_, err = s.store.PutAgent(t.Context(), tenant, name, large, false)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		author := s.client(tenant, access.Author)
		first := func(query string) api.Page[api.Agent] {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/agents?status="+status+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+s.key(tenant, access.Viewer))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var page api.Page[api.Agent]
			if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
				t.Fatal(err)
			}
			return page
		}
		if page := first(""); len(page.Items) > 16 || page.NextCursor == nil {
			t.Errorf("%s: the first page has %d agents of a megabyte, with the cursor %v", status, len(page.Items), page.NextCursor)
		}
		if page := first("&limit=3"); len(page.Items) != 3 || page.NextCursor == nil || *page.NextCursor != "3" {
			t.Errorf("%s: a page of three has %d, with the cursor %v", status, len(page.Items), page.NextCursor)
		}
		var names []string
		if review {
			drafts, err := author.AgentDrafts(t.Context())
			for _, d := range drafts {
				names = append(names, d.Name)
			}
			if err != nil {
				t.Error(err)
			}
		} else {
			list, err := author.Agents(t.Context())
			for _, a := range list {
				names = append(names, a.Name)
			}
			if err != nil {
				t.Error(err)
			}
		}
		if len(names) != agents || !slices.IsSorted(names) || len(slices.Compact(names)) != agents {
			t.Errorf("%s: all pages have %q", status, names)
		}
	}
}
