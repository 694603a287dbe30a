package stream

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Waits lets callers wait for runs. It is safe for concurrent use.
type Waits struct {
	runs    Runs
	store   Store
	bus     Bus
	restore *restore.Review
	budget  time.Duration
	quit    <-chan struct{}
	waiters waiters
}

// NewWaits returns the waits of a gateway. budget bounds one read of the store. All waits end when quit is closed.
func NewWaits(runs Runs, store Store, b Bus, review *restore.Review, budget time.Duration, quit <-chan struct{}) *Waits {
	return &Waits{runs: runs, store: store, bus: b, restore: review, budget: budget, quit: quit}
}

// Wait waits until a run has ended, waits for anything but its own child runs, or counts as lost: then done is true and
// st is the run. If timeout passes first or the gateway stops, done is false and st is the run as the store has it, or
// known if the store does not return it. The error wraps state.ErrNotFound if the run does not exist, or is the cause
// of ctx if that has ended. known is the run as the caller has read it.
func (w *Waits) Wait(ctx context.Context, known state.State, timeout time.Duration) (st state.State, done bool, err error) {
	if st, done := w.wait(ctx, known, timeout); done {
		return st, true, nil
	}
	if ctx.Err() != nil {
		return known, false, context.Cause(ctx)
	}
	st, err = w.store.Load(ctx, known.ID)
	if err != nil && !w.missing(err) {
		return known, false, nil
	}
	return st, false, err
}

// missing reports whether an error of the store says that a run does not exist. While the deployment waits for the
// decision about restored data, only a deletion says so.
func (w *Waits) missing(err error) bool {
	return errors.Is(err, state.ErrDeleted) || errors.Is(err, state.ErrNotFound) && !w.restore.Waiting()
}

// wait reads the store when the log of the run has grown, and rarely without a notice. ok reports that the run has
// ended, waits, or was lost.
func (w *Waits) wait(ctx context.Context, known state.State, timeout time.Duration) (_ state.State, ok bool) {
	id, missing := known.ID, 0
	ctx, cancel := context.WithTimeout(service.WithBudget(ctx, w.budget, true), timeout)
	defer cancel()
	grown := make(chan struct{}, 1)
	stop, err := w.bus.Watch(ctx, id, func(n bus.Notice) {
		if n.Live != nil {
			return // a live event: the run is in a turn
		}
		select {
		case grown <- struct{}{}:
		default:
		}
	})
	if err == nil {
		defer stop()
	}
	one, lost := w.waiters.join(), false
	defer func() { one.leave(ok && lost) }()
	for {
		st, err := w.store.Load(ctx, id)
		if err == nil && answerable(st) {
			// If the run has changed just now, its notice may still arrive.
			now, err := w.runs.Now(ctx)
			lost = lost && err == nil && now.Sub(st.UpdatedAt.Time) > lookAfter
			return st, true
		}
		if missing++; !w.missing(err) {
			missing = 0
		}
		if missing == lostLooks {
			st, err := w.runs.Lose(ctx, known)
			return st, err == nil
		}
		select {
		case <-grown:
			lost = false
			one.looks()
		case <-one.turn:
			lost = true
		case <-w.quit:
			return state.State{}, false
		case <-ctx.Done():
			return state.State{}, false
		}
	}
}

// answerable reports whether a run has ended, or waits for more than its own child runs.
func answerable(st state.State) bool {
	return st.Status.Terminal() || st.Status == state.Waiting && (st.Waiting == nil || st.Waiting.Reason != state.WaitingChild)
}
