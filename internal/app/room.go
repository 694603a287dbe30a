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
	// leastRoom and mostRoom bound the garbage that a process gathers before it is
	// collected, and mostHeap bounds it together with what the process holds. A third
	// of what it holds is room in any case.
	leastRoom = 16 << 20
	mostRoom  = 64 << 20
	mostHeap  = 160 << 20

	// soon is when a collection comes early after the one before, and rarely when it
	// comes late.
	soon   = time.Second
	rarely = 10 * time.Second

	// smallestHeap is what the runtime takes a smaller heap for, at 100 percent.
	smallestHeap = 4 << 20
)

// Room lets garbage gather until release is called: a process that holds little and
// allocates much would else collect it tens of times a second. The room grows while
// collections come soon after each other and shrinks when they are rare, so steady work
// has much and a burst leaves little behind. A third of what the process holds is room
// in any case. Whoever sets GOGC or GOMEMLIMIT knows better.
func Room() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	r := &garbage{room: leastRoom, last: time.Now()}
	r.allow()
	return func() {
		r.released.Store(true)
		debug.SetGCPercent(100) // as it is without GOGC
	}
}

// garbage is how much of it there may be, set anew after each collection.
type garbage struct {
	room     int64
	last     time.Time // when it was collected
	released atomic.Bool
}

// canary is held by nobody, and so goes with the next collection. The pointer keeps it
// out of the runtime's blocks of tiny objects, which go later.
type canary struct{ _ *byte }

// allow tells the runtime, now and after each collection.
func (g *garbage) allow() {
	if g.released.Load() {
		return
	}
	debug.SetGCPercent(percent(g.room, held()))
	runtime.AddCleanup(new(canary), func(g *garbage) {
		g.room = next(g.room, time.Since(g.last))
		g.last = time.Now()
		g.allow()
	}, g)
}

// next is the room after a collection that came so long after the one before.
func next(room int64, after time.Duration) int64 {
	switch {
	case after < soon:
		return min(room*3/2, mostRoom)
	case after > rarely:
		return max(room/2, leastRoom)
	default:
		return room
	}
}

// held is what the runtime measures garbage against: what was alive at the last
// collection, and stacks and variables.
func held() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(sample)
	n := int64(0)
	for _, s := range sample {
		n += int64(s.Value.Uint64()) //nolint:gosec // bytes of memory
	}
	return n
}

// percent is room as the runtime wants to hear it.
func percent(room, held int64) int {
	room = max(min(room, mostHeap-held), held/3)
	if held+room < smallestHeap*room/max(held, 1) {
		return int(100 * (held + room) / smallestHeap)
	}
	return int(100 * room / held)
}
