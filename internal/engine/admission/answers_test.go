package admission_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
)

func reserve(t *testing.T, a *admission.Answers, tenant string, n int64) *admission.Reservation {
	t.Helper()
	r, err := a.Reserve(t.Context(), tenant, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// waits reports whether a reservation has to wait.
func waits(t *testing.T, a *admission.Answers, tenant string, n int64) bool {
	t.Helper()
	refused := errors.New("it waits")
	r, err := a.Reserve(t.Context(), tenant, n, func() error { return refused })
	r.Release()
	return errors.Is(err, refused)
}

func TestAnswersOfATenantLeaveSomeForOthers(t *testing.T) {
	t.Parallel()
	a := admission.NewAnswers(100)
	first := reserve(t, a, "noisy", 40)
	if !waits(t, a, "noisy", 20) {
		t.Error("a tenant got 60 of 100 bytes")
	}
	if waits(t, a, "quiet", 50) {
		t.Error("another tenant had to wait for 50 of 60 free bytes")
	}
	if waits(t, a, "noisy", 10) {
		t.Error("a tenant had to wait for 10 bytes more of its 50")
	}
	if first.Grow(20) || !first.Grow(10) || a.Bytes() != 50 {
		t.Errorf("%d bytes are reserved, want 50 after growing by 10 and not by 20", a.Bytes())
	}
	first.Shrink(5)
	first.Shrink(30)
	if a.Bytes() != 5 {
		t.Errorf("%d bytes are reserved, want 5", a.Bytes())
	}
	first.Release()
	first.Release()
	all := reserve(t, a, "large", 1000)
	if a.Bytes() != 100 {
		t.Errorf("%d bytes are reserved for one that wants 1000, want the whole budget", a.Bytes())
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := a.Reserve(ctx, "other", 1, func() error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait ended with %v", err)
	}
	all.Release()
	if a.Bytes() != 0 {
		t.Errorf("%d bytes are reserved at the end", a.Bytes())
	}
}

// Many turns share a budget of one answer: each gets it, one at a time.
func TestAnswersOneAtATime(t *testing.T) {
	t.Parallel()
	a := admission.NewAnswers(10)
	var all sync.WaitGroup
	for i := range 200 {
		tenant := string(rune('a' + i%3))
		all.Go(func() {
			r, err := a.Reserve(t.Context(), tenant, 10, nil)
			if err != nil || a.Bytes() != 10 {
				t.Errorf("%v, %d bytes are reserved, want 10", err, a.Bytes())
			}
			r.Release()
		})
	}
	all.Wait()
	if a.Bytes() != 0 {
		t.Errorf("%d bytes are reserved at the end", a.Bytes())
	}
}

// A reservation grows to what is free of its tenant's share, or of the budget if it is the tenant's only one.
func TestReservationGrows(t *testing.T) {
	t.Parallel()
	a := admission.NewAnswers(100)
	first, other := a.Empty("a"), a.Empty("b")
	for _, step := range []struct {
		of   *admission.Reservation
		to   int64
		want bool
		used int64
	}{{first, 60, true, 60}, {first, 50, true, 60}, {other, 50, false, 60}, {other, 40, true, 100}, {first, 61, false, 100}} {
		if got := step.of.GrowTo(step.to); got != step.want || a.Bytes() != step.used {
			t.Errorf("GrowTo(%d) = %t with %d bytes in use, want %t with %d", step.to, got, a.Bytes(), step.want, step.used)
		}
	}
	other.Release()
	if second := a.Empty("a"); second.GrowTo(1) {
		t.Error("a tenant has more than its share in two reservations")
	}
	if !first.GrowTo(1000) || a.Bytes() != 100 {
		t.Errorf("%d bytes are in use, want the whole budget", a.Bytes())
	}
}

// A caller that gives up returns what it was granted meanwhile, to those that wait. Those that waited behind a larger
// reservation need not wait for it any more.
func TestAnswersOfACallerThatGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, refused := admission.NewAnswers(100), errors.New("fenced")
		others := make(chan *admission.Reservation, 2)
		reserveLater := func(tenant string, n int64) {
			go func() {
				if r, err := a.Reserve(t.Context(), tenant, n, nil); err == nil {
					others <- r
				}
			}()
			synctest.Wait()
		}
		first := reserve(t, a, "a", 100)
		if _, err := a.Reserve(t.Context(), "b", 90, func() error {
			reserveLater("c", 50)
			first.Release()
			if a.Bytes() != 90 {
				t.Errorf("%d bytes are reserved, want the 90 of the caller that waited", a.Bytes())
			}
			return refused
		}); !errors.Is(err, refused) {
			t.Fatalf("Reserve = %v", err)
		}
		synctest.Wait()
		if len(others) != 1 || a.Bytes() != 50 || waits(t, a, "b", 50) {
			t.Errorf("%d bytes are reserved, want the 50 of the next", a.Bytes())
		}
		if _, err := a.Reserve(t.Context(), "d", 60, func() error { reserveLater("e", 20); return refused }); !errors.Is(err, refused) {
			t.Fatalf("Reserve = %v", err)
		}
		synctest.Wait()
		if len(others) != 2 || a.Bytes() != 70 || a.Waiting("e") != 0 {
			t.Errorf("%d bytes are reserved, want 70: the larger request has given up", a.Bytes())
		}
		for range 100 { // the grant and the end of the context may both be seen first
			ctx, cancel := context.WithCancel(t.Context())
			r, err := a.Reserve(ctx, "f", 40, func() error { (<-others).Release(); (<-others).Release(); cancel(); return nil })
			if err == nil {
				r.Release()
			}
			if a.Bytes() != 0 {
				t.Fatalf("%d bytes are reserved at the end (%v)", a.Bytes(), err)
			}
			others <- reserve(t, a, "c", 50)
			others <- reserve(t, a, "e", 20)
		}
	})
}
