package natsbus_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

// A client of an unresponsive server looks for another well before a lease of default length ends (I2).
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
