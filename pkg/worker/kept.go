package worker

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// kept is a turn that this worker has claimed with the commit of the one before
// (state.Commit.Keep), and whose message has yet to come.
type kept struct {
	lease state.Lease
	since time.Time // no later than the commit
}

const (
	// maxKept bounds the turns that are remembered: the messages of most come at once,
	// here or elsewhere. A turn that was forgotten is claimed like any.
	maxKept = 1024

	// keptFor is how long a turn is remembered.
	keptFor = time.Second

	// moment is how long a turn goes on with what was kept before the store is told:
	// most turns have written something by then, or wait for a model.
	moment = 100 * time.Millisecond
)

// keeps reports whether the worker should keep the turn that follows one of its own:
// it takes turns and has room for this one, and whoever gets its message instead can take
// it over. The lease of a turn that was kept ends after Grace, and is renewed well before.
func (w *Worker) keeps() bool {
	return w.keeping.Load() && !w.stopping.Load() && w.taken.Load() < int64(w.cfg.Slots) && w.cfg.Grace >= 4*keptFor
}

// keep notes a turn that was kept, unless an abort came between its claim and this note
// (I7): the caller has announced the claim with expect.
func (h *held) keep(l state.Lease, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.claiming[l.Run]; c != nil && len(c.aborts) > 0 {
		return
	}
	if h.kept == nil || len(h.kept) >= maxKept {
		h.kept = map[state.RunID]kept{}
	}
	h.kept[l.Run] = kept{l, since}
}

// takeKept returns and forgets the turn of a message if this worker has kept it lately.
func (h *held) takeKept(msg bus.Turn) (k kept, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k = h.kept[msg.Run]
	if k.lease.Version != msg.Version {
		return kept{}, false
	}
	delete(h.kept, msg.Run)
	return k, time.Since(k.since) < keptFor
}

// handBack gives up the turns that were kept after since and have not come back to this
// worker, which stops: whoever takes one up is not to count an attempt. What is
// another's by now stays so.
func (w *Worker) handBack(ctx context.Context, since time.Time) {
	ctx, cancel := context.WithTimeout(ctx, keptFor)
	defer cancel()
	w.held.mu.Lock()
	left := slices.SortedFunc(maps.Values(w.held.kept), func(a, b kept) int { return strings.Compare(string(a.lease.Run), string(b.lease.Run)) })
	w.held.mu.Unlock()
	for _, k := range left {
		if k.since.After(since) {
			w.check(w.store.Release(ctx, k.lease), "release")
		}
	}
}
