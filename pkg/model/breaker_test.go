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
		call(down)
		call(&model.Error{Class: model.Cancelled})
		call(down)
		call(down)
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
		call(nil)
		call(down)
		call(down)
		call(nil)
	})
}
