package worker

import (
	"strings"
	"sync"
	"testing"
)

// More steps than goroutines are there for them all come to their end.
func TestStacksRunAll(t *testing.T) {
	t.Parallel()
	s := newStacks(func() bool { return false })
	defer s.close()
	var group sync.WaitGroup
	var mu sync.Mutex
	ran := 0
	for range 4 * maxStacks {
		group.Go(func() {
			s.run(func() {
				mu.Lock()
				defer mu.Unlock()
				ran++
			})
		})
	}
	group.Wait()
	if ran != 4*maxStacks {
		t.Errorf("%d of %d steps were run", ran, 4*maxStacks)
	}
	if n := len(s.room); n > maxStacks {
		t.Errorf("%d goroutines, want at most %d", n, maxStacks)
	}
}

// A panic belongs to the turn whose step it was: the others go on.
func TestStacksPanic(t *testing.T) {
	t.Parallel()
	s := newStacks(func() bool { return false })
	defer s.close()
	func() {
		defer func() {
			p, ok := recover().(*panicked)
			if !ok || p.value != "boom" || !strings.Contains(p.String(), "TestStacksPanic") {
				t.Errorf("the caller's panic is %v", p)
			}
		}()
		s.run(func() { panic("boom") })
	}()
	ran := false
	s.run(func() { ran = true })
	if !ran {
		t.Error("no step is run after one that panicked")
	}
}
