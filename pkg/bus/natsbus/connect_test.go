package natsbus_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

// I2: whoever is connected to a server that fell silent looks for another one long
// before a lease of the default length is over.
func TestUnresponsiveServerIsNoticed(t *testing.T) {
	t.Parallel()
	nc, err := natsbus.Connect(testbed.NATSServer(t).URL(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if within := nc.Opts.PingInterval * time.Duration(nc.Opts.MaxPingsOut+1); within > 10*time.Second {
		t.Errorf("a silent server is noticed within %s", within)
	}
}
