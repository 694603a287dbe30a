package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testAgents(t *testing.T, s state.AdminStore) {
	if _, err := s.Agent(t.Context(), state.DefaultTenant, "a", 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Agent = %v, want not found", err)
	}
	for v := 1; v <= 2; v++ {
		got, err := s.PutAgent(t.Context(), state.DefaultTenant, "a", json.RawMessage(`{"v":`+string(rune('0'+v))+`}`), false)
		if err != nil || got.Version != v || got.CreatedAt.IsZero() {
			t.Fatalf("PutAgent = %+v, %v", got, err)
		}
	}
	if _, err := s.PutAgent(t.Context(), state.DefaultTenant, "b.c/d", json.RawMessage(`{}`), false); err != nil {
		t.Fatalf("PutAgent with unusual characters in the name: %v", err)
	}
	for version, want := range map[int]string{0: `{"v":2}`, 1: `{"v":1}`, 2: `{"v":2}`} {
		if got, err := s.Agent(t.Context(), state.DefaultTenant, "a", version); err != nil || string(got.Definition) != want {
			t.Errorf("Agent(%d) = %s, %v", version, got.Definition, err)
		}
	}
	names := func(want ...string) {
		t.Helper()
		if got, err := s.AgentNames(t.Context(), state.DefaultTenant); err != nil || !slices.Equal(got, want) {
			t.Errorf("AgentNames = %q, %v, want %q", got, err, want)
		}
	}
	names("a", "b.c/d")
	if err := s.DeleteAgent(t.Context(), state.DefaultTenant, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteAgent(t.Context(), state.DefaultTenant, "a"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("second DeleteAgent = %v", err)
	}
	names("b.c/d")
	if _, err := s.Agent(t.Context(), state.DefaultTenant, "a", 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("deleted agent's latest = %v", err)
	}
	if _, err := s.Agent(t.Context(), state.DefaultTenant, "a", 1); err != nil {
		t.Errorf("a version that runs may have pinned: %v", err)
	}
	if got, err := s.PutAgent(t.Context(), state.DefaultTenant, "a", json.RawMessage(`{}`), false); err != nil || got.Version != 3 {
		t.Errorf("PutAgent after deletion = %+v, %v", got, err)
	}
	testPins(t, s)
	testAgentsOfTenants(t, s)
	// Concurrent writers each get a version of their own.
	var mu sync.Mutex
	versions := map[int]bool{}
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			got, err := s.PutAgent(t.Context(), state.DefaultTenant, "race", json.RawMessage(fmt.Sprintf(`{"of":%d}`, i)), false)
			if err != nil {
				t.Errorf("PutAgent: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			versions[got.Version] = true
		})
	}
	wg.Wait()
	if len(versions) != 5 {
		t.Errorf("5 writers got versions %v", versions)
	}
	testEqualAgents(t, s)
	testDeletionsOfAgent(t, s)
}

// One of the callers that race to delete an agent has deleted it.
func testDeletionsOfAgent(t *testing.T, s state.AdminStore) {
	for round := range 10 {
		if _, err := s.PutAgent(t.Context(), state.DefaultTenant, "unwanted", json.RawMessage(`{}`), false); err != nil {
			t.Fatal(err)
		}
		var deleted atomic.Int64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				switch err := s.DeleteAgent(t.Context(), state.DefaultTenant, "unwanted"); {
				case err == nil:
					deleted.Add(1)
				case !errors.Is(err, state.ErrNotFound):
					t.Errorf("DeleteAgent: %v", err)
				}
			})
		}
		wg.Wait()
		if n := deleted.Load(); n != 1 {
			t.Errorf("round %d: DeleteAgent succeeded for %d of ten concurrent callers, want 1", round, n)
		}
	}
}

// Equal definitions create one version, also with concurrent writers, unless a writer requests another.
func testEqualAgents(t *testing.T, s state.AdminStore) {
	put := func(definition string, always bool) int {
		v, err := s.PutAgent(t.Context(), state.DefaultTenant, "equal", json.RawMessage(definition), always)
		if err != nil || string(v.Definition) != definition || v.CreatedAt.IsZero() {
			t.Errorf("PutAgent = %+v, %v", v, err)
		}
		return v.Version
	}
	for round, definition := range []string{`{"v":1}`, `{"v":2}`, `{"v":1}`} {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got := put(definition, false); got != round+1 {
					t.Errorf("PutAgent of ten concurrent writers with the same definition %s returned version %d, want %d for all", definition, got, round+1)
				}
			})
		}
		wg.Wait()
	}
	if got := put(`{"v":1}`, true); got != 4 {
		t.Errorf("PutAgent of an earlier definition, with a new version required, returned version %d, want 4", got)
	}
	if err := s.DeleteAgent(t.Context(), state.DefaultTenant, "equal"); err != nil {
		t.Fatal(err)
	}
	if got := put(`{"v":1}`, false); got != 5 {
		t.Errorf("after a deletion the version is %d, want 5", got)
	}
}

// Each tenant has its own agents, also under equal names.
func testAgentsOfTenants(t *testing.T, s state.AdminStore) {
	for _, tenant := range []string{state.DefaultTenant, "one", "two"} {
		v, err := s.PutAgent(t.Context(), tenant, "shared", json.RawMessage(`{"of":"`+tenant+`"}`), false)
		if err != nil || v.Version != 1 {
			t.Fatalf("PutAgent of tenant %s = %+v, %v; want version 1", tenant, v, err)
		}
	}
	if err := s.DeleteAgent(t.Context(), "two", "shared"); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]string{state.DefaultTenant: `{"of":"default"}`, "one": `{"of":"one"}`} {
		if v, err := s.Agent(t.Context(), tenant, "shared", 0); err != nil || string(v.Definition) != want {
			t.Errorf("Agent of tenant %s = %s, %v; want %s", tenant, v.Definition, err, want)
		}
	}
	for tenant, want := range map[string]int{"one": 1, "two": 0, "three": 0} {
		if list, err := s.AgentNames(t.Context(), tenant); err != nil || len(list) != want {
			t.Errorf("AgentNames of tenant %s = %q, %v; want %d", tenant, list, err, want)
		}
	}
	if _, err := s.Agent(t.Context(), "two", "shared", 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Agent that its tenant has deleted = %v", err)
	}
	if _, err := s.Agent(t.Context(), "three", "shared", 1); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Agent of another tenant = %v", err)
	}
}
