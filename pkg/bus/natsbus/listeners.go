package natsbus

import (
	"bytes"
	"crypto/sha256"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// An open request costs the server time whenever any request for the same queue comes or expires: it then looks at all
// of them. So in a large fleet only some of the workers with free slots wait for messages of a stream of turns that has
// none. Once their heartbeats show that they are full, others do.
const (
	// leastListeners is the minimum number of workers that wait for the messages of a stream, if there are as many.
	leastListeners = 16

	// leastStreams is the minimum number of streams that a worker waits for, if there are as many: those of all workers
	// have about the same number of turns.
	leastStreams = 5

	// freeFor is the time that a worker counts as one with free slots after the heartbeat that shows them. It is longer
	// than the interval of heartbeats.
	freeFor = 8 * time.Second

	// listenerExpiry is the shortest time for which the server keeps a request open if several workers wait for the
	// messages of a stream. It may lose one without notice, but the others are renewed at other times.
	listenerExpiry = 16 * time.Second

	// reviewInterval is the interval at which a worker checks which streams to wait for.
	reviewInterval = 300 * time.Millisecond
)

// place is the position of this process among the workers with free slots.
type place struct {
	index, workers int
	until          time.Time
}

// before reports whether a worker is before another one in the order of places, which has nothing to do with names:
// workers with similar names may end together.
func before(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return bytes.Compare(x[:], y[:]) < 0
}

// listens reports whether the worker waits for the messages of one of several streams that have none.
func (p place) listens(stream, streams int) bool {
	listeners := max(leastListeners, (leastStreams*p.workers+streams-1)/streams)
	if listeners >= p.workers {
		return true
	}
	first := stream * p.workers / streams
	return (p.index-first+p.workers)%p.workers < listeners
}

// free reports whether the worker had a free slot at its last heartbeat and was not stopping, and that was not long
// ago.
func (w workerSlots) free(now time.Time) bool {
	return w.turns < w.slots && !w.stopping && now.Sub(w.at) <= freeFor
}

// sends records a heartbeat that this process sends.
func (s *slots) sends(h bus.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		s.own = map[string]bool{}
	}
	if !h.Gateway {
		s.own[h.Worker] = true
	}
}

// where returns the place of this process. A process that is no worker, or several, has the only one.
func (s *slots) where(now time.Time) place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.place.until) {
		return s.place
	}
	s.place = place{workers: 1, until: now.Add(reviewInterval)}
	if len(s.own) != 1 {
		return s.place
	}
	for own := range s.own {
		for name, w := range s.workers {
			if name == own || !w.free(now) {
				continue
			}
			s.place.workers++
			if before(name, own) {
				s.place.index++
			}
		}
	}
	return s.place
}
