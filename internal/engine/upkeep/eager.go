package upkeep

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
	// maxEager bounds the eager claims that a worker remembers: most messages arrive at once, here or
	// at another worker. A forgotten turn is claimed like any other.
	maxEager = 1024

	// eagerFor bounds how long a worker remembers an eager claim.
	eagerFor = time.Second

	// eagerRenewal is the time that a turn may run under an eager claim before its first renewal.
	// By then most turns have written to the store or wait for a model.
	eagerRenewal = 100 * time.Millisecond
)

// eagerClaims are the turns that this worker has claimed with the commit of the turn before
// (state.Commit), and whose messages have not arrived yet. They save the claim of a run whose next
// message comes to the same worker; without them the worker claims each turn when its message arrives.
type eagerClaims struct {
	never bool // eager claims are off

	mu      sync.Mutex
	allowed bool // all other workers can take over what this one has claimed eagerly
	stopped bool // the worker takes no more turns
	runs    map[state.RunID]eagerClaim
}

type eagerClaim struct {
	lease state.Lease
	since time.Time // no later than the commit
}

// startEager is start for a lease that was claimed eagerly.
func (l *Lease) startEager(at time.Time, lasts time.Duration) {
	l.renewed, l.lasts, l.renewAt, l.eager = at, lasts, at.Add(eagerRenewal), true
}

// ClaimsEagerly reports whether a commit should also claim the next turn. It is true only while
// every other worker could take that claim over. An eager claim lasts for the redelivery delay and
// is renewed well before.
func (h *Leases) ClaimsEagerly() bool {
	e := h.eager
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.never && e.allowed && !e.stopped
}

// AllowEager sets whether all other workers can take over this worker's eager claims. The initial
// value is false.
func (h *Leases) AllowEager(yes bool) { h.eager.allow(yes) }

// StopEager ends eager claims for good.
func (h *Leases) StopEager() { h.eager.stop() }

// NoteEager remembers a turn that a commit has claimed; at is the time at which the commit was
// sent. It ignores the turn if an abort has arrived since Expect.
func (h *Leases) NoteEager(l state.Lease, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.claiming[l.Run]; c == nil || len(c.aborts) == 0 {
		h.eager.note(l, at)
	}
}

// TakeEager removes and returns the eager claim for the turn of a message, and the time at which
// the worker sent that claim to the store. ok is false without a sufficiently recent claim.
func (h *Leases) TakeEager(msg bus.Turn) (l state.Lease, at time.Time, ok bool) {
	c, ok := h.eager.take(msg)
	return c.lease, c.since, ok
}

// ReleaseEager releases the turns that were claimed eagerly after a time and whose messages have not
// arrived, so that the worker that takes one up counts no attempt. A turn that another worker has
// claimed since stays as it is.
func (h *Leases) ReleaseEager(ctx context.Context, since time.Time) {
	ctx, cancel := context.WithTimeout(ctx, eagerFor)
	defer cancel()
	for _, l := range h.eager.left(since) {
		debug(h.log, h.store.Release(ctx, l, 0), "release")
	}
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
