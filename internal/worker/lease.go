package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// abortError is the cause with which an abort ends a turn's context.
type abortError struct{ abort state.Abort }

func (e *abortError) Error() string { return "run aborted: " + e.abort.Reason }

// errDeadline is the cause with which the run's deadline ends a turn's context.
var errDeadline = errors.New("run deadline has passed")

// lease is a claim in the hands of a turn.
type lease struct {
	state.Lease

	delivery bus.TurnDelivery
	tenant   string                  // of the run
	cancel   context.CancelCauseFunc // ends the turn
	ends     bool                    // its claim told of the abort: all that is left to do is to end the run
	calls    atomic.Int32            // of tools that must not be called twice, in flight

	// Guarded by leases.mu.
	renewed time.Time     // from when it lasts
	lasts   time.Duration // without a renewal
	renewAt time.Time
	asked   bool // a renewal is in flight, or the store has said that the lease is over
	eager   bool // claimed by the commit before, and not renewed yet
}

func newLease(l state.Lease, d bus.TurnDelivery, cancel context.CancelCauseFunc) *lease {
	return &lease{Lease: l, delivery: d, cancel: cancel}
}

// start says when the store was asked for the lease, and how long it lasts. It is renewed
// at a third of that.
func (l *lease) start(at time.Time, lasts time.Duration) {
	l.renewed, l.lasts, l.renewAt, l.eager = at, lasts, at.Add(lasts/3), false
}

// abort ends the turn if it is the one that a means, and does not know it already:
// interrupted over and over, it would never come to end its run.
func (l *lease) abort(a bus.Abort) {
	if a.AppliesTo(l.Version) && a.Tenant == l.tenant && !l.ends {
		l.cancel(&abortError{state.Abort{Reason: a.Reason, By: state.OnBus(a.Tenant)}})
	}
}

// interrupt ends the turn if the store reports an abort that the turn does not end already.
func (l *lease) interrupt(a *state.Abort) {
	if a != nil && !l.ends {
		l.cancel(&abortError{*a})
	}
}

// leases is the set of leases of a worker, and of the runs that it is about to
// claim: an abort that comes between a claim and the note of it must not be missed
// (I7). The zero value is ready to use.
type leases struct {
	mu       sync.Mutex
	runs     map[state.RunID]*lease
	claiming map[state.RunID]*claiming
}

type claiming struct {
	claims int
	aborts []bus.Abort
}

// expect registers a claim of a run; done ends it, whatever came of it, and may be
// called again.
func (h *leases) expect(run state.RunID) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claiming == nil {
		h.claiming = map[state.RunID]*claiming{}
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

// unlessAborted calls note if no abort has come since a claim of the run was expected, and
// lets none come meanwhile.
func (h *leases) unlessAborted(run state.RunID, note func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.claiming[run]; c == nil || len(c.aborts) == 0 {
		note()
	}
}

// add notes a lease that was claimed.
func (h *leases) add(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[state.RunID]*lease{}
	}
	if old := h.runs[l.Run]; old != nil {
		if l.eager && old.Version >= l.Version {
			// Its message came twice. An eager claim is as old as its commit, and has
			// given way to whoever has asked the store since.
			l.cancel(state.ErrFenced)
			return
		}
		// This worker was taken for dead, and has claimed its own run anew: the turn
		// that it had is fenced, and must start nothing any more.
		old.cancel(state.ErrFenced)
	}
	h.runs[l.Run] = l
	if c := h.claiming[l.Run]; c != nil {
		for _, a := range c.aborts {
			l.abort(a)
		}
	}
}

func (h *leases) remove(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[l.Run] == l {
		delete(h.runs, l.Run)
	}
}

// hearAbort interrupts the turn that is meant, if this worker holds it.
func (w *Worker) hearAbort(a bus.Abort) {
	w.leases.mu.Lock()
	defer w.leases.mu.Unlock()
	w.eager.forget(a.Run) // the store is asked, and tells of the abort
	if c := w.leases.claiming[a.Run]; c != nil {
		c.aborts = append(c.aborts, a)
	}
	if l := w.leases.runs[a.Run]; l != nil {
		l.abort(a)
	}
}

// due returns the leases that are to be renewed now. Each is to be asked for, and
// answered then.
func (h *leases) due() []*lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	var due []*lease
	for _, l := range h.runs {
		if !l.asked && !now.Before(l.renewAt) {
			l.asked = true
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *lease) int { return cmp.Compare(a.Run, b.Run) })
	return due
}

// age is how long ago the store was asked for a lease with success.
func (h *leases) age(l *lease) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(l.renewed)
}

func (h *leases) renewed(l *lease, at time.Time, lasts time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.start(at, lasts)
}

func (h *leases) answered(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.asked = false
}

// term returns how long a lease lasts without a renewal, and until when its turn may go
// on: effects of two workers at once are what the margin prevents.
func (h *leases) term(l *lease) (lasts time.Duration, safe time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.lasts, l.renewed.Add(l.lasts * 4 / 5)
}

// has reports whether the turn of a lease is in flight.
func (h *leases) has(l *lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[l.Run] == l
}

// byLane counts the turns in flight by the lane of their messages.
func (h *leases) byLane() map[state.Priority]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	lanes := map[state.Priority]int{}
	for _, l := range h.runs {
		lanes[l.delivery.Turn().Priority]++
	}
	return lanes
}

// renewLook is how often leases are looked at that have to be renewed.
const renewLook = 100 * time.Millisecond

// renewLeases renews leases until ctx ends. One goroutine serves all turns: a turn that
// waits costs its own stack and no timer. A renewal without an answer holds up no other.
func (w *Worker) renewLeases(ctx context.Context) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for pause(ctx, min(w.cfg.LeaseDuration/12, renewLook)) {
		for _, l := range w.leases.due() {
			asked.Go(func() { w.renew(ctx, l) })
		}
	}
}

// errOver says that a lease is.
var errOver = errors.New("the lease is over")

// fence ends a turn whose lease is over, or may be. Its calls that must not be made twice may
// return first, if they do so soon: their answers may be here already, unread since this
// process was paused, and no other worker can get them. The turn starts nothing more: before
// the next step it asks the store.
func (w *Worker) fence(l *lease) {
	if l.calls.Load() == 0 || w.cfg.LateResults <= 0 {
		l.cancel(state.ErrFenced)
		return
	}
	time.AfterFunc(w.cfg.LateResults, func() { l.cancel(state.ErrFenced) })
}

// renew asks for a lease until the store has answered, the turn must end or has ended.
func (w *Worker) renew(ctx context.Context, l *lease) {
	over := false
	defer func() {
		if !over {
			w.leases.answered(l)
		}
	}()
	lasts, safe := w.leases.term(l)
	for w.leases.has(l) {
		// Counted from before the call: the server's lease starts later, never earlier.
		asked := time.Now()
		patience := lasts / 6
		if left := safe.Sub(asked); left > 0 { // else this process slept, and the store may say that nobody minded
			patience = min(patience, left)
		}
		err := w.askFor(ctx, l, asked, patience)
		if over = errors.Is(err, errOver); err == nil || over {
			return
		}
		w.log.Warn().Err(err).Str("run_id", string(l.Run)).Str("hint", "is the store reachable? it is asked again").Msg("lease not renewed")
		if !pause(ctx, min(w.cfg.SweepInterval, time.Until(safe))) {
			return
		}
		// Without proof of the lease the turn must end before another worker may begin.
		if !time.Now().Before(safe) {
			w.fence(l)
			return
		}
	}
}

// askFor renews a lease, and tells its turn what the store has said, unless it has not.
func (w *Worker) askFor(ctx context.Context, l *lease, asked time.Time, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	abort, err := w.store.Renew(ctx, l.Lease, w.cfg.LeaseDuration, w.cfg.RedeliveryDelay)
	if leaseOver(err) {
		w.fence(l)
		return errOver
	}
	if err != nil {
		return err
	}
	w.leases.renewed(l, asked, w.cfg.LeaseDuration)
	w.check(l.delivery.InProgress(), "in progress")
	l.interrupt(abort)
	return nil
}
