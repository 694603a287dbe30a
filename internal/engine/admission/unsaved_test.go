package admission_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
)

// start starts calls and returns a channel that receives their result once they may be made.
func start(ctx context.Context, u *admission.Unsaved, calls int) <-chan *admission.Outcome {
	begun := make(chan *admission.Outcome, 1)
	go func() { begun <- u.Start(ctx, calls) }()
	synctest.Wait()
	return begun
}

// Instant calls start one after the other as outcomes reach the store, oldest first.
func TestUnsavedOutcomesAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := admission.NewUnsaved(3)
		one, two := u.Start(t.Context(), 1), u.Start(t.Context(), 2)
		one.Returned()
		two.Returned()
		big, small := start(t.Context(), u, 2), start(t.Context(), u, 1)
		time.Sleep(time.Hour)
		if len(big)+len(small) != 0 {
			t.Fatal("a call started although all outcomes are unsaved")
		}
		one.Saved()
		one.Saved()
		synctest.Wait()
		if len(big)+len(small) != 0 {
			t.Fatal("a call started before an older one")
		}
		two.Saved()
		synctest.Wait()
		if len(big) != 1 || len(small) != 1 {
			t.Fatal("a call waits although all outcomes are saved")
		}
	})
}

// While a slow call has no outcome yet, others start. Once it has, the outcome counts.
func TestSlowCallsDelayNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := admission.NewUnsaved(1)
		slow := u.Start(t.Context(), 1)
		next := start(t.Context(), u, 1)
		if len(next) != 0 {
			t.Fatal("a call started next to one that may return at once")
		}
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()
		if len(next) != 1 {
			t.Fatal("a call waits for a slow one")
		}
		(<-next).Saved()
		slow.Returned()
		next = start(t.Context(), u, 1)
		time.Sleep(time.Hour)
		if len(next) != 0 {
			t.Fatal("a call started although the outcome of the slow one is unsaved")
		}
		slow.Saved()
		synctest.Wait()
		if len(next) != 1 {
			t.Fatal("a call waits although all outcomes are saved")
		}
	})
}

// A set of calls above the limit starts alone. A turn that ends neither waits nor delays those behind it.
func TestUnsavedOfManyCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := admission.NewUnsaved(2)
		many := u.Start(t.Context(), 5)
		many.Returned()
		ctx, end := context.WithCancel(t.Context())
		ended, next := start(ctx, u, 5), start(t.Context(), u, 1)
		end()
		synctest.Wait()
		if len(ended) != 1 || len(next) != 0 {
			t.Fatalf("%d calls of an ended turn stopped waiting, want 1; %d of another turn, want 0", len(ended), len(next))
		}
		many.Saved()
		synctest.Wait()
		if len(next) != 1 {
			t.Fatal("a call waits although all outcomes are saved")
		}
		none := (*admission.Outcome)(nil)
		none.Returned()
		none.Saved()
	})
}

// Calls that waited behind those of a turn that ends start if the limit allows them.
func TestEndedTurnDelaysNoCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := admission.NewUnsaved(2)
		u.Start(t.Context(), 1).Returned()
		ctx, end := context.WithCancel(t.Context())
		ended, next := start(ctx, u, 2), start(t.Context(), u, 1)
		end()
		synctest.Wait()
		if len(ended) != 1 || len(next) != 1 {
			t.Errorf("%d calls of an ended turn stopped waiting, %d of another turn start; want 1 and 1", len(ended), len(next))
		}
	})
}
