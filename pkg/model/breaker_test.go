package model_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// A model that does not answer is not called for a while, then tried once (A17).
func TestBreakers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := model.NewBreakers(model.BreakerPolicy{Failures: 3, Rest: 10 * time.Second})
		down := &model.Error{Class: model.Transport}
		call := func(err *model.Error) {
			t.Helper()
			if refused := b.Allow("m"); refused != nil {
				t.Fatalf("refused: %v", refused)
			}
			b.Done("m", err)
		}
		refused := func(left time.Duration) {
			t.Helper()
			if e := b.Allow("m"); e == nil || e.Class != model.Overloaded || e.RetryAfter != left || errors.Is(e, model.ErrTrial) {
				t.Fatalf("Allow = %+v, want it refused for %s", e, left)
			}
		}
		// Only consecutive failures count that say something about the provider.
		call(down)
		call(down)
		call(nil)
		call(down)
		call(down)
		call(&model.Error{Class: model.RateLimited})
		call(&model.Error{Class: model.Timeout})
		call(&model.Error{Class: model.Cancelled})
		call(down)
		call(&model.Error{Class: model.Overloaded})
		refused(10 * time.Second)
		if e := b.Allow("other"); e != nil {
			t.Fatalf("another model is refused as well: %v", e)
		}
		time.Sleep(4 * time.Second)
		refused(6 * time.Second)
		time.Sleep(6 * time.Second)
		// One call tries the model; the others wait.
		if e := b.Allow("m"); e != nil {
			t.Fatalf("the trial is refused: %v", e)
		}
		if e := b.Allow("m"); e == nil || e.RetryAfter <= time.Second || !errors.Is(e, model.ErrTrial) {
			t.Fatalf("Allow = %+v, want it refused for a while because of the trial", e)
		}
		b.Done("m", down)
		refused(10 * time.Second)
		time.Sleep(10 * time.Second)
		// A trial that was cut short proves nothing: another call tries the model, and fails it alone.
		call(&model.Error{Class: model.Cancelled})
		call(down)
		refused(10 * time.Second)
		time.Sleep(10 * time.Second)
		// So does any answer, even a refusal: the failures before it no longer count.
		call(&model.Error{Class: model.RateLimited})
		call(down)
		call(down)
		call(nil)
	})
}

// Without a policy, 5 failures open a breaker for 15 seconds. A caller waits for at least one.
func TestBreakersOfNoPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := model.NewBreakers(model.BreakerPolicy{})
		for range 5 {
			if e := b.Allow("m"); e != nil {
				t.Fatalf("refused: %v", e)
			}
			b.Done("m", &model.Error{Class: model.Transport})
		}
		for _, step := range []struct{ pass, wait time.Duration }{{0, 15 * time.Second}, {14*time.Second + 500*time.Millisecond, time.Second}} {
			time.Sleep(step.pass)
			if e := b.Allow("m"); e == nil || e.RetryAfter != step.wait {
				t.Errorf("%s later Allow = %+v, want it refused for %s", step.pass, e, step.wait)
			}
		}
		time.Sleep(500 * time.Millisecond)
		if e := b.Allow("m"); e != nil {
			t.Errorf("the trial is refused: %v", e)
		}
		if e := b.Allow("m"); e == nil || e.RetryAfter != 5*time.Second {
			t.Errorf("Allow = %+v beside the trial, want it refused for a third of the rest", e)
		}
	})
}
