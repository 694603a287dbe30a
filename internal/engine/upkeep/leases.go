package upkeep

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// AbortError is the cancellation cause of a turn that an abort ends.
type AbortError struct{ Abort state.Abort }

func (e *AbortError) Error() string { return "run aborted: " + e.Abort.Reason }

// InterruptError is the cancellation cause of a turn that a message interrupts: the run continues.
type InterruptError struct{}

func (*InterruptError) Error() string { return "turn interrupted by a message" }

// Lease is a claim that a turn of this worker holds. Its exported methods and Calls are safe for concurrent
// use.
type Lease struct {
	state.Lease

	// Calls counts the calls in flight of tools that must not be called twice. If there are some when
	// Leases.Fence is called, the turn gets LateResults to receive their results.
	Calls atomic.Int32

	wrote atomic.Bool // the turn has written under the lease

	delivery delivery
	tenant   string                  // of the run
	cancel   context.CancelCauseFunc // ends the turn
	ending   bool                    // the claim reported the abort: the turn ends the run

	// Guarded by Leases.mu.
	renewed time.Time     // start of the current term
	lasts   time.Duration // the current term
	renewAt time.Time
	asked   bool // a renewal is in flight, or the store has reported the lease as over
	hinted  bool // the store may have an interrupt for the turn: a renewal shows it
	eager   bool // claimed by the commit before, and not renewed yet
}

// delivery is the message of a turn.
type delivery interface {
	Turn() bus.Turn
	InProgress() error
}

// NewLease returns the lease of a turn of a tenant; cancel ends the turn's context. ending reports
// that the turn already handles the run's abort, so that no abort interrupts it.
func NewLease(l state.Lease, tenant string, d delivery, ending bool, cancel context.CancelCauseFunc) *Lease {
	return &Lease{Lease: l, delivery: d, tenant: tenant, cancel: cancel, ending: ending}
}

// start begins a term at the time of the request to the store. The lease is renewed after a third of
// the term.
func (l *Lease) start(at time.Time, lasts time.Duration) {
	l.renewed, l.lasts, l.renewAt, l.eager = at, lasts, at.Add(lasts/3), false
}

// abort ends the turn if a applies to it. It does nothing if the turn is already ending its run because of an abort:
// if each further abort cancelled it, it might never end the run. For an interrupt it only sets hinted, so that the
// worker asks the store: the claim of the turn may already include the message that interrupts. The caller holds
// Leases.mu.
func (l *Lease) abort(a bus.Abort) {
	switch {
	case !a.AppliesTo(l.Version) || a.Tenant != l.tenant || l.ending:
	case a.Interrupt:
		l.hinted = true
	default:
		l.cancel(&AbortError{state.Abort{Reason: a.Reason, By: state.OnBus(a.Tenant)}})
	}
}

// Interrupt ends the turn because of an abort or an interrupt that the store has reported. It has no effect for
// nil, or if the turn already ends its run because of an abort.
func (l *Lease) Interrupt(a *state.Abort) {
	switch {
	case a == nil || l.ending:
	case a.Interrupt:
		l.cancel(&InterruptError{})
	default:
		l.cancel(&AbortError{*a})
	}
}

type leaseStore interface {
	Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error)
	Release(ctx context.Context, l state.Lease, delay time.Duration) error
}

// Leases are the leases of a worker, its eager claims, and the runs that it is about to claim: an abort that arrives
// between a claim and Add must not be missed. Leases is safe for concurrent use.
type Leases struct {
	store   leaseStore
	periods Periods
	log     *slog.Logger
	eager   *eagerClaims

	mu       sync.Mutex
	runs     map[state.RunID]*Lease
	claiming map[state.RunID]*claiming
	hints    chan struct{} // has an element if a lease is hinted
	begins   chan struct{} // closed when the worker begins to claim a run and has no lease; nil: nothing waits for it
}

// NewLeases returns an empty set. The worker never claims eagerly if eager is false, or if the redelivery delay
// is shorter than 4 s (minEager).
func NewLeases(store leaseStore, periods Periods, eager bool, log *slog.Logger) *Leases {
	return &Leases{
		store: store, periods: periods, log: log, runs: map[state.RunID]*Lease{}, claiming: map[state.RunID]*claiming{}, hints: make(chan struct{}, 1),
		eager: &eagerClaims{never: !eager || periods.RedeliveryDelay < minEager, lasts: periods.RedeliveryDelay * 2 / 5},
	}
}

type claiming struct {
	claims int
	aborts []bus.Abort
}

// Expect registers a claim of a run before the worker sends it to the store. The caller must call
// done after Add, or once the claim has failed; further calls have no effect.
func (h *Leases) Expect(run state.RunID) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begins != nil && len(h.runs)+len(h.claiming) == 0 {
		close(h.begins)
		h.begins = nil
	}
	c := h.claiming[run]
	if c == nil {
		c = &claiming{}
		h.claiming[run] = c
	}
	c.claims++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if c.claims--; c.claims == 0 {
			delete(h.claiming, run)
		}
	})
}

// Idle reports whether this worker has no lease and is not about to claim a run; begins is closed when it next is about
// to claim one while it has none. Eager claims do not count.
func (h *Leases) Idle() (idle bool, begins <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begins == nil {
		h.begins = make(chan struct{})
	}
	return len(h.runs)+len(h.claiming) == 0, h.begins
}

// Add adds a lease, and applies the aborts of the run that have arrived since Expect; at is the time at which the claim
// was sent to the store. An eager claim is short, and another worker may take it over until this worker's next write
// reaches the store. If another turn of the run is still in flight here, Add ends that one. But if the new lease is an
// eager claim of the same or an earlier version than the other turn's, Add ends the new turn, and does not add its
// lease.
func (h *Leases) Add(l *Lease, at time.Time, eager bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if eager {
		l.startEager(at, h.periods.RedeliveryDelay)
	} else {
		l.start(at, h.periods.Lease)
	}
	if old := h.runs[l.Run]; old != nil {
		if l.eager && old.Version >= l.Version {
			// The message was delivered twice. An eager claim is as old as its commit, and any later claim
			// replaces it.
			l.cancel(state.ErrFenced)
			return
		}
		// This worker was found dead and has claimed its own run again: the old turn is fenced.
		old.cancel(state.ErrFenced)
	}
	h.runs[l.Run] = l
	if c := h.claiming[l.Run]; c != nil {
		for _, a := range c.aborts {
			h.apply(a, l)
		}
	}
}

// apply applies an abort that has arrived on the bus; h.mu is held.
func (h *Leases) apply(a bus.Abort, l *Lease) {
	l.abort(a)
	if l.hinted {
		h.hint()
	}
}

// hint makes Run look for leases to renew at once.
func (h *Leases) hint() {
	select {
	case h.hints <- struct{}{}:
	default:
	}
}

// End removes a lease and ends the context of its turn.
func (h *Leases) End(l *Lease) {
	h.remove(l)
	l.cancel(nil)
}

func (h *Leases) remove(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[l.Run] == l {
		delete(h.runs, l.Run)
	}
}

// HearAbort applies an abort or an interrupt that has arrived on the bus to the turn of the run that this worker
// executes or is about to claim, and drops an eager claim of the run. An interrupt only makes the worker ask the
// store whether the turn was already claimed with the message.
func (h *Leases) HearAbort(a bus.Abort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.eager.forget(a.Run) // the worker asks the store, which reports the abort
	if c := h.claiming[a.Run]; c != nil {
		c.aborts = append(c.aborts, a)
	}
	if l := h.runs[a.Run]; l != nil {
		h.apply(a, l)
	}
}

// Wrote records that the store has kept a write under the lease: no other worker can take the lease over before
// it ends, even if it was claimed eagerly.
func (l *Lease) Wrote() { l.wrote.Store(true) }

// due returns the leases to renew now. The caller calls answered for each.
func (h *Leases) due() []*Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	var due []*Lease
	for _, l := range h.runs {
		if l.eager && l.wrote.Load() {
			l.eager, l.renewAt = false, l.renewed.Add(l.lasts*3/5)
		}
		if !l.asked && (l.hinted || !now.Before(l.renewAt)) {
			l.asked, l.hinted = true, false
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *Lease) int { return cmp.Compare(a.Run, b.Run) })
	return due
}

// Age returns the time since the request that last obtained or renewed a lease.
func (h *Leases) Age(l *Lease) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(l.renewed)
}

func (h *Leases) renewed(l *Lease, at time.Time, lasts time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.start(at, lasts)
}

func (h *Leases) answered(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.asked = false
	if l.hinted { // during the renewal
		h.hint()
	}
}

// term returns the length of a lease's current term, and the time until which its turn may continue without a renewal.
// That is before the end of the term, so that the turn can end before another worker begins.
func (h *Leases) term(l *Lease) (lasts time.Duration, safe time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.lasts, l.renewed.Add(l.lasts * 4 / 5)
}

// has reports whether the turn of a lease is in flight.
func (h *Leases) has(l *Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[l.Run] == l
}

// Lanes counts the turns in flight by the lane of their messages.
func (h *Leases) Lanes() map[state.Priority]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	lanes := map[state.Priority]int{}
	for _, l := range h.runs {
		lanes[l.delivery.Turn().Priority]++
	}
	return lanes
}

// renewLook is the longest interval between checks for leases to renew.
const renewLook = 100 * time.Millisecond

// Run renews leases until ctx ends, and returns when no renewal is in flight. One goroutine finds the leases
// of all turns that are due, so a waiting turn needs no timer. A renewal without an answer delays no other.
func (h *Leases) Run(ctx context.Context) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for pauseForHints(ctx, h.hints, min(h.periods.Lease/12, renewLook)) {
		for _, l := range h.due() {
			asked.Go(func() { h.renew(ctx, l) })
		}
	}
}

// pauseForHints waits until hints has an element, at most for d, and returns false if ctx has ended.
func pauseForHints(ctx context.Context, hints <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-hints:
	case <-t.C:
	}
	return true
}

// errOver reports that a lease has ended.
var errOver = errors.New("the lease has expired")

// Fence ends a turn whose lease has ended, or may have, and does not wait for the end. It ends the turn at once if no
// call is in flight that must not be repeated, or if LateResults is not positive. Otherwise it ends the turn after
// LateResults: results may have arrived unread while this process was paused, and no other worker can get them.
func (h *Leases) Fence(l *Lease) {
	if l.Calls.Load() == 0 || h.periods.LateResults <= 0 {
		l.cancel(state.ErrFenced)
		return
	}
	time.AfterFunc(h.periods.LateResults, func() { l.cancel(state.ErrFenced) })
}

// renew asks the store to renew a lease until it has answered, or the turn has ended or must end.
func (h *Leases) renew(ctx context.Context, l *Lease) {
	over := false
	defer func() {
		if !over {
			h.answered(l)
		}
	}()
	lasts, safe := h.term(l)
	for h.has(l) {
		// Counted from before the request: the lease in the store starts later, never earlier.
		asked := time.Now()
		patience := lasts / 6
		if left := safe.Sub(asked); left > 0 { // else this process was paused, and the store may still renew the lease
			patience = min(patience, left)
		}
		err := h.askFor(ctx, l, asked, patience)
		if over = errors.Is(err, errOver); err == nil || over {
			return
		}
		h.log.Warn("lease of a turn not renewed, the worker retries until the lease is about to end", "error", err, "run_id", l.Run, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
		if !clock.Pause(ctx, min(h.periods.Sweep, time.Until(safe))) {
			return
		}
		// Without proof of the lease the turn must end before another worker may begin.
		if !time.Now().Before(safe) {
			h.Fence(l)
			return
		}
	}
}

// askFor renews a lease, and passes the answer of the store to its turn.
func (h *Leases) askFor(ctx context.Context, l *Lease, asked time.Time, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	abort, err := h.store.Renew(ctx, l.Lease, h.periods.Lease, h.periods.RedeliveryDelay)
	if LeaseOver(err) {
		h.Fence(l)
		return errOver
	}
	if err != nil {
		return err
	}
	h.renewed(l, asked, h.periods.Lease)
	debug(h.log, l.delivery.InProgress(), "in progress")
	l.Interrupt(abort)
	return nil
}
