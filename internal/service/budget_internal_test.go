package service

import (
	"testing"
	"testing/synctest"
	"time"
)

// A call that began before an earlier one has ended, and ends after it, gives the request no time back.
func TestBudgetNeverGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := WithBudget(t.Context(), 10*time.Second, false)
		_, long := spend(ctx)
		time.Sleep(7 * time.Second)
		_, short := spend(ctx)
		time.Sleep(time.Second)
		long()
		time.Sleep(time.Second)
		short()
		rest, done := spend(ctx)
		defer done()
		end, limited := rest.Deadline()
		if left := time.Until(end); !limited || left > 2*time.Second {
			t.Errorf("%s are left of 10s after a call of 8s", left)
		}
	})
}
