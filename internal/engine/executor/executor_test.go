package executor

import (
	"strings"
	"sync"
	"testing"
)

// A pool completes more steps than it has goroutines.
func TestPoolRunAll(t *testing.T) {
	t.Parallel()
	s := NewPool(func() bool { return false })
	defer s.Close()
	var group sync.WaitGroup
	var mu sync.Mutex
	ran := 0
	for range 4 * size {
		group.Go(func() {
			s.Run(func() {
				mu.Lock()
				defer mu.Unlock()
				ran++
			})
		})
	}
	group.Wait()
	if ran != 4*size {
		t.Errorf("%d of %d steps ran", ran, 4*size)
	}
	if n := len(s.made); n > size {
		t.Errorf("%d goroutines, want at most %d", n, size)
	}
}

// A panic belongs to the turn whose step it was: the other turns continue.
func TestPoolPanic(t *testing.T) {
	t.Parallel()
	s := NewPool(func() bool { return false })
	defer s.Close()
	func() {
		defer func() {
			p, ok := recover().(*panicked)
			if !ok || p.value != "boom" || !strings.Contains(p.String(), "TestPoolPanic") {
				t.Errorf("the caller's panic is %v", p)
			}
		}()
		s.Run(func() { panic("boom") })
	}()
	ran := false
	s.Run(func() { ran = true })
	if !ran {
		t.Error("no step runs after one that panicked")
	}
}
