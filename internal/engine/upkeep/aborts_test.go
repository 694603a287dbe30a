package upkeep_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// slowly is the time of a renewal. It does not end when the leases are looked at anyway.
const slowly = time.Second + 50*time.Millisecond

// slow is a store whose renewals take a while, and report abort.
type slow struct {
	renewer

	abort *state.Abort
	asked int
}

func (s *slow) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	s.asked++
	time.Sleep(slowly)
	_, err := s.renewer.Renew(ctx, l, lease, delay)
	return s.abort, err
}

// pinged is a message that counts the reports that its turn is in progress.
type pinged struct {
	message

	n int
}

func (p *pinged) InProgress() error { p.n++; return nil }

// A renewal reports an abort or an interrupt whose message was lost, and keeps the turn's message from being delivered
// again. A turn that ends its run because of an abort continues.
func TestRenewalReportsAborts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		abort  *state.Abort
		ending bool
		want   string // the cause of the end of the turn
	}{
		"nothing":           {nil, false, ""},
		"abort":             {&state.Abort{Reason: "enough"}, false, "run aborted: enough"},
		"interrupt":         {&state.Abort{Interrupt: true}, false, (&upkeep.InterruptError{}).Error()},
		"abort of an ended": {&state.Abort{Reason: "enough"}, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, d := &slow{abort: tt.abort}, &pinged{}
			leases := upkeep.NewLeases(store, periods, false, slog.New(slog.DiscardHandler))
			running, stop := context.WithCancel(t.Context())
			defer stop()
			go leases.Run(running)
			ctx, cancel := context.WithCancelCause(t.Context())
			l := upkeep.NewLease(state.Lease{Run: "r1", Version: 3, Token: "t"}, "acme", d, tt.ending, cancel)
			leases.Add(l, time.Now(), false)
			time.Sleep(periods.Lease/3 + 2*time.Second)
			synctest.Wait()
			got := ""
			if cause := context.Cause(ctx); cause != nil {
				got = cause.Error()
			}
			if got != tt.want || store.count() != 1 || d.n != 1 {
				t.Errorf("%s: the turn ended with %q after %d renewals and %d reports, want %q", name, got, store.count(), d.n, tt.want)
			}
			leases.End(l)
		})
	}
}

// An interrupt on the bus makes the worker ask the store at once, and once more if it arrives while the store is asked:
// that answer may be older. One of another tenant or for an earlier turn does not.
func TestInterruptsAskTheStore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		abort bus.Abort
		want  int
	}{
		"interrupt":      {bus.Abort{Run: "r1", Tenant: "acme", Interrupt: true}, 2},
		"another tenant": {bus.Abort{Run: "r1", Tenant: "evil", Interrupt: true}, 0},
		"another run":    {bus.Abort{Run: "r2", Tenant: "acme", Interrupt: true}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &slow{}
			leases := upkeep.NewLeases(store, periods, false, slog.New(slog.DiscardHandler))
			running, stop := context.WithCancel(t.Context())
			defer stop()
			go leases.Run(running)
			l, ctx := held(t, leases)
			leases.HearAbort(tt.abort)
			synctest.Wait()
			if store.asked != min(tt.want, 1) {
				t.Errorf("%s: the worker asks the store %d times at once", name, store.asked)
			}
			time.Sleep(slowly / 2) // the store is being asked
			leases.HearAbort(tt.abort)
			time.Sleep(slowly - slowly/2)
			synctest.Wait()
			if store.asked != tt.want {
				t.Errorf("%s: the worker asks the store %d times after its first answer, want %d", name, store.asked, tt.want)
			}
			time.Sleep(3 * slowly)
			if store.count() != tt.want || ctx.Err() != nil {
				t.Errorf("%s: %d renewals, want %d; the turn ended with %v", name, store.count(), tt.want, context.Cause(ctx))
			}
			leases.End(l)
		})
	}
}
