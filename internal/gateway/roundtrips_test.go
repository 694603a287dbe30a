package gateway_test

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// counter is a proxy before Redis that counts round trips: each write on a connection after a reply, or the
// first one. A pipeline or a script counts once.
type counter struct{ trips atomic.Int64 }

// fewest returns the number of round trips of an attempt that makes at most want, or else the fewest of some. On a busy
// machine the processes in between read settings and the clock again, and open connections.
func (c *counter) fewest(t *testing.T, want int64, do func() error) int64 {
	t.Helper()
	fewest := int64(math.MaxInt64)
	for range 10 {
		before := c.trips.Load()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if fewest = min(fewest, c.trips.Load()-before); fewest <= want {
			break
		}
	}
	return fewest
}

// countRoundTrips returns a counter and the URL of Redis behind it.
func countRoundTrips(t *testing.T) (*counter, string) {
	t.Helper()
	u, err := url.Parse(testbed.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, all := &counter{}, &sync.WaitGroup{}
	all.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", target)
			if err != nil {
				_ = down.Close()
				return
			}
			asked := &atomic.Bool{} // and not answered
			all.Go(func() { c.copy(up, down, func() { c.ask(asked) }) })
			all.Go(func() { c.copy(down, up, func() { asked.Store(false) }) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	u.Host = l.Addr().String()
	return c, u.String()
}

func (c *counter) ask(asked *atomic.Bool) {
	if !asked.Swap(true) {
		c.trips.Add(1)
	}
}

func (c *counter) copy(to, from net.Conn, passed func()) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			passed()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// The latency of a request to a distant store is determined by its number of round trips, which this test
// bounds.
func TestRoundTripsToRedis(t *testing.T) {
	t.Parallel()
	count, redis := countRoundTrips(t)
	store, err := redisstore.Open(t.Context(), redisstore.Config{URL: redis, Prefix: "t-" + strings.ToLower(ulid.Make().String())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	g, err := gateway.New(store, membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	c := api.New(server.URL)
	if _, err := c.PutAgent(t.Context(), "a", []byte(`{"model":{"provider":"scripted","responses":[{"text":"x"}]}}`)); err != nil {
		t.Fatal(err)
	}
	one := api.SubmitRequest{Agent: "a", Input: json.RawMessage(`"go"`)}
	submit := func(key string) func() error {
		return func() error { _, err := c.Submit(t.Context(), one, key); return err }
	}
	numbered := one
	numbered.AgentVersion = 1
	submitNumbered := func() error { _, err := c.Submit(t.Context(), numbered, ""); return err }
	for _, warm := range []string{"", "warm", "warm"} { // warms up connections, scripts and the store's clock
		if err := submit(warm)(); err != nil {
			t.Fatal(err)
		}
	}
	run, err := c.Submit(t.Context(), one, "")
	if err != nil {
		t.Fatal(err)
	}
	list := func(query string) func() error {
		return func() error {
			resp, err := http.Get(server.URL + "/v1/runs" + query)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			return err
		}
	}
	messages := func() error { _, err := c.Messages(t.Context(), run.ID); return err }
	for _, warm := range []func() error{messages, list("")} { // concurrent calls use connections of their own
		if err := warm(); err != nil {
			t.Fatal(err)
		}
	}
	batch := api.BatchRequest{Runs: make([]api.SubmitRequest, 100)}
	for i := range batch.Runs {
		batch.Runs[i] = one
	}
	for _, tt := range []struct {
		what string
		want int64
		do   func() error
	}{
		{"submit", 1, submit("")},
		{"submit with a new key", 1, func() error { return submit(rand.Text())() }},
		{"submit with a known key", 2, submit("warm")},
		{"submit with a version", 1, submitNumbered},
		{"get", 1, func() error { _, err := c.Get(t.Context(), run.ID); return err }},
		{"messages", 2, messages}, // at once
		{"list", 1, list("")},
		{"list by status", 1, list("?status=queued")},
		{"list by agent and status", 1, list("?agent=a&status=queued")},
	} {
		if n := count.fewest(t, tt.want, tt.do); n != tt.want {
			t.Errorf("%s makes %d round trips to Redis, want %d", tt.what, n, tt.want)
		}
	}
	// The tenant's settings say whether it indexes metadata. A gateway rereads them after two seconds.
	noted := one
	noted.Metadata = map[string]string{"user": "42"}
	twenty := func() error {
		for range 20 {
			if _, err := c.Submit(t.Context(), noted, ""); err != nil {
				return err
			}
		}
		return nil
	}
	if n := count.fewest(t, 30, twenty); n > 30 {
		t.Errorf("20 submissions with metadata make %d round trips to Redis, want 20 and a few", n)
	}
	// The runs of a batch are created several at a time, and concurrent ones share a pipeline.
	n := count.fewest(t, 102, func() error { _, err := c.SubmitBatch(t.Context(), batch, ""); return err })
	if n > 102 {
		t.Errorf("a batch of 100 makes %d round trips to Redis, want one for each run and two more at most", n)
	}
}
