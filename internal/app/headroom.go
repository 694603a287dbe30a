package app

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// minHeadroom and maxHeadroom bound the garbage that a process gathers before a
	// collection, and maxHeap bounds that garbage plus the live memory. The headroom is
	// always at least a third of the live memory.
	minHeadroom = 16 << 20
	maxHeadroom = 64 << 20
	maxHeap     = 160 << 20

	// A collection within soon of the previous one is early; one after rarely is late.
	soon   = time.Second
	rarely = 10 * time.Second

	// returnInterval is the interval between checks for memory to return to the system. It
	// returns unused memory of minReturn bytes or more while the process allocates at most
	// quietAllocation bytes in that time.
	returnInterval  = 30 * time.Second
	minReturn       = 8 << 20
	quietAllocation = 64 << 20

	// smallestHeap is the minimum heap size that the runtime assumes, at 100 percent.
	smallestHeap = 4 << 20
)

// GCHeadroom delays garbage collections until release is called: a process with little live memory and many allocations
// would otherwise collect tens of times a second. The headroom is the garbage that may accumulate between two
// collections. It grows while collections follow each other quickly and shrinks when they are rare. So steady work gets
// much headroom, and an idle process returns its memory to the system after a burst. The headroom is at least a third
// of the live memory. GCHeadroom does nothing if GOGC or GOMEMLIMIT is set in the environment. release may be called
// once.
func GCHeadroom() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	c := &collector{headroom: minHeadroom, last: time.Now()}
	c.allow()
	stop := make(chan struct{})
	go returnMemory(stop)
	return func() {
		close(stop)
		c.released.Store(true)
		debug.SetGCPercent(100) // as it is without GOGC
	}
}

// returnMemory returns memory to the system after a burst, until stop is closed. The runtime
// keeps as much as its last goal, which stays while an idle process is not collected.
func returnMemory(stop <-chan struct{}) {
	tick := time.NewTicker(returnInterval)
	defer tick.Stop()
	_, before := unused()
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		bytes, allocated := unused()
		if returnable(bytes, allocated-before) {
			debug.FreeOSMemory()
		}
		before = allocated
	}
}

func returnable(unused, allocated uint64) bool {
	return unused >= minReturn && allocated <= quietAllocation
}

// unused returns the bytes that the process has of the system and does not use, garbage
// included, and those that it has allocated since its start.
func unused() (bytes, allocated uint64) {
	sample := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(sample)
	free, objects, live := sample[0].Value.Uint64(), sample[1].Value.Uint64(), sample[2].Value.Uint64()
	return free + objects - min(live, objects), sample[3].Value.Uint64()
}

// collector adjusts the headroom after each collection.
type collector struct {
	headroom int64
	last     time.Time // when it was collected
	released atomic.Bool
}

// canary has no references, so the next collection frees it. The pointer keeps it out of the
// runtime's blocks of tiny objects, which are freed later.
type canary struct{ _ *byte }

// allow tells the runtime, now and after each collection.
func (c *collector) allow() {
	if c.released.Load() {
		return
	}
	debug.SetGCPercent(percent(c.headroom, baseline()))
	runtime.AddCleanup(new(canary), func(c *collector) {
		c.headroom = next(c.headroom, time.Since(c.last))
		c.last = time.Now()
		c.allow()
	}, c)
}

// next returns the headroom after a collection; after is the time since the previous one.
func next(headroom int64, after time.Duration) int64 {
	switch {
	case after < soon:
		return min(headroom*3/2, maxHeadroom)
	case after > rarely:
		return max(headroom/2, minHeadroom)
	default:
		return headroom
	}
}

// baseline is the memory that the runtime compares garbage with: objects alive at the last
// collection, stacks and global variables.
func baseline() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(sample)
	n := int64(0)
	for _, s := range sample {
		n += int64(s.Value.Uint64()) //nolint:gosec // bytes of memory
	}
	return n
}

// percent converts the headroom to the percentage that the runtime expects.
func percent(headroom, baseline int64) int {
	headroom = max(min(headroom, maxHeap-baseline), baseline/3)
	if baseline+headroom < smallestHeap*headroom/max(baseline, 1) {
		return int(100 * (baseline + headroom) / smallestHeap)
	}
	return int(100 * headroom / baseline)
}
