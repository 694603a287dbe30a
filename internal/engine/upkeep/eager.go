package upkeep

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxEager bounds each of the two generations of eager claims that a worker remembers: about
	// 5 MB together. A forgotten turn is claimed like any other.
	maxEager = 8192

	// minEager is the minimum redelivery delay of a worker that claims eagerly.
	minEager = 4 * time.Second

	// eagerRenewal is the time that a turn may run under an eager claim before its first renewal.
	// By then most turns have written to the store, also at a worker with many turns at once, or wait
	// for a model.
	eagerRenewal = 400 * time.Millisecond
)

// eagerClaims are turns that this worker has claimed with the commit of the turn before (state.Commit), and whose
// messages have not arrived yet, as far as the worker remembers them. When the message of such a turn reaches this
// worker, the worker repeats the claim under the same token, and the store may answer from memory. A turn without an
// eager claim is claimed when its message arrives.
type eagerClaims struct {
	never bool          // eager claims are off
	lasts time.Duration // how long the worker remembers one: well below its lease

	mu      sync.Mutex
	allowed bool                       // all other workers can take over what this one has claimed eagerly
	stopped bool                       // the worker takes no more turns
	runs    map[state.RunID]EagerClaim // the generation that new claims join
	older   map[state.RunID]EagerClaim // the previous generation
	began   time.Time                  // when runs began
}

// EagerClaim is a turn that a commit has claimed.
type EagerClaim struct {
	state.Lease

	Sent time.Time // the time at which the commit was sent

	// FinalizedSeq is that of the claim before: if the store answers this claim from memory, it does not return
	// one.
	FinalizedSeq int64
}

// startEager is start for a lease that was claimed eagerly. Its turn begins now: the message may
// have been queued since at.
func (l *Lease) startEager(at time.Time, lasts time.Duration) {
	l.renewed, l.lasts, l.renewAt, l.eager = at, lasts, time.Now().Add(eagerRenewal), true
}

// ClaimsEagerly reports whether a commit should also claim the next turn: eager claims are on (see NewLeases), the
// worker does not stop, it has listened to heartbeats long enough to know the other workers, and each of them could
// take the claim over. An eager claim lasts for the redelivery delay; once its turn has begun, the worker tries to
// renew it well before that.
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

// NoteEager remembers a turn that a commit has claimed. It ignores the turn if an abort of the run has arrived
// since Expect.
func (h *Leases) NoteEager(claim EagerClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.claiming[claim.Run]; c == nil || len(c.aborts) == 0 {
		h.eager.note(claim)
	}
}

// TakeEager removes and returns the eager claim for the turn of a message. ok is false if it does not exist, or is too
// old to use.
func (h *Leases) TakeEager(msg bus.Turn) (c EagerClaim, ok bool) { return h.eager.take(msg) }

// ReleaseEager tries to release, when a worker stops, the eager claims that it made after since, remembers, and has
// received no message for, so that the next worker's claim does not count as another attempt. The caller calls
// StopEager first. ReleaseEager only logs failures, and gives up after two fifths of the redelivery delay. A turn that
// another worker has claimed in the meantime is unaffected.
func (h *Leases) ReleaseEager(ctx context.Context, since time.Time) {
	ctx, cancel := context.WithTimeout(ctx, h.eager.lasts)
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

// note remembers a claim. It drops the older generation once the newer one is full, or has lasted so
// long that all older claims are useless.
func (e *eagerClaims) note(c EagerClaim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs == nil || len(e.runs) >= maxEager || time.Since(e.began) >= e.lasts {
		e.older, e.runs, e.began = e.runs, map[state.RunID]EagerClaim{}, time.Now()
	}
	delete(e.older, c.Run)
	e.runs[c.Run] = c
}

// forget drops the eager claim of a run: the worker then claims its next turn at the store.
func (e *eagerClaims) forget(run state.RunID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, run)
	delete(e.older, run)
}

// take removes and returns the claim of the turn of a message. ok is false if it does not exist, or is too old.
func (e *eagerClaims) take(msg bus.Turn) (c EagerClaim, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, runs := range []map[state.RunID]EagerClaim{e.runs, e.older} {
		if c = runs[msg.Run]; c.Version == msg.Version {
			delete(runs, msg.Run)
			return c, time.Since(c.Sent) < e.lasts
		}
	}
	return EagerClaim{}, false
}

// left returns the claims that were made after since and whose messages have not arrived.
func (e *eagerClaims) left(since time.Time) []state.Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	var left []state.Lease
	for _, runs := range []map[state.RunID]EagerClaim{e.runs, e.older} {
		for _, c := range runs {
			if c.Sent.After(since) {
				left = append(left, c.Lease)
			}
		}
	}
	slices.SortFunc(left, func(a, b state.Lease) int { return strings.Compare(string(a.Run), string(b.Run)) })
	return left
}
