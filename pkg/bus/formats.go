package bus

import (
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// formatsFor is for how long a process counts that was not heard any more and did not take
// its leave: longer than any pause from which one comes back.
const formatsFor = 10 * time.Second

// Formats follows what the processes of a deployment can read, as their heartbeats tell, and
// says what may be written: the newest format that all of them know. Gateways before format 2
// send no heartbeats, so as long as no gateway is heard there may be such ones.
type Formats struct {
	set func(format int)

	mu      sync.Mutex
	seen    map[string]reader
	decided int  // what is to be written, 0 if that has been told already
	telling bool // somebody tells it
}

type reader struct {
	at      time.Time
	format  int
	gateway bool
}

// NewFormats returns Formats that tell set what to write, such as state.Store.SetFormat.
func NewFormats(set func(format int)) *Formats {
	return &Formats{set: set, seen: map[string]reader{}}
}

// Hear takes a heartbeat in. A process that knows less than others counts at once.
func (f *Formats) Hear(h Heartbeat, now time.Time) {
	defer f.tell()
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Leaving {
		delete(f.seen, h.Worker)
		return
	}
	r := reader{now, max(h.Format, state.OldFormat), h.Gateway}
	if old, ok := f.seen[h.Worker]; r.format < state.Format && (!ok || old.format != r.format) {
		f.decided = r.format
	}
	f.seen[h.Worker] = r
}

// Decide says what to write from now on. Known says that the caller has listened for long
// enough to have heard everybody; who has not cannot say that all know a newer format.
func (f *Formats) Decide(now time.Time, known bool) {
	defer f.tell()
	f.mu.Lock()
	defer f.mu.Unlock()
	all, gateway := state.Format, false
	for name, r := range f.seen {
		if now.Sub(r.at) > formatsFor {
			delete(f.seen, name)
			continue
		}
		all, gateway = min(all, r.format), gateway || r.gateway
	}
	if known && gateway || all < state.Format {
		f.decided = all
	}
}

// tell says what was decided, one after the other: the last word is the latest decision's.
func (f *Formats) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.telling {
		return // whoever tells sees what is new
	}
	f.telling = true
	for f.decided != 0 {
		format := f.decided
		f.decided = 0
		f.mu.Unlock()
		f.set(format)
		f.mu.Lock()
	}
	f.telling = false
}
