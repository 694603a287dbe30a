package membus_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

func TestBus(t *testing.T) {
	t.Parallel()
	turnpiketest.Bus(t, func(*testing.T) turnpiketest.TestBus {
		b := membus.New()
		b.AckWait = turnpiketest.BusAckWait
		return b
	})
}
