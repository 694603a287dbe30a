package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// over returns a second gateway on the same runs.
func (s *deployment) over(store state.Store, b bus.Bus) *deployment {
	s.t.Helper()
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	s.t.Cleanup(server.Close)
	return &deployment{t: s.t, url: server.URL, client: api.New(server.URL)}
}

// counting is a bus that counts watches and fails the first ones.
type counting struct {
	bus.Bus

	fail, begun, open atomic.Int64
}

func (c *counting) Watch(ctx context.Context, id state.RunID, fn func(bus.Notice)) (func(), error) {
	if c.fail.Add(-1) >= 0 {
		return nil, errors.New("no answer")
	}
	stop, err := c.Bus.Watch(ctx, id, fn)
	c.begun.Add(1)
	c.open.Add(1)
	return func() { stop(); c.open.Add(-1) }, err
}

// A run is watched once for all its readers, until the last has left. A watch that failed is not reused for the
// next reader.
func TestRunIsWatchedOnceForAll(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	b := &counting{Bus: s.bus}
	there := s.over(s.store, b)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	id := run["id"].(string)
	b.fail.Store(1)
	if code, h, p := there.call("GET", "/v1/runs/"+id+"/events", ""); code != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		t.Errorf("without the bus: %d %v", code, p)
	}
	const readers = 20
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for i, e := range there.events(id, 0, nil) {
				if e.Seq != int64(i+1) {
					t.Errorf("event %d has number %d", i+1, e.Seq)
				}
			}
		})
	}
	eventually(t, "all read", func() bool { return there.readers() == readers })
	if n := b.begun.Load(); n != 1 {
		t.Errorf("the run is watched %d times", n)
	}
	s.call("POST", "/v1/runs/"+id+"/signals", `{"approvals":[{"call_id":"c1","decision":"approve"}]}`)
	all.Wait()
	eventually(t, "the last watch ends", func() bool { return b.open.Load() == 0 })
}

// slowLogs is a store whose log reads block until released. It counts the waiting ones.
type slowLogs struct {
	state.Store

	inside, most atomic.Int64
	release      chan struct{}
}

func (c *slowLogs) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	n := c.inside.Add(1)
	defer c.inside.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	<-c.release
	return c.Store.LogPage(ctx, id, after, limit, bytes)
}

// Many readers leave capacity of the store for others.
func TestReadersTakeTurns(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	store := &slowLogs{Store: s.store, release: make(chan struct{})}
	there := s.over(store, s.bus)
	id := s.submit("adder")
	if _, err := s.client.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	const readers = 30
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			// This does not use the client, which requests a page when the stream has ended.
			resp, err := http.Get(there.url + "/v1/runs/" + id + "/events")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "\ndata: ") {
				t.Errorf("a reader got %q, %v", body, err)
			}
		})
	}
	eventually(t, "all are connected", func() bool { return there.readers() == readers })
	const together = 8
	eventually(t, "some ask the store", func() bool { return store.inside.Load() >= together })
	close(store.release)
	all.Wait()
	if n := store.most.Load(); n > together {
		t.Errorf("%d readers used the store at a time", n)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("never reached: %s", what)
		}
	}
}
