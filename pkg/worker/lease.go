package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
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

	// Guarded by held.mu.
	renewed time.Time
	asked   bool // a renewal is under way
	kept    bool // by the commit before, and not renewed yet: it lasts for the grace
}

// abort ends the turn if it is the one that a means.
func (l *lease) abort(a bus.Abort) {
	if a.Means(l.Version) {
		l.cancel(&abortError{a.Reason})
	}
}

// held is the set of leases of a worker, and of the runs that it is about to
// claim: an abort that comes between a claim and the note of it must not be missed
// (I7).
type held struct {
	mu       sync.Mutex
	runs     map[state.RunID]*lease
	claiming map[state.RunID]*claiming
	kept     map[state.RunID]kept
	resumed  []*lease // that were kept, in the order of their turns; some are renewed or gone
}

type claiming struct {
	claims int
	aborts []bus.Abort
}

// expect announces a claim of a run; done ends it, whatever came of it, and may be
// called again.
func (h *held) expect(run state.RunID) (done func()) {
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

// add notes a lease that was claimed.
func (h *held) add(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[state.RunID]*lease{}
	}
	if !l.kept {
		l.renewed = time.Now()
	}
	if old := h.runs[l.Run]; old != nil {
		if l.kept && old.Version >= l.Version {
			// Its message came twice. What was kept is as old as its commit, and has
			// given way to whoever has asked the store since.
			l.cancel(state.ErrFenced)
			return
		}
		// This worker was taken for gone, and has claimed its own run anew: the turn
		// that it had is fenced, and must start nothing any more.
		old.cancel(state.ErrFenced)
	}
	h.runs[l.Run] = l
	if l.kept {
		h.resumed = append(h.resumed, l)
	}
	if c := h.claiming[l.Run]; c != nil {
		for _, a := range c.aborts {
			l.abort(a)
		}
	}
}

func (h *held) remove(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[l.Run] == l {
		delete(h.runs, l.Run)
	}
}

// abort interrupts the turn that is meant, if this worker holds it.
func (h *held) abort(a bus.Abort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.claiming[a.Run]; c != nil {
		c.aborts = append(c.aborts, a)
	}
	delete(h.kept, a.Run) // the store is asked, and tells of the abort
	if l := h.runs[a.Run]; l != nil {
		l.abort(a)
	}
}

// unconfirmed returns the leases of turns that have gone on for a moment with what was
// kept: the store does not know that anybody is at work. Each is to be asked for, and
// answered then.
func (h *held) unconfirmed() []*lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	var leases []*lease
	n := 0
	for _, l := range h.resumed {
		if l.kept && time.Since(l.renewed) < moment {
			break
		}
		n++
		if l.kept && !l.asked && h.runs[l.Run] == l {
			l.asked = true
			leases = append(leases, l)
		}
	}
	h.resumed = slices.Delete(h.resumed, 0, n)
	return leases
}

// due returns the leases that were not renewed for d, or since they were kept, to be
// asked for in the same way.
func (h *held) due(d time.Duration) []*lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []*lease
	for _, l := range h.runs {
		if age := time.Since(l.renewed); !l.asked && (age >= d || l.kept && age >= keptFor) {
			l.asked = true
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *lease) int { return strings.Compare(string(a.Run), string(b.Run)) })
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
	l.renewed, l.kept = at, false
}

func (h *held) answered(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.asked = false
}

// term returns how long a lease lasts without a renewal, and until when its turn may go
// on: effects of two workers at once are what the margin prevents.
func (h *held) term(l *lease, cfg *Config) (lasts time.Duration, safe time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lasts = cfg.Lease; l.kept {
		lasts = cfg.Grace
	}
	return lasts, l.renewed.Add(lasts * 4 / 5)
}

// has reports whether the turn of a lease is under way.
func (h *held) has(l *lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[l.Run] == l
}

// renewLeases renews leases until ctx ends. One goroutine serves all turns: a
// parked turn costs its own stack and no timer. A renewal without an answer holds up no
// other: what was kept has less time than that takes.
func (w *Worker) renewLeases(ctx context.Context) {
	every := w.cfg.Lease / 3
	look := min(every/4, time.Second)
	var looked time.Time
	var asked sync.WaitGroup
	defer asked.Wait()
	for pause(ctx, min(look, moment)) {
		leases := w.held.unconfirmed()
		if time.Since(looked) >= look {
			looked = time.Now()
			leases = append(leases, w.held.due(every)...)
		}
		for _, l := range leases {
			asked.Go(func() { w.renew(ctx, l) })
		}
	}
}

// renew asks for a lease until the store has answered, the turn must end or has ended.
func (w *Worker) renew(ctx context.Context, l *lease) {
	defer w.held.answered(l)
	lasts, safe := w.held.term(l, &w.cfg)
	for w.held.has(l) {
		// Counted from before the call: the server's lease starts later, never earlier.
		asked := time.Now()
		patience := lasts / 6
		if left := safe.Sub(asked); left > 0 { // else this process slept, and the store may say that nobody minded
			patience = min(patience, left)
		}
		err := w.askFor(ctx, l, asked, patience)
		if err == nil {
			return
		}
		w.log.Warn().Err(err).Str("run_id", string(l.Run)).Msg("renew lease")
		if !pause(ctx, min(w.cfg.SweepEvery, time.Until(safe))) {
			return
		}
		// Without proof of the lease the turn must end before another worker may begin.
		if !time.Now().Before(safe) {
			l.cancel(state.ErrFenced)
			return
		}
	}
}

// askFor renews a lease, and tells its turn what the store has said, unless it has not.
func (w *Worker) askFor(ctx context.Context, l *lease, asked time.Time, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	abort, err := w.store.Renew(ctx, l.Lease, w.cfg.Lease, w.cfg.Grace)
	if errors.Is(err, state.ErrFenced) {
		l.cancel(state.ErrFenced)
		return nil
	}
	if err != nil {
		return err
	}
	w.held.renew(l, asked)
	w.check(l.delivery.InProgress(), "in progress")
	if abort != nil {
		l.cancel(&abortError{abort.Reason})
	}
	return nil
}
