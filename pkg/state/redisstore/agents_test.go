package redisstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The names of more agents than the store requests at once are complete and sorted, without deleted ones.
func TestNamesOfManyAgents(t *testing.T) {
	t.Parallel()
	s := open(t, testbed.Redis(t))
	all := make([]string, 1005)
	for i := range all {
		all[i] = fmt.Sprintf("agent-%04d", i)
	}
	var writers sync.WaitGroup
	for some := range slices.Chunk(all, 50) {
		writers.Go(func() {
			for _, name := range some {
				if _, err := s.PutAgent(t.Context(), state.DefaultTenant, name, json.RawMessage(`{}`), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	for _, name := range []string{all[0], all[999], all[1002]} {
		if err := s.DeleteAgent(t.Context(), state.DefaultTenant, name); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.AgentNames(t.Context(), state.DefaultTenant)
	if want := slices.Concat(all[1:999], all[1000:1002], all[1003:]); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d names, %v, want %d; the last are %v", len(got), err, len(want), got[max(0, len(got)-6):])
	}
}

// An agent whose name was listed, but whose first version was not stored, does not exist.
func TestAgentWithoutAVersion(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	prefix := "test-" + ulid.Make().String()
	s := openAt(t, url, prefix)
	if err := raw(t, url).SAdd(t.Context(), prefix+":agents", "half").Err(); err != nil {
		t.Fatal(err)
	}
	names, err := s.AgentNames(t.Context(), state.DefaultTenant)
	if err != nil || len(names) != 0 {
		t.Errorf("AgentNames = %v, %v", names, err)
	}
	if _, err := s.Agent(t.Context(), state.DefaultTenant, "half", 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Agent = %v", err)
	}
	if err := s.DeleteAgent(t.Context(), state.DefaultTenant, "half"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("DeleteAgent = %v", err)
	}
	if v, err := s.PutAgent(t.Context(), state.DefaultTenant, "half", json.RawMessage(`{}`), false); err != nil || v.Version != 1 {
		t.Errorf("PutAgent = version %d, %v", v.Version, err)
	}
}

// A process that has read the latest version of an agent sees the next one, which another process stores, and its
// deletion there.
func TestLatestVersionOfAnotherProcess(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	prefix := "test-" + ulid.Make().String()
	s, other := openAt(t, url, prefix), openAt(t, url, prefix)
	for n := 1; n <= 3; n++ {
		definition := fmt.Sprintf(`{"n":%d}`, n)
		if _, err := other.PutAgent(t.Context(), state.DefaultTenant, "a", json.RawMessage(definition), false); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			v, err := s.Agent(t.Context(), state.DefaultTenant, "a", 0)
			if err != nil || v.Version != n || string(v.Definition) != definition {
				t.Errorf("Agent = version %d with %s, %v; want %d", v.Version, v.Definition, err, n)
			}
		}
	}
	if err := other.DeleteAgent(t.Context(), state.DefaultTenant, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Agent(t.Context(), state.DefaultTenant, "a", 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Agent after the deletion = %v", err)
	}
}
