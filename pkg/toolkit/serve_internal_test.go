package toolkit

import (
	"testing"
	"testing/synctest"
)

// A server is finished when its subscription is drained and the calls in flight are answered, not before: the process
// may exit then, and a call that it leaves behind would get no answer although it may have had its effect.
func TestFinishWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{drained: make(chan struct{})}
		first, second := make(chan struct{}), make(chan struct{})
		finished := false
		go func() {
			s.finish()
			finished = true
		}()
		for _, step := range []struct {
			left string
			end  func()
		}{
			{"while its subscription is not drained", func() {
				s.calls.Go(func() { <-first })
				s.calls.Go(func() { <-second })
				close(s.drained)
			}},
			{"while two calls are in flight", func() { close(first) }},
			{"while a call is in flight", func() { close(second) }},
		} {
			synctest.Wait()
			if finished {
				t.Errorf("the server is finished %s", step.left)
			}
			step.end()
		}
		synctest.Wait()
		if !finished {
			t.Error("the server does not finish after its last call")
		}
	})
}
