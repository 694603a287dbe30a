package natsbus_test

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

// cutter connects to a server. It breaks one connection, when a text is written to it.
type cutter struct {
	at   []byte
	done atomic.Bool
}

func (c *cutter) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return cuttable{conn, c}, err
}

type cuttable struct {
	net.Conn
	cutter *cutter
}

func (c cuttable) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.cutter.at) && c.cutter.done.CompareAndSwap(false, true) {
		return 0, errors.Join(errors.New("cut"), c.Close())
	}
	return c.Conn.Write(b)
}

// A connection that breaks while a process subscribes, for example as it starts, does not end the process: the client
// sends the subscription again when it has reconnected.
func TestConnectionBreaksWhileSubscribing(t *testing.T) {
	t.Parallel()
	c := &cutter{at: []byte(".presence.")}
	nc, err := natsbus.Connect(testbed.NATSServer(t).URL(), "test", nats.SetCustomDialer(c))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	heard := make(chan string, 1)
	stop, err := b.Heartbeats(t.Context(), func(h bus.Heartbeat) { heard <- h.Worker })
	if err != nil || !c.done.Load() {
		t.Fatalf("Heartbeats = %v, cut %t", err, c.done.Load())
	}
	defer stop()
	b.SendHeartbeat(bus.Heartbeat{Worker: "w"})
	if name := <-heard; name != "w" {
		t.Errorf("heard %s", name)
	}
}
