package bus

import (
	"sync"
	"time"
)

// formatsFor is the time for which the format of a process counts after its last
// heartbeat, unless the process announced that it leaves. A process that returns from a
// longer pause may find runs in a format that it cannot read, and leaves them to others.
const formatsFor = 10 * time.Second

// Formats tracks the formats that the processes of a deployment can read, from their latest heartbeats, and sets the
// format to write: the newest that all of these processes can read. Its methods may be called concurrently. Its calls
// of set never overlap, so one call of a method may make the call of set for another.
type Formats struct {
	newest int
	set    func(format int)

	mu      sync.Mutex
	seen    map[string]reader
	decided int  // the format to set next; 0 means none
	telling bool // one caller is in set
}

type reader struct {
	at       time.Time
	interval time.Duration
	format   int
}

// NewFormats returns Formats for a process that can read formats up to newest, such as
// state.Format. They call set with the format to write, such as state.Store.SetFormat.
func NewFormats(newest int, set func(format int)) *Formats {
	return &Formats{newest: newest, set: set, seen: map[string]reader{}}
}

// Hear records a heartbeat that arrived at now; a Format below 1 counts as 1. If the sender cannot read this process's
// newest format, and is new or could read another format before, Hear sets the format at once, as Decide does. If the
// sender leaves, Hear removes it and sets no format.
func (f *Formats) Hear(h Heartbeat, now time.Time) {
	defer f.tell()
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Leaving {
		delete(f.seen, h.Worker)
		return
	}
	before, ok := f.seen[h.Worker]
	r := reader{now, h.Interval, max(h.Format, 1)}
	f.seen[h.Worker] = r
	if r.format < f.newest && (!ok || before.format != r.format) {
		f.decided = f.readable(now)
	}
}

// Decide sets the format to write from now on: the newest that this process and all those whose last
// heartbeat is at most 10 s old can read. complete means that the caller has listened long enough to
// have seen every process; otherwise Decide sets no format unless some process cannot read the newest.
func (f *Formats) Decide(now time.Time, complete bool) {
	defer f.tell()
	f.mu.Lock()
	defer f.mu.Unlock()
	if all := f.readable(now); complete || all < f.newest {
		f.decided = all
	}
}

// Longest returns the longest Interval in the latest heartbeats. A process knows all others only when it has listened
// for that time in addition to the usual one.
func (f *Formats) Longest() (longest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.seen {
		longest = max(longest, r.interval)
	}
	return longest
}

// readable returns the newest format that this process and all those that it has seen recently can read; the caller
// holds f.mu.
func (f *Formats) readable(now time.Time) int {
	all := f.newest
	for name, r := range f.seen {
		if now.Sub(r.at) > formatsFor {
			delete(f.seen, name)
			continue
		}
		all = min(all, r.format)
	}
	return all
}

// tell calls set with each decision in sequence, so that the last call has the latest one.
func (f *Formats) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.telling {
		return // the caller in set sees the new decision
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
