package service

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

func TestWorking(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		h    bus.Heartbeat
		ago  time.Duration
		want bool
	}{
		{"a worker", bus.Heartbeat{Worker: "w"}, 0, true},
		{"a worker whose heartbeats are rare", bus.Heartbeat{Worker: "w"}, reachableFor + 4*time.Second, true},
		{"a worker that is silent", bus.Heartbeat{Worker: "w"}, workingFor + time.Second, false},
		{"a worker that leaves", bus.Heartbeat{Worker: "w", Leaving: true}, 0, false},
		{"a gateway", bus.Heartbeat{Worker: "g", Gateway: true}, 0, false},
	} {
		f := &Fleet{workers: &workers{}}
		f.Hear(c.h, time.Now().Add(-c.ago))
		if got := f.Working(); got != c.want {
			t.Errorf("%s: Working is %t, want %t", c.name, got, c.want)
		}
	}
}
