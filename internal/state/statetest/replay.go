package statetest

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A poisoned end permits one replay, of exactly that end; another end of the run permits one of its own.
func testReplay(t *testing.T, s *suite) {
	run := s.create(t)
	poison := func(version int64) int64 {
		t.Helper()
		c := s.mustClaim(t, run.ID, version)
		next := *c.State
		next.Poison = &state.Poison{Attempts: 5}
		return s.commitState(t, c, move(t, next, state.EndPoisoned, state.Entry{})).Version
	}
	v := poison(1)
	if got, err := s.Load(t.Context(), run.ID); err != nil || got.Poison == nil || got.Poison.Attempts != 5 {
		t.Fatalf("Load = %+v, %v; want the fields that a replay needs", got.Poison, err)
	}
	other := state.ReplaySignal(v+1, state.Time{})
	_, err := s.Signal(t.Context(), run.ID, other, long)
	wantErr[*state.NotWaitingError](t, err)
	w, err := s.Signal(t.Context(), run.ID, state.ReplaySignal(v, state.Time{}), long)
	if err != nil || !w.Publish || w.Version != v {
		t.Fatalf("replay = %+v, %v; want to publish version %d", w, err, v)
	}
	if w, err := s.Signal(t.Context(), run.ID, state.ReplaySignal(v, state.Time{}), long); err != nil || w != (state.Wake{}) {
		t.Errorf("second replay = %+v, %v; want nothing", w, err)
	}
	c := s.mustClaim(t, run.ID, v)
	if len(c.Signals) != 1 || c.Signals[0].Replay != v {
		t.Fatalf("signals = %s", encode(t, c.Signals))
	}
	next := *c.State
	next.Poison = nil
	v = s.commitState(t, c, move(t, next, state.Replayed, state.Entry{})).Version
	_, err = s.Signal(t.Context(), run.ID, state.ReplaySignal(v, state.Time{}), long)
	wantErr[*state.NotWaitingError](t, err)
	v = poison(v)
	if w, err := s.Signal(t.Context(), run.ID, state.ReplaySignal(v, state.Time{}), long); err != nil || !w.Publish {
		t.Errorf("replay of the second end = %+v, %v", w, err)
	}
}
