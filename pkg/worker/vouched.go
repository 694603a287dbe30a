package worker

import (
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// vouched is what this worker knows to be on the bus although no message says so:
// turns that it has published together with the events of the turn before. Whoever
// takes such a turn announces those events once more, unless it is the same worker.
// The zero value is ready to use.
type vouched struct {
	mu    sync.Mutex
	known map[state.RunID]voucher
}

type voucher struct {
	version   int64 // of the turn that was published
	announced int64 // entries that were announced by then
}

// maxVouchers bounds what is remembered. What is forgotten is announced twice, and the
// bus drops the second.
const maxVouchers = 1024

func (v *vouched) note(run state.RunID, version, announced int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || len(v.known) >= maxVouchers {
		v.known = map[state.RunID]voucher{}
	}
	v.known[run] = voucher{version, announced}
}

// take returns how many entries of a run are known to be announced at the beginning of
// a turn, and forgets it; 0 if nothing is known.
func (v *vouched) take(run state.RunID, version int64) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.known[run]
	if known.version != version {
		return 0
	}
	delete(v.known, run)
	return known.announced
}
