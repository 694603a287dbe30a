package upkeep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var periods = upkeep.Periods{
	Lease: 24 * time.Second, RedeliveryDelay: 5 * time.Second, Sweep: time.Second, Heartbeat: 300 * time.Millisecond, LateResults: 3 * time.Second,
}

// renewer answers renewals with err.
type renewer struct {
	mu       sync.Mutex
	err      error
	renewals int
	released []state.RunID
}

func (r *renewer) Renew(context.Context, state.Lease, time.Duration, time.Duration) (*state.Abort, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewals++
	return nil, r.err
}

func (r *renewer) Release(_ context.Context, l state.Lease, _ time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = append(r.released, l.Run)
	return nil
}

func (r *renewer) answer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *renewer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewals
}

type message struct{}

func (message) Turn() bus.Turn    { return bus.Turn{Run: "r1", Version: 3, Tenant: "acme"} }
func (message) InProgress() error { return nil }

// held adds the lease of a turn at version 3 of the run r1, and returns the turn's context.
func held(t *testing.T, leases *upkeep.Leases) (*upkeep.Lease, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	l := upkeep.NewLease(state.Lease{Run: "r1", Version: 3, Token: "t"}, "acme", message{}, false, cancel)
	leases.Add(l, time.Now(), false)
	return l, ctx
}

// A turn under an eager claim is renewed early if it has written nothing yet. After a write, no other worker
// can take it over, so it is renewed only well before the lease ends.
func TestEagerLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	for wrote, want := range map[bool]int{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			store := &renewer{}
			leases := upkeep.NewLeases(store, periods, true, slog.New(slog.DiscardHandler))
			ctx, stop := context.WithCancel(t.Context())
			go leases.Run(ctx)
			claimed := time.Now()
			time.Sleep(1900 * time.Millisecond) // the message is queued
			l := upkeep.NewLease(state.Lease{Run: "r1", Version: 3, Token: "t"}, "acme", message{}, false, func(error) {})
			leases.Add(l, claimed, true)
			if wrote {
				l.Wrote()
			}
			time.Sleep(250 * time.Millisecond)
			if n := store.count(); n != 0 {
				t.Errorf("wrote %t: %d renewals after 250 ms, want 0", wrote, n)
			}
			time.Sleep(250 * time.Millisecond)
			if n := store.count(); n != want {
				t.Errorf("wrote %t: %d renewals after 500 ms, want %d", wrote, n, want)
			}
			time.Sleep(time.Until(claimed.Add(3200 * time.Millisecond)))
			if n := store.count(); n != 1 {
				t.Errorf("wrote %t: %d renewals 3.2 s after the claim, want 1", wrote, n)
			}
			stop()
			synctest.Wait()
		})
	}
}

// A worker remembers the eager claims of all runs that queue for its slots, however many, for two fifths of
// their leases.
func TestEagerClaimsAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leases := upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
		const each = 3000
		note := func(version int64) {
			for i := range each {
				leases.NoteEager(upkeep.EagerClaim{Lease: state.Lease{Run: state.RunID(fmt.Sprint("r", i)), Version: version, Token: "t"}, Sent: time.Now()})
			}
		}
		taken := func(version int64) (n int) {
			for i := range each {
				if _, ok := leases.TakeEager(bus.Turn{Run: state.RunID(fmt.Sprint("r", i)), Version: version}); ok {
					n++
				}
			}
			return n
		}
		for version := range int64(5) {
			note(version + 1)
			time.Sleep(1900 * time.Millisecond)
			if n := taken(version + 1); n != each {
				t.Errorf("%d of %d claims are remembered after 1.9 s", n, each)
			}
		}
		note(6)
		time.Sleep(2 * time.Second)
		if n := taken(6); n != 0 {
			t.Errorf("%d claims are remembered after 2 s, want 0", n)
		}
	})
}

// An abort between the claim and Add ends the turn, and no later turn.
func TestAbortWhileClaiming(t *testing.T) {
	t.Parallel()
	leases := upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
	done := leases.Expect("r1")
	leases.HearAbort(bus.Abort{Run: "r1", Tenant: "acme", Reason: "enough"})
	l, ctx := held(t, leases)
	done()
	var abort *upkeep.AbortError
	if cause := context.Cause(ctx); !errors.As(cause, &abort) || abort.Abort.Reason != "enough" {
		t.Errorf("the turn ended with %v, want the abort", cause)
	}
	leases.End(l)
	if _, ctx = held(t, leases); ctx.Err() != nil {
		t.Errorf("the next turn ended with %v", context.Cause(ctx))
	}
	leases.HearAbort(bus.Abort{Run: "r1", Tenant: "other"})
	if ctx.Err() != nil {
		t.Error("another tenant's abort ended the turn")
	}
}

// A worker that was found dead claims its own run again. The end of the old turn leaves the new one its lease, so an
// abort still reaches the new turn.
func TestEndOfAnOldTurn(t *testing.T) {
	t.Parallel()
	leases := upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
	old, _ := held(t, leases)
	next, ctx := held(t, leases)
	leases.End(old)
	if ctx.Err() != nil {
		t.Fatalf("the end of the old turn ended the new one with %v", context.Cause(ctx))
	}
	leases.HearAbort(bus.Abort{Run: "r1", Tenant: "acme"})
	if _, aborted := errors.AsType[*upkeep.AbortError](context.Cause(ctx)); !aborted {
		t.Errorf("after the abort the new turn has the cause %v, want the abort", context.Cause(ctx))
	}
	leases.End(next)
}

// The turn of an aborted run is claimed at the store, which reports the abort, whether the abort arrives after the
// commit that claimed it or before.
func TestAbortDropsAnEagerClaim(t *testing.T) {
	t.Parallel()
	claim := upkeep.EagerClaim{Lease: state.Lease{Run: "r1", Version: 3, Token: "t"}, Sent: time.Now()}
	for name, test := range map[string]struct {
		before, after state.RunID // aborted
		kept          bool
	}{
		"no abort":          {"", "", true},
		"of another run":    {"r2", "r2", true},
		"before the commit": {"r1", "", false},
		"after the commit":  {"", "r1", false},
	} {
		leases := upkeep.NewLeases(&renewer{}, periods, true, slog.New(slog.DiscardHandler))
		done := leases.Expect("r1")
		leases.HearAbort(bus.Abort{Run: test.before, Tenant: "acme"})
		leases.NoteEager(claim)
		done()
		leases.HearAbort(bus.Abort{Run: test.after, Tenant: "acme"})
		if _, kept := leases.TakeEager(bus.Turn{Run: "r1", Version: 3}); kept != test.kept {
			t.Errorf("%s: the claim is kept: %t, want %t", name, kept, test.kept)
		}
	}
}

// A lease is renewed until the store reports that it has ended. While the store does not answer, the turn
// continues for four fifths of the term.
func TestRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &renewer{}
		leases := upkeep.NewLeases(store, periods, true, slog.New(slog.DiscardHandler))
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go leases.Run(running)

		l, ctx := held(t, leases)
		time.Sleep(3 * periods.Lease)
		if n := store.count(); n < 8 || ctx.Err() != nil {
			t.Errorf("%d renewals in three terms, and the turn ended with %v", n, context.Cause(ctx))
		}
		store.answer(errors.New("no answer"))
		time.Sleep(periods.Lease / 3)
		if ctx.Err() != nil {
			t.Errorf("the turn ended with %v although its lease was in force", context.Cause(ctx))
		}
		time.Sleep(periods.Lease * 4 / 5)
		if !errors.Is(context.Cause(ctx), state.ErrFenced) {
			t.Errorf("without an answer of the store the turn ended with %v, want %v", context.Cause(ctx), state.ErrFenced)
		}
		leases.End(l)

		store.answer(state.ErrFenced)
		l, ctx = held(t, leases)
		l.Calls.Add(1)
		time.Sleep(periods.Lease/3 + time.Second)
		if ctx.Err() != nil {
			t.Error("the turn ended at once although a non-repeatable call was in flight")
		}
		time.Sleep(periods.LateResults)
		if !errors.Is(context.Cause(ctx), state.ErrFenced) {
			t.Errorf("after LateResults the turn ended with %v, want %v", context.Cause(ctx), state.ErrFenced)
		}
		leases.End(l)
	})
}

// silent is a store that does not answer, and that notes requests after the worker has stopped.
type silent struct {
	renewer

	running context.Context
	after   int
}

func (s *silent) Renew(context.Context, state.Lease, time.Duration, time.Duration) (*state.Abort, error) {
	if s.running.Err() == nil {
		return nil, errors.New("no answer")
	}
	s.after++
	return nil, state.ErrFenced // else an endless retry would hang the test
}

// A worker that stops no longer retries renewals, and does not end their turns.
func TestStopEndsRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, stop := context.WithCancel(t.Context())
		store := &silent{running: running}
		leases := upkeep.NewLeases(store, periods, true, slog.New(slog.DiscardHandler))
		done := make(chan struct{})
		go func() { defer close(done); leases.Run(running) }()
		l, ctx := held(t, leases)
		time.Sleep(periods.Lease/3 + periods.Sweep/2 + time.Millisecond) // not when the leases are looked at; a retry is due later
		stop()
		<-done
		if store.after > 0 || ctx.Err() != nil {
			t.Errorf("%d requests after the stop, and the turn ended with %v", store.after, context.Cause(ctx))
		}
		leases.End(l)
	})
}

// A worker uses an eager claim once, while it is recent, and releases the rest when it stops.
func TestEagerClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &renewer{}
		leases := upkeep.NewLeases(store, periods, true, slog.New(slog.DiscardHandler))
		if leases.ClaimsEagerly() {
			t.Error("the worker claims eagerly before it has seen the others")
		}
		leases.AllowEager(true)
		if !leases.ClaimsEagerly() {
			t.Error("the worker does not claim eagerly")
		}
		next := state.Lease{Run: "r1", Version: 3, Token: "t"}
		leases.NoteEager(upkeep.EagerClaim{Lease: next, Sent: time.Now()})
		if _, ok := leases.TakeEager(bus.Turn{Run: "r1", Version: 2}); ok {
			t.Error("an eager claim was used for another turn")
		}
		if got, ok := leases.TakeEager(bus.Turn{Run: "r1", Version: 3}); !ok || got.Lease != next {
			t.Errorf("the message of the turn got %+v, %v", got, ok)
		}
		if _, ok := leases.TakeEager(bus.Turn{Run: "r1", Version: 3}); ok {
			t.Error("an eager claim was used twice")
		}
		leases.NoteEager(upkeep.EagerClaim{Lease: next, Sent: time.Now()})
		time.Sleep(2 * time.Second)
		if _, ok := leases.TakeEager(bus.Turn{Run: "r1", Version: 3}); ok {
			t.Error("an eager claim was used after two seconds")
		}
		done := leases.Expect("r1")
		leases.HearAbort(bus.Abort{Run: "r1", Tenant: "acme"})
		leases.NoteEager(upkeep.EagerClaim{Lease: next, Sent: time.Now()})
		done()
		if _, ok := leases.TakeEager(bus.Turn{Run: "r1", Version: 3}); ok {
			t.Error("an eager claim was used although an abort had arrived")
		}
		leases.NoteEager(upkeep.EagerClaim{Lease: next, Sent: time.Now()})
		leases.ReleaseEager(t.Context(), time.Now().Add(-time.Second))
		if len(store.released) != 1 || store.released[0] != "r1" {
			t.Errorf("released %q, want r1", store.released)
		}
		leases.StopEager()
		leases.AllowEager(true)
		if leases.ClaimsEagerly() {
			t.Error("a stopping worker claims eagerly")
		}
	})
}
