// Package testbed gives tests real servers.
package testbed

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// NATS returns a connection to a JetStream server of the test's own.
func NATS(tb testing.TB) *nats.Conn {
	tb.Helper()
	s := NATSServer(tb)
	nc, err := s.Conn("test")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// NATSServer starts a JetStream server that listens on loopback.
func NATSServer(tb testing.TB) *devserver.Server {
	tb.Helper()
	s, err := devserver.Start(devserver.Options{Dir: tb.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}
