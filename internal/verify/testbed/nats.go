// Package testbed gives tests real servers.
package testbed

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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

// NATSWith starts a server as a deployment may have one of its own: on loopback, with
// JetStream, the defaults of nats-server, and what set changes.
func NATSWith(tb testing.TB, set func(*server.Options)) *server.Server {
	tb.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: tb.TempDir(), NoSigs: true, NoLog: true}
	set(o)
	s, err := server.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		tb.Fatal("NATS does not start")
	}
	return s
}
