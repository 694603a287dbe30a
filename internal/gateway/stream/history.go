package stream

import (
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// keptChanges is the maximum number of changes in memory for readers that are slow or resume, and keptBytes their
	// maximum size together, in bytes.
	keptChanges = 2048
	keptBytes   = 4 << 20

	// changesPart is the maximum number of changes that a reader takes at once.
	changesPart = 64
)

// change is one event of a feed. A change without a run is sent to all readers.
type change struct {
	n     int64
	at    time.Time
	run   state.State // only the fields that filters use
	frame []byte      // the encoded event without its id
	size  int
}

func newChange(c api.Change) change {
	k := change{at: c.At.Time, frame: sse.Append(nil, eventOf(c, ""))}
	k.size = len(k.frame)
	return k
}

// history has the latest changes of a feed. The lock of the feed protects it.
type history struct {
	kept  []change
	bytes int
	last  int64         // number of the last change
	grown chan struct{} // closed when the next change is added
}

// keep appends a change and wakes the readers. It drops the oldest changes beyond keptChanges and
// keptBytes.
func (h *history) keep(k change) {
	h.last++
	k.n = h.last
	h.kept = append(h.kept, k)
	h.bytes += k.size
	for len(h.kept) > keptChanges || h.bytes > keptBytes && len(h.kept) > 1 {
		h.bytes -= h.kept[0].size
		h.kept[0] = change{}
		h.kept = h.kept[1:]
	}
	close(h.grown)
	h.grown = make(chan struct{})
}

// after returns up to changesPart of the changes that follow number n, and a channel that is closed when the next
// change is added. If changes after n were dropped, or n is not a number of this feed, it returns the event
// stream.reset instead.
func (h *history) after(n int64) ([]change, <-chan struct{}) {
	first := h.last - int64(len(h.kept)) + 1
	if n+1 < first || n > h.last {
		now := time.Now()
		return []change{{n: h.last, at: now, frame: sse.Append(nil, eventOf(api.Change{Type: api.ChangesLost, At: state.At(now)}, ""))}}, h.grown
	}
	rest := h.kept[n+1-first:]
	return slices.Clone(rest[:min(len(rest), changesPart)]), h.grown
}
