package membus_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/bustest"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
)

func TestBus(t *testing.T) {
	t.Parallel()
	bustest.Exercise(t, func(*testing.T) bus.Bus {
		b := membus.New()
		b.AckWait = bustest.AckWait
		return b
	})
}
