package natsbus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// The slots of each worker count once, while it sends heartbeats and until it leaves.
func TestSlotsOfWorkers(t *testing.T) {
	t.Parallel()
	const many = 22_000 // with a quarter more, the minimum is enough for one worker, and not for two
	a, b := bus.Heartbeat{Worker: "a", Slots: many}, bus.Heartbeat{Worker: "b", Slots: many}
	fewer, leaves, gateway := a, a, b
	fewer.Slots, leaves.Leaving, gateway.Gateway = many-1, true, true
	for name, c := range map[string]struct {
		heard []bus.Heartbeat
		last  time.Duration // the time of the last heartbeat, after the others
		want  int
	}{
		"two workers":                 {[]bus.Heartbeat{a, b}, forgetSlots, 2 * minAckPending},
		"one worker again":            {[]bus.Heartbeat{a, a}, 0, minAckPending},
		"one worker with fewer slots": {[]bus.Heartbeat{a, fewer}, 0, minAckPending},
		"one that is silent":          {[]bus.Heartbeat{a, b}, forgetSlots + 1, minAckPending},
		"one that has left":           {[]bus.Heartbeat{a, leaves, b}, 0, minAckPending},
		"a gateway":                   {[]bus.Heartbeat{a, gateway}, 0, minAckPending},
	} {
		var s slots
		now, raised := time.Now(), false
		for i, h := range c.heard {
			if i == len(c.heard)-1 {
				now = now.Add(c.last)
			}
			raised = s.hear(h, now)
		}
		if n, exactly := s.pending(); n != c.want || exactly || raised != (c.want > minAckPending) {
			t.Errorf("%s: max ack pending is %d, exactly %t, to be raised %t; want %d", name, n, exactly, raised, c.want)
		}
	}
}

// A worker that keeps sending heartbeats counts, even if its number of slots has not changed for long.
func TestSlotsOfAnOldWorker(t *testing.T) {
	t.Parallel()
	var s slots
	now := time.Now()
	for range 5 {
		s.hear(bus.Heartbeat{Worker: "a", Slots: 30_000}, now)
		now = now.Add(forgetSlots / 2)
	}
	if !s.hear(bus.Heartbeat{Worker: "b", Slots: 30_000}, now) {
		t.Error("the slots of a worker that is there do not count")
	}
}

// A consumer with a higher limit stays as it is, unless this process knows the exact one: workers of different sizes
// would change it back and forth.
func TestEnoughPending(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		exactly bool
		have    int
		want    bool
	}{
		{false, 9, false}, {false, 10, true}, {false, 11, true}, {false, -1, true},
		{true, 9, false}, {true, 10, true}, {true, 11, false}, {true, -1, false},
	} {
		s := consumerSpec{exactly: c.exactly, config: jetstream.ConsumerConfig{MaxAckPending: 10}}
		if got := s.enough(c.have); got != c.want {
			t.Errorf("exactly %t: %d is enough for 10: %t, want %t", c.exactly, c.have, got, c.want)
		}
	}
}
