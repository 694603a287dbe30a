package service

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// wanted returns the number of triggers of the tenant acme that this gateway would read now.
func (s *taking) wanted() int {
	s.t.Helper()
	marks, err := s.Triggers.store.Documents(s.t.Context(), state.TriggersDocument)
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[triggerKey]*runner{}
	if err := s.Triggers.lookAt(s.t.Context(), "acme", marks["acme"], found); err != nil {
		s.t.Fatal(err)
	}
	return len(found)
}

// No message of a trigger is read while the trigger is paused or its tenant suspended.
func TestTriggersThatAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTaking(t, &orders{})
		put := func(paused bool) {
			t.Helper()
			s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}, Paused: paused})
		}
		open := api.TenantSettings{Streams: []api.TenantStream{{Name: "*"}}}
		for _, step := range []struct {
			what   string
			change func()
			want   int
		}{
			{"stored", func() { put(false) }, 1},
			{"paused", func() { put(true) }, 0},
			{"resumed", func() { put(false) }, 1},
			{"suspended", func() { s.settings(api.TenantSettings{Suspended: true, Streams: open.Streams}) }, 0},
			{"no longer suspended", func() { s.settings(open) }, 1},
		} {
			if step.change(); s.wanted() != step.want {
				t.Errorf("%s: the gateway reads %d triggers, want %d", step.what, s.wanted(), step.want)
			}
		}
	})
}

// silent is a store that does not return the triggers of tenants, or the status of a trigger.
type silent struct {
	state.Store
	down bool
}

var errSilent = errors.New("the store does not answer")

func (s *silent) Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	if s.down && kind != state.TriggersDocument {
		return nil, errSilent
	}
	return s.Store.Documents(ctx, kind)
}

func (s *silent) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	if s.down {
		return errSilent
	}
	return s.Store.ReplaceDocument(ctx, kind, name, was, data)
}

// Triggers go on while the store does not return them, and stop once it says that they are gone. The dead letters that
// could not be counted then are counted later.
func TestTriggersDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTaking(t, &orders{})
		r := s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}})
		store := &silent{Store: s.Triggers.store, down: true}
		s.Triggers.store = store
		stopped := false
		r.stop = func() { stopped = true }
		s.Triggers.running[r.key] = r
		s.Triggers.limiters[r.key] = r.limiter
		var runners sync.WaitGroup
		defer runners.Wait()
		if err := s.Triggers.look(t.Context(), &runners); !errors.Is(err, errSilent) || stopped || s.Triggers.running[r.key] != r {
			t.Errorf("look = %v; stopped: %v", err, stopped)
		}

		r.fail(t.Context(), errors.New("no agent"), 2)
		r.flush(t.Context())
		store.down = false
		r.fail(t.Context(), errors.New("no agent"), 1)
		r.flush(t.Context())
		if status, _, err := s.Triggers.status(t.Context(), "acme", "t"); err != nil || status.Dead != 3 {
			t.Errorf("the trigger has %d dead letters, %v, want 3", status.Dead, err)
		}

		if err := s.Triggers.Delete(t.Context(), s.c, "t"); err != nil {
			t.Fatal(err)
		}
		if err := s.Triggers.look(t.Context(), &runners); err != nil || !stopped || len(s.Triggers.running) > 0 {
			t.Errorf("after the deletion look = %v; stopped: %v", err, stopped)
		}
	})
}
