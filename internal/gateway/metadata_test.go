package gateway_test

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// indexSpy records the metadata keys by which runs are indexed and lists are read.
type indexSpy struct {
	state.Store

	mu      sync.Mutex
	at      time.Time
	indexed map[state.RunID][]string
	read    map[string]state.RunID // of the latest list
}

func newIndexSpy() *indexSpy {
	s := &indexSpy{at: time.Now(), indexed: map[state.RunID][]string{}}
	s.Store = memstore.New(memstore.Config{Now: func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.at
	}})
	return s
}

// pass advances the store's clock.
func (s *indexSpy) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

func (s *indexSpy) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	made, err := s.Store.Create(ctx, n)
	if !made.Existing {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.indexed[made.State.ID] = n.Indexed
	}
	return made, err
}

func (s *indexSpy) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	s.mu.Lock()
	s.read = f.Indexed
	s.mu.Unlock()
	return s.Store.List(ctx, f)
}

// Runs are indexed by the keys in their tenant's settings, whichever way they are submitted. A list uses the
// index only for runs created at least a minute after the setting.
func TestIndexedMetadata(t *testing.T) {
	t.Parallel()
	spy := newIndexSpy()
	user := map[string]string{"user": "42", "plan": "x"}
	gateway := func() (*guarded, *api.Client) { // each has read no settings yet
		spy.pass(time.Second)
		s := newGuardedOn(t, spy)
		return s, s.client("acme", access.Author, access.Submitter, access.Operator)
	}
	submit := func(c *api.Client, metadata map[string]string) state.RunID {
		t.Helper()
		run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x"), Metadata: metadata}, "")
		if err != nil {
			t.Fatal(err)
		}
		return state.RunID(run.ID)
	}
	put := func(s *guarded, keys ...string) {
		t.Helper()
		if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{IndexedMetadata: keys}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(c *api.Client, want ...state.RunID) map[string]state.RunID {
		t.Helper()
		page, err := c.List(t.Context(), url.Values{"metadata.user": {"42"}})
		var got []state.RunID
		for _, r := range page.Items {
			got = append(got, state.RunID(r.ID))
		}
		if slices.Reverse(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("the list by user has %v, %v, want %v", got, err, want)
		}
		return maps.Clone(spy.read)
	}
	indexed := func(want []string, ids ...state.RunID) {
		t.Helper()
		for _, id := range ids {
			if !slices.Equal(spy.indexed[id], want) {
				t.Errorf("run %s is indexed by %v, want %v", id, spy.indexed[id], want)
			}
		}
	}

	first, c := gateway()
	if _, err := c.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	before := submit(c, user)
	indexed(nil, before)
	if read := list(c, before); len(read) > 0 {
		t.Errorf("a list of a tenant without an index reads the index for %v", read)
	}
	put(first, "user", "channel")
	soon := submit(c, user) // by a gateway that may not have read the setting

	spy.pass(2 * time.Minute)
	second, c := gateway()
	single, none := submit(c, user), submit(c, nil)
	batch, err := c.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{
		{Agent: "a", Input: api.Text("x"), Metadata: user}, {Agent: "a", Input: api.Text("x"), Metadata: user},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn := 0
	fork, err := c.Fork(t.Context(), string(before), api.ForkRequest{Turn: &turn})
	if err != nil {
		t.Fatal(err)
	}
	many := []state.RunID{single, state.RunID(batch.RunIDs[0]), state.RunID(batch.RunIDs[1]), state.RunID(fork.ID)}
	indexed([]string{"user", "channel"}, many...)
	indexed(nil, none)
	read := list(c, slices.Concat([]state.RunID{before, soon}, many)...)
	if from := read["user"]; from <= soon || from > single || read["channel"] != from {
		t.Errorf("the list reads the index for %v, want runs after %s and from %s on", read, soon, single)
	}
	matched, err := c.CancelRuns(t.Context(), api.CancelRunsRequest{Filter: &api.RunFilter{Metadata: user}, DryRun: true})
	if err != nil || matched.Matched != 6 || !maps.Equal(spy.read, read) {
		t.Errorf("a cancellation by user matches %d runs, %v, and reads the index for %v, want %v", matched.Matched, err, spy.read, read)
	}

	put(second, "channel")
	third, c := gateway()
	without := submit(c, user)
	indexed([]string{"channel"}, without)
	if again := list(c, slices.Concat([]state.RunID{before, soon}, many, []state.RunID{without})...); again["user"] != "" || again["channel"] != read["channel"] {
		t.Errorf("the list reads the index for %v after user was removed; channel is unchanged, %v", again, read)
	}
	put(third, "user")
	_, c = gateway()
	if again := list(c, slices.Concat([]state.RunID{before, soon}, many, []state.RunID{without})...); again["user"] <= without || again["channel"] != "" {
		t.Errorf("the list reads the index for %v after user was added again, want runs after %s", again, without)
	}
}
