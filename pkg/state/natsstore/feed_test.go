package natsstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A store opens however large the runs are: a server disconnects a client that requests more than it can buffer, so
// the feed limits its requests in bytes.
func TestOpenWithLargeRuns(t *testing.T) {
	t.Parallel()
	const runs, size, buffer = 240, 250 << 10, 40 << 20
	srv := testbed.NATSWith(t, func(o *server.Options) { o.MaxPending = buffer })
	connect := func() *nats.Conn {
		nc, err := nats.Connect(srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	writer := open(t, connect(), "p")
	large := map[string]string{"large": strings.Repeat("x", size)}
	for range runs {
		run := newRun(t)
		run.Metadata = large
		if _, err := writer.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	nc := connect()
	page, err := open(t, nc, "p").List(t.Context(), state.Filter{Limit: runs})
	if err != nil || len(page.Runs) != runs {
		t.Errorf("List = %d runs, %v; want %d", len(page.Runs), err, runs)
	}
	if n := nc.Stats().Reconnects; n != 0 {
		t.Errorf("the server disconnected the process %d times", n)
	}
}
