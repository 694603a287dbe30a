package service

import (
	"context"
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

// left returns how much of its budget a request has.
func left(t *testing.T, ctx context.Context) time.Duration {
	t.Helper()
	rest, done := spend(ctx)
	defer done()
	end, limited := rest.Deadline()
	if !limited {
		t.Fatal("the budget has no limit")
	}
	return time.Until(end)
}

// call makes a call of the store that takes some time.
func call(ctx context.Context, takes time.Duration) {
	_, done := spend(ctx)
	defer done()
	time.Sleep(takes) // the bubble's clock
}

// The calls of a request share its budget, and cannot take more than that. With each, every call has all of it,
// whatever the others take.
func TestBudgetAfterCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared, each := WithBudget(t.Context(), 10*time.Second, false), WithBudget(t.Context(), 10*time.Second, true)
		for n, want := range []time.Duration{10 * time.Second, 3 * time.Second, 0, 0} {
			if got := left(t, shared); got != want {
				t.Errorf("after %d calls of 7s %s are left of 10s, want %s", n, got, want)
			}
			if got := left(t, each); got != 10*time.Second {
				t.Errorf("after %d calls of 7s a call has %s, want 10s", n, got)
			}
			call(shared, 7*time.Second)
			call(each, 7*time.Second)
		}
	})
}

// Each of the calls that a response needs has the time that is left of the budget, and takes none of it.
func TestBudgetOfEachCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := WithBudget(t.Context(), 10*time.Second, false)
		call(ctx, 4*time.Second)
		response := eachCall(ctx)
		for range 3 {
			if has, rest := left(t, response), left(t, ctx); has != 6*time.Second || rest != has {
				t.Errorf("a call has %s and the request %s, want 6s", has, rest)
			}
			call(response, 5*time.Second)
		}
		if eachCall(t.Context()) != t.Context() {
			t.Error("calls without a request have a budget")
		}
	})
}
