package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/api/sse"
	"github.com/turnpike-dev/turnpike/pkg/client"
)

const id = "run_01JD3X9K3W8Q4V5N6M7P8R9S0T"

// rough is a gateway with one ended run of events 1 to total, whose streams break.
type rough struct {
	total int64

	// stream answers the n-th connection, from 1.
	stream func(n int64, w http.ResponseWriter, after int64)

	connections atomic.Int64
}

func event(seq int64) []byte {
	return fmt.Appendf(nil, `{"seq":%d,"run_id":%q,"type":"transition","turn":1,"attempt":1,"at":"2026-11-20T12:00:00Z"}`, seq, id)
}

func (g *rough) write(w http.ResponseWriter, from, to int64) {
	for seq := from; seq <= to; seq++ {
		_, _ = w.Write(sse.Append(nil, sse.Event{ID: strconv.FormatInt(seq, 10), Type: "transition", Data: event(seq)}))
	}
}

func (g *rough) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	switch {
	case r.URL.Path == "/v1/runs/"+id:
		_ = json.NewEncoder(w).Encode(api.Run{ID: id, Status: "completed"})
	case r.Header.Get("Accept") == "application/json":
		after, _ = strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		var items []json.RawMessage
		if after < g.total {
			items = append(items, event(after+1))
		}
		_ = json.NewEncoder(w).Encode(api.NewPage(items, ""))
	default:
		g.stream(g.connections.Add(1), w, after)
	}
}

func (g *rough) follow(t *testing.T, after int64) []int64 {
	t.Helper()
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []int64
	for e, err := range client.New(server.URL).Events(ctx, id, after) {
		if err != nil {
			t.Fatalf("Events: %v", err)
		}
		got = append(got, e.Seq)
	}
	return got
}

// A reader misses nothing and sees nothing twice, however its connection ends (I9).
func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	tests := map[string]func(g *rough) func(n int64, w http.ResponseWriter, after int64){
		"a clean end after each event": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(_ int64, w http.ResponseWriter, after int64) { g.write(w, after+1, min(after+1, g.total)) }
		},
		"an end before the first event": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(n int64, w http.ResponseWriter, after int64) {
				if n > 2 {
					g.write(w, after+1, g.total)
				}
			}
		},
		"broken within an event": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(n int64, w http.ResponseWriter, after int64) {
				if n > 1 {
					g.write(w, after+1, g.total)
					return
				}
				g.write(w, 1, 2)
				_, _ = w.Write([]byte("id: 3\ndata: {\"seq\":3"))
				panic(http.ErrAbortHandler)
			}
		},
		"not available at first": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(n int64, w http.ResponseWriter, after int64) {
				if n == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeStoreUnavailable, Status: 503})
					return
				}
				g.write(w, after+1, g.total)
			}
		},
		"doubles": func(g *rough) func(int64, http.ResponseWriter, int64) {
			return func(_ int64, w http.ResponseWriter, _ int64) { g.write(w, 1, 3); g.write(w, 2, g.total) }
		},
	}
	for name, stream := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &rough{total: 5}
			g.stream = stream(g)
			if got := g.follow(t, 0); !slices.Equal(got, []int64{1, 2, 3, 4, 5}) {
				t.Errorf("events %v, want 1 to 5", got)
			}
		})
	}
}

// Whoever has the last event of an ended run is done after one look.
func TestEventsAfterTheLast(t *testing.T) {
	t.Parallel()
	g := &rough{total: 5}
	g.stream = func(_ int64, w http.ResponseWriter, after int64) { g.write(w, after+1, g.total) }
	if got := g.follow(t, 5); len(got) != 0 || g.connections.Load() != 1 {
		t.Errorf("events %v over %d connections, want none over 1", got, g.connections.Load())
	}
}

// What the gateway refuses is not asked for again.
func TestProblemsAreTyped(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeRunNotFound, Status: 404, Detail: "no such run"})
	}))
	t.Cleanup(server.Close)
	c := client.New(server.URL + "/")
	_, err := c.Get(t.Context(), id)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeRunNotFound || p.RetryAfter != 7 {
		t.Errorf("Get = %v", err)
	}
	before := calls.Load()
	for _, err := range c.Events(t.Context(), id, 0) {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 404 {
			t.Errorf("Events = %v", err)
		}
	}
	if n := calls.Load() - before; n > 2 {
		t.Errorf("%d requests for a run that does not exist", n)
	}
	if _, err := c.Wait(t.Context(), id); err == nil {
		t.Error("Wait for a run that does not exist succeeds")
	}
}
