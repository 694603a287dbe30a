package stream

import (
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// keptChanges is the number of changes in memory for readers that are slow or resume, and
	// keptBytes their size together.
	keptChanges = 2048
	keptBytes   = 4 << 20

	// changesPart is the number of changes that a reader takes at once.
	changesPart = 64
)

// change is one event of a feed. A change without a run is for all readers.
type change struct {
	n     int64
	at    time.Time
	run   state.State // the fields that filters use
	frame []byte      // without its id
	size  int
}

func newChange(c api.Change) change {
	k := change{at: c.At.Time, frame: sse.Append(nil, eventOf(c, ""))}
	k.size = len(k.frame)
	return k
}

// history has the latest changes of a feed, whose lock protects it.
type history struct {
	kept  []change
	bytes int
	last  int64         // number of the last change
	grown chan struct{} // closed when there is another
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

// after returns some of the changes that follow number n, and a channel that is closed when there are
// more. A reader that has missed changes gets the event stream.reset instead.
func (h *history) after(n int64) ([]change, <-chan struct{}) {
	first := h.last - int64(len(h.kept)) + 1
	if n+1 < first || n > h.last {
		now := time.Now()
		return []change{{n: h.last, at: now, frame: sse.Append(nil, eventOf(api.Change{Type: api.ChangesLost, At: state.At(now)}, ""))}}, h.grown
	}
	rest := h.kept[n+1-first:]
	return slices.Clone(rest[:min(len(rest), changesPart)]), h.grown
}
