package statetest

import (
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testPins(t *testing.T, s state.AdminStore) {
	if kept, err := s.Pin(t.Context(), "a/1 b.c", nil); err != nil || len(kept) != 0 {
		t.Errorf("Pin of nothing = %q, %v", kept, err)
	}
	var mu sync.Mutex
	kept := map[string]bool{}
	var wg sync.WaitGroup
	for n := range 5 {
		wg.Go(func() {
			got, err := s.Pin(t.Context(), "a/1 b.c", []byte{'0' + byte(n)})
			if err != nil {
				t.Errorf("Pin: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			kept[string(got)] = true
		})
	}
	wg.Wait()
	again, err := s.Pin(t.Context(), "a/1 b.c", nil)
	if err != nil || len(kept) != 1 || !kept[string(again)] {
		t.Errorf("5 writers pinned %v, later it is %q, %v", kept, again, err)
	}
	if other, err := s.Pin(t.Context(), "a/2", []byte("x")); err != nil || string(other) != "x" {
		t.Errorf("Pin of another key = %q, %v", other, err)
	}
}
