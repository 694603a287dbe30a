package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// abortError is the cause with which an abort ends a turn's context.
type abortError struct{ reason string }

func (e *abortError) Error() string { return "run aborted: " + e.reason }

// errDeadline is the cause with which the run's deadline ends a turn's context.
var errDeadline = errors.New("run deadline has passed")

// lease is a claim in the hands of a turn.
type lease struct {
	state.Lease

	delivery bus.TurnDelivery
	cancel   context.CancelCauseFunc
	renewed  time.Time // guarded by held.mu
}

// held is the set of leases of a worker.
type held struct {
	mu   sync.Mutex
	runs map[state.RunID]*lease
}

func (h *held) add(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[state.RunID]*lease{}
	}
	l.renewed = time.Now()
	h.runs[l.Run] = l
}

func (h *held) remove(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[l.Run] == l {
		delete(h.runs, l.Run)
	}
}

// abort interrupts the turn of a run, if this worker holds it.
func (h *held) abort(run state.RunID, reason string) {
	h.mu.Lock()
	l := h.runs[run]
	h.mu.Unlock()
	if l != nil {
		l.cancel(&abortError{reason})
	}
}

// due returns the leases that were not renewed for d.
func (h *held) due(d time.Duration) []*lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []*lease
	for _, l := range h.runs {
		if time.Since(l.renewed) >= d {
			due = append(due, l)
		}
	}
	return due
}

func (h *held) age(l *lease) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(l.renewed)
}

func (h *held) renew(l *lease, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.renewed = at
}

// keepLeases renews leases until ctx ends. One goroutine serves all turns: a
// parked turn costs its own stack and no timer.
func (w *Worker) keepLeases(ctx context.Context) {
	every := w.cfg.Lease / 3
	for pause(ctx, min(every/4, time.Second)) {
		var wg sync.WaitGroup
		for _, l := range w.held.due(every) {
			wg.Go(func() { w.keep(ctx, l) })
		}
		wg.Wait()
	}
}

func (w *Worker) keep(ctx context.Context, l *lease) {
	// Counted from before the call: the server's lease starts later, never earlier.
	asked := time.Now()
	callCtx, cancel := context.WithTimeout(ctx, w.cfg.Lease/5)
	defer cancel()
	abort, err := w.store.Renew(callCtx, l.Lease, w.cfg.Lease, w.cfg.Grace)
	switch {
	case errors.Is(err, state.ErrFenced):
		l.cancel(state.ErrFenced)
	case err != nil:
		// Without proof of the lease the turn must end before another worker may
		// begin: effects of both at once are what the margin prevents.
		if w.held.age(l) > w.cfg.Lease*4/5 {
			l.cancel(state.ErrFenced)
		}
		w.log.Warn().Err(err).Str("run_id", string(l.Run)).Msg("renew lease")
	default:
		w.held.renew(l, asked)
		w.check(l.delivery.InProgress(), "in progress")
		if abort != nil {
			l.cancel(&abortError{abort.Reason})
		}
	}
}
