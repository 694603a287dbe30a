package worker

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxEager bounds the claims that are remembered: the messages of most turns come at
	// once, here or elsewhere. A turn that was forgotten is claimed like any.
	maxEager = 1024

	// eagerFor is how long a claim is remembered.
	eagerFor = time.Second

	// eagerRenewal is how long a turn goes on under an eager claim before the store is
	// told: most turns have written something by then, or wait for a model.
	eagerRenewal = 100 * time.Millisecond
)

// eagerClaims are the turns that this worker has claimed with the commit of the one before
// (state.Commit), and whose messages have yet to come. They save the claim of a run that
// comes back to the same worker; without them every turn is claimed when its message
// comes. The zero value makes none.
type eagerClaims struct {
	mu      sync.Mutex
	allowed bool // all other workers take over what this one has claimed eagerly
	stopped bool // the worker takes no more turns
	runs    map[state.RunID]eagerClaim
}

type eagerClaim struct {
	lease state.Lease
	since time.Time // no later than the commit
}

// startEager is start for a lease that was claimed eagerly. It is short, and gives way to
// any other claim until the store is told that somebody is at work.
func (l *lease) startEager(at time.Time, lasts time.Duration) {
	l.renewed, l.lasts, l.renewAt, l.eager = at, lasts, at.Add(eagerRenewal), true
}

// claimsEagerly reports whether the worker should claim the turn that follows one of its
// own: it takes turns and has a slot for this one, and whoever gets its message instead can
// take it over. An eager claim lasts for the redelivery delay, and is renewed well before.
func (w *Worker) claimsEagerly() bool {
	if w.cfg.Without.EagerClaims || w.cfg.RedeliveryDelay < 4*eagerFor || w.inFlight.Load() >= int64(w.cfg.Slots) {
		return false
	}
	w.eager.mu.Lock()
	defer w.eager.mu.Unlock()
	return w.eager.allowed && !w.eager.stopped
}

func (e *eagerClaims) allow(yes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed = yes
}

func (e *eagerClaims) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
}

// note remembers a claim.
func (e *eagerClaims) note(l state.Lease, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs == nil || len(e.runs) >= maxEager {
		e.runs = map[state.RunID]eagerClaim{}
	}
	e.runs[l.Run] = eagerClaim{l, since}
}

// forget makes the worker ask the store for the next turn of a run.
func (e *eagerClaims) forget(run state.RunID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, run)
}

// take returns and forgets the claim of the turn of a message, if there is one that is
// young enough.
func (e *eagerClaims) take(msg bus.Turn) (c eagerClaim, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c = e.runs[msg.Run]
	if c.lease.Version != msg.Version {
		return eagerClaim{}, false
	}
	delete(e.runs, msg.Run)
	return c, time.Since(c.since) < eagerFor
}

// left returns the claims that were made after since and whose messages have not come.
func (e *eagerClaims) left(since time.Time) []state.Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	var left []state.Lease
	for c := range maps.Values(e.runs) {
		if c.since.After(since) {
			left = append(left, c.lease)
		}
	}
	slices.SortFunc(left, func(a, b state.Lease) int { return strings.Compare(string(a.Run), string(b.Run)) })
	return left
}

// releaseEager gives up the turns that were claimed eagerly after since and have not come
// back to this worker, which stops: whoever takes one up is not to count an attempt. What
// is another's by now stays so.
func (w *Worker) releaseEager(ctx context.Context, since time.Time) {
	ctx, cancel := context.WithTimeout(ctx, eagerFor)
	defer cancel()
	for _, l := range w.eager.left(since) {
		w.check(w.store.Release(ctx, l, 0), "release")
	}
}
