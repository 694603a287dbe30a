package turnstile_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/turnstile"
)

// A request waits for other requests of its own tenant only. Enter refuses a request after the maximum wait, and when
// the context ends; neither occupies a slot afterwards.
func TestTurnstile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := turnstile.New(2, 5*time.Second)
		enter := func(ctx context.Context, tenant string) func() {
			t.Helper()
			leave, err := s.Enter(ctx, tenant)
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		first, second, other := enter(t.Context(), "a"), enter(t.Context(), "a"), enter(t.Context(), "b")
		began := time.Now()
		if _, err := s.Enter(t.Context(), "a"); !errors.Is(err, turnstile.ErrFull) || time.Since(began) != 5*time.Second {
			t.Errorf("Enter = %v after %s", err, time.Since(began))
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := s.Enter(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("Enter = %v, want the error of the context", err)
		}
		time.AfterFunc(time.Second, first)
		third := enter(t.Context(), "a")
		for _, leave := range []func(){second, third, other} {
			leave()
		}
		for range 2 {
			defer enter(t.Context(), "a")()
		}
	})
}
