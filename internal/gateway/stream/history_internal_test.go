package stream

import (
	"bytes"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A history keeps the latest changes, bounded in number and in size, and returns them in parts. A reader whose next
// change was dropped, or whose number is of no change, gets stream.reset.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := history{grown: make(chan struct{})}
	keep := func(n, size int) {
		for range n {
			h.keep(change{size: size})
		}
	}
	look := func(what string, n int64, want int, first int64) {
		t.Helper()
		got, _ := h.after(n)
		if len(got) != want || want > 0 && (got[0].n != first || len(got[0].frame) > 0) {
			t.Errorf("%s: after %d come %d changes, want %d from %d: %+v", what, n, len(got), want, first, got)
		}
	}
	reset := func(what string, n int64) {
		t.Helper()
		if got, _ := h.after(n); len(got) != 1 || got[0].n != h.last || !bytes.Contains(got[0].frame, []byte(api.ChangesLost)) {
			t.Errorf("%s: after %d comes %+v, want %s", what, n, got, api.ChangesLost)
		}
	}
	keep(1, 2*keptBytes)
	look("one that is too large", 0, 1, 1)
	keep(3, keptBytes/2)
	reset("large ones", 1)
	look("large ones", 2, 2, 3)
	keep(100, 1)
	reset("small ones", 2)
	look("small ones", 3, changesPart, 4)
	look("small ones", 100, 4, 101)
	look("small ones", 104, 0, 0)
	reset("a number of another feed", 105)
	keep(keptChanges, 1)
	reset("many", 103)
	look("many", 104, changesPart, 105)
	_, grown := h.after(h.last)
	h.keep(newChange(api.Change{Type: api.ChangesLost}))
	select {
	case <-grown:
	default:
		t.Error("a reader that waits is not woken")
	}
}
