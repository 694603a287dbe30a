package natsbus

import (
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each stream has enough workers that wait for its messages, and each worker waits for about as many streams as any
// other. Few workers wait for all.
func TestListenersOfStreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ workers, streams, listeners int }{
		{1, 64, 1}, {16, 64, 16}, {17, 64, 16}, {200, 64, 16}, {1000, 64, 79}, {200, 1, 200}, {200, 5, 200}, {100, 7, 72},
	} {
		least, most := c.streams, 0
		of := make([]int, c.streams)
		for w := range c.workers {
			n := 0
			for s := range c.streams {
				if (place{index: w, workers: c.workers}).listens(s, c.streams) {
					of[s]++
					n++
				}
			}
			least, most = min(least, n), max(most, n)
		}
		for s, n := range of {
			if n != c.listeners {
				t.Errorf("%d workers: %d wait for stream %d of %d, want %d", c.workers, n, s, c.streams, c.listeners)
			}
		}
		if least < min(leastStreams, c.streams) || most > least+1 {
			t.Errorf("%d workers: they wait for %d to %d of %d streams", c.workers, least, most, c.streams)
		}
	}
}

// A place is one among the workers with free slots. A process that is no worker, or several, waits for all streams.
func TestPlaceOfAWorker(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fleet := func(except func(h *bus.Heartbeat), own ...string) place {
		var s slots
		for _, name := range own {
			s.sends(bus.Heartbeat{Worker: name, Slots: 10})
		}
		for i := range 40 {
			h := bus.Heartbeat{Worker: fmt.Sprintf("w%d", i), Slots: 10, Turns: map[state.Priority]int{state.Low: 9}}
			if i >= 20 {
				except(&h)
			}
			s.hear(h, now)
		}
		return s.where(now.Add(freeFor))
	}
	all := func(*bus.Heartbeat) {}
	for name, c := range map[string]struct {
		got     place
		workers int
	}{
		"one of many":   {fleet(all, "w1"), 40},
		"no worker":     {fleet(all), 1},
		"several":       {fleet(all, "w1", "w2"), 1},
		"full ones":     {fleet(func(h *bus.Heartbeat) { h.Turns[state.High] = 1 }, "w1"), 20},
		"stopping ones": {fleet(func(h *bus.Heartbeat) { h.Stopping = true }, "w1"), 20},
		"former ones":   {fleet(func(h *bus.Heartbeat) { h.Leaving = true }, "w1"), 20},
	} {
		if c.got.workers != c.workers || c.got.index >= c.workers {
			t.Errorf("%s: it is number %d of %d, want one of %d", name, c.got.index, c.got.workers, c.workers)
		}
	}
	var s slots
	s.sends(bus.Heartbeat{Worker: "w1"})
	s.hear(bus.Heartbeat{Worker: "w2", Slots: 10}, now)
	if got := s.where(now.Add(freeFor + 1)); got.workers != 1 {
		t.Errorf("a worker without heartbeats counts: %+v", got)
	}
}
