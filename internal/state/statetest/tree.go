package statetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A tree admits each descendant once, up to its maximum, and none once its root has a pending abort.
func testAdmit(t *testing.T, s *suite) {
	root := s.create(t)
	runs := make([]state.RunID, 8)
	for i := range runs {
		runs[i] = newRun(t).ID
	}
	admit := func(limit int, ended bool, refused []state.RunID, runs ...state.RunID) {
		t.Helper()
		a, err := s.Admit(t.Context(), root.ID, runs, limit)
		if err != nil || a.Ended != ended || !slices.Equal(a.Refused, refused) {
			t.Errorf("Admit(runs %v, limit %d) = %+v, %v; want Refused %v, Ended %t", runs, limit, a, err, refused, ended)
		}
	}
	admit(4, false, nil, runs[:3]...)
	admit(4, false, nil, runs[:3]...) // repeated
	admit(4, false, runs[4:6], runs[2:6]...)
	admit(5, false, runs[5:6], runs[2:6]...)
	if _, err := s.Abort(t.Context(), root.ID, state.Abort{Reason: "enough"}, time.Second); err != nil {
		t.Fatal(err)
	}
	admit(100, true, runs[5:], runs...)
	if _, err := s.Admit(t.Context(), runs[0], runs, 9); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Admit below a run that does not exist: %v", err)
	}

	// Concurrent requests together stay within the tree's maximum.
	other := s.create(t)
	var asking sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for w := range 8 {
		asking.Go(func() {
			for range 4 {
				id := newRun(t).ID
				a, err := s.Admit(t.Context(), other.ID, []state.RunID{id}, 10)
				if err != nil {
					t.Error(fmt.Errorf("worker %d: %w", w, err))
				}
				if err == nil && len(a.Refused) == 0 {
					mu.Lock()
					taken++
					mu.Unlock()
				}
			}
		})
	}
	asking.Wait()
	if taken != 10 {
		t.Errorf("concurrent calls of Admit with the limit 10 admitted %d runs, want 10", taken)
	}
}
