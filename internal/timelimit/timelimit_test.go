package timelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/timelimit"
)

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls timelimit.Calls
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		if v, ok := timelimit.Call(ctx, &calls, time.Second, func() int { return 1 }); v != 1 || !ok {
			t.Errorf("a call that returns: %d, %t", v, ok)
		}
		late := func() int { <-ctx.Done(); time.Sleep(time.Second / 2); return 2 }
		if v, ok := timelimit.Call(ctx, &calls, time.Second, late); v != 2 || !ok {
			t.Errorf("a call that returns within the patience: %d, %t", v, ok)
		}
		began, stuck := time.Now(), make(chan struct{})
		if v, ok := timelimit.Call(ctx, &calls, time.Second, func() int { <-stuck; return 3 }); v != 0 || ok {
			t.Errorf("a call that ignores its context: %d, %t", v, ok)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it was abandoned after %s", took)
		}
		if n := calls.Abandoned(); n != 1 {
			t.Errorf("%d calls are abandoned", n)
		}
		close(stuck)
		synctest.Wait()
		if n := calls.Abandoned(); n != 0 {
			t.Errorf("%d calls are abandoned after all have returned", n)
		}
	})
}

func TestPanic(t *testing.T) {
	t.Parallel()
	defer func() {
		p, _ := recover().(error)
		if failed, ok := errors.AsType[*timelimit.Panic](p); !ok || failed.Value != "boom" || len(failed.Stack) == 0 {
			t.Errorf("the caller got %v", p)
		}
	}()
	timelimit.Call(t.Context(), nil, 0, func() int { panic("boom") })
}
