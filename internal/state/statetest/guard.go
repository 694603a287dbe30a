package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A store refuses a guard that it has not given, and creates nothing.
func testForeignGuard(t *testing.T, s *suite) {
	run := newRun(t)
	if made, err := s.Create(t.Context(), state.NewRun{State: run, Guard: "guard", RedeliveryDelay: long}); !errors.Is(err, state.ErrChanged) {
		t.Errorf("Create = run %q, %v, want ErrChanged", made.State.ID, err)
	}
	if _, err := s.Load(t.Context(), run.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Load of the refused run = %v, want ErrNotFound", err)
	}
}

// A run is created with a guard only if the guard is that of the latest version of its agent.
func testGuard(t *testing.T, s state.Store) {
	n := 0
	put := func(tenant, name string) string {
		t.Helper()
		n++
		if _, err := s.PutAgent(t.Context(), tenant, name, json.RawMessage(fmt.Sprintf(`{"v":%d}`, n)), true); err != nil {
			t.Fatal(err)
		}
		v, err := s.Agent(t.Context(), tenant, name, 0)
		if err != nil {
			t.Fatal(err)
		}
		return v.Guard
	}
	create := func(run state.State, key, guard string) (state.Created, error) {
		return s.Create(t.Context(), state.NewRun{State: run, Key: key, Fingerprint: "f", Guard: guard, RedeliveryDelay: long})
	}
	refuses := func(when, key, guard string) {
		t.Helper()
		run := newRun(t)
		if made, err := create(run, key, guard); !errors.Is(err, state.ErrChanged) {
			t.Errorf("%s: Create = run %q, %v, want ErrChanged", when, made.State.ID, err)
		}
		if _, err := s.Load(t.Context(), run.ID); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%s: Load of the refused run = %v, want ErrNotFound", when, err)
		}
	}
	first := put(state.DefaultTenant, "a")
	if first == "" {
		t.Skip("the store gives no guards")
	}
	run := newRun(t)
	if made, err := create(run, "known", first); err != nil || made.Existing || made.State.ID != run.ID {
		t.Fatalf("with the guard of the latest version: Create = %+v, %v", made, err)
	}
	second := put(state.DefaultTenant, "a")
	refuses("with the guard of an older version", "", first)
	refuses("with a new key and the guard of an older version", "new", first)
	refuses("with the guard of another agent", "", put(state.DefaultTenant, "b"))
	refuses("with the guard of another tenant's agent", "", put("other", "a"))
	fresh := newRun(t)
	if made, err := create(fresh, "new", second); err != nil || made.Existing || made.State.ID != fresh.ID {
		t.Errorf("with the key of a refused run: Create = run %q, existing %v, %v, want a new run %q", made.State.ID, made.Existing, err, fresh.ID)
	}
	known := func(when string) {
		t.Helper()
		for _, key := range []string{"known", ""} { // a repetition has the key or the id
			again := newRun(t)
			if key == "" {
				again = run
			}
			if made, err := create(again, key, first); err != nil || !made.Existing || made.State.ID != run.ID {
				t.Errorf("%s, with key %q: a repetition returns run %q, existing %v, %v, want run %q", when, key, made.State.ID, made.Existing, err, run.ID)
			}
		}
	}
	known("after another version was saved")
	if err := s.DeleteAgent(t.Context(), state.DefaultTenant, "a"); err != nil {
		t.Fatal(err)
	}
	refuses("after the deletion of the agent", "", second)
	known("after the deletion of the agent")
	third := put(state.DefaultTenant, "a")
	refuses("after the agent is back", "", second)
	if _, err := create(newRun(t), "", third); err != nil {
		t.Errorf("after the agent is back, with its guard: %v", err)
	}
	// While versions are saved, a guard that was read before the latest save never passes.
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10 {
				v, err := s.PutAgent(t.Context(), state.DefaultTenant, "a", json.RawMessage(`{}`), true)
				if err != nil {
					t.Error(err)
					return
				}
				read, err := s.Agent(t.Context(), state.DefaultTenant, "a", v.Version)
				if err != nil {
					t.Error(err)
					return
				}
				before, err := s.Agent(t.Context(), state.DefaultTenant, "a", 0)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err = create(newRun(t), "", read.Guard); err == nil && before.Version > v.Version {
					t.Errorf("a run was created with version %d when the latest was %d", v.Version, before.Version)
				} else if err != nil && !errors.Is(err, state.ErrChanged) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}
