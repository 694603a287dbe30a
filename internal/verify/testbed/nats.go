// Package testbed gives tests real servers.
package testbed

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// NATS returns a connection to the test's own JetStream server.
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

// NATSWith starts a server as a deployment may have one: on loopback, with JetStream, the defaults of
// nats-server, and the changes of set.
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
	if !s.ReadyForConnections(2 * time.Minute) {
		tb.Fatal("NATS does not start")
	}
	return s
}

// NATSCluster starts a cluster of n servers with JetStream, and returns when it has a leader that has seen all
// of them.
func NATSCluster(tb testing.TB, n int) []*server.Server {
	tb.Helper()
	routes := make([]*url.URL, n)
	ports := make([]int, n)
	for i := range n {
		port, err := devserver.FreePort()
		if err != nil {
			tb.Fatal(err)
		}
		ports[i], routes[i] = port, &url.URL{Scheme: "nats-route", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	}
	servers := make([]*server.Server, n)
	for i := range n {
		servers[i] = NATSWith(tb, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("nats%d", i+1)
			o.Cluster = server.ClusterOpts{Name: "testbed", Host: "127.0.0.1", Port: ports[i], NoAdvertise: true}
			o.Routes = routes
			o.JetStreamMaxStore = 16 << 30
		})
	}
	complete := func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() {
				return len(s.JetStreamClusterPeers()) == n
			}
		}
		return false
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(2 * time.Minute); !complete(); <-look.C {
		if time.Now().After(end) {
			tb.Fatal("the cluster of NATS servers has no leader")
		}
	}
	return servers
}

// URLs returns the addresses of servers, separated by commas.
func URLs(servers []*server.Server) string {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.ClientURL()
	}
	return strings.Join(urls, ",")
}
