package gateway_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A client that follows a run which the store loses receives its failure, and so does every later reader.
func TestReaderOfALostRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	memory := s.store.Store.(*memstore.Store) //nolint:forcetypeassert // set by newDeployment
	before := memory.Snapshot()
	id := s.submit("gated")
	eventually(t, "the run waits", func() bool {
		st, err := s.store.Load(t.Context(), state.RunID(id))
		return err == nil && st.Status == state.Waiting
	})
	frames := make(chan []sse.Event)
	go func() { frames <- s.frames("/v1/runs/" + id + "/events") }()
	eventually(t, "the reader is there", func() bool { return s.readers() > 0 })
	memory.Restore(before)
	all := <-frames
	if last := all[len(all)-1]; last.Type != "run.finished" || !strings.Contains(string(last.Data), `"reason":"lost"`) {
		t.Errorf("the last event is %s: %s", last.Type, last.Data)
	}
	_, _, run := s.call("GET", "/v1/runs/"+id, "")
	if run["status"] != "failed" || run["reason"] != "lost" || run["agent"] != "gated" || run["error"] == nil {
		t.Errorf("the run is %v", run)
	}
	for _, after := range []string{"", "?after=1", "?after=3"} {
		all := s.frames("/v1/runs/" + id + "/events" + after)
		n := 0
		for _, e := range all {
			if e.Type == "run.finished" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("a reader that reconnects with %q reads %d ends", after, n)
		}
	}
	if code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"message": "go on"}`); code != http.StatusConflict || p["code"] != "not_supported" {
		t.Errorf("a message: %d %v", code, p)
	}
}

// A request that waits for a run which the store loses returns the run as failed.
func TestWaitForALostRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	memory := s.store.Store.(*memstore.Store) //nolint:forcetypeassert // set by newDeployment
	before := memory.Snapshot()
	answers := make(chan map[string]any)
	go func() {
		_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent": "slow", "input": "x"}`)
		answers <- run
	}()
	eventually(t, "the run runs", func() bool {
		page, err := s.store.List(t.Context(), state.Filter{Status: []state.Status{state.Running}})
		return err == nil && len(page.Runs) == 1
	})
	memory.Restore(before)
	if run := <-answers; run["status"] != "failed" || run["reason"] != "lost" {
		t.Errorf("the answer is %v", run)
	}
}

// An old batch with lost runs is done once its other runs have ended; its list shows the lost ones as failed.
// In a young batch, a missing run may still be about to be stored.
func TestBatchWithLostRuns(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][]int{"first": {0}, "middle": {1}, "last": {2}, "two": {0, 2}} {
		for _, parallel := range []int{1, 3} {
			s := newDeployment(t)
			for _, age := range []time.Duration{time.Minute, time.Hour} {
				at := state.At(time.Now().Add(-age))
				first := state.FirstIDAt(at.Time)
				for i := range 3 {
					if slices.Contains(lost, i) {
						continue
					}
					run := state.State{
						ID: first.Plus(i), Agent: "hello", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal, CreatedAt: at,
						Batch: &state.Batch{Index: i, Size: 3, MaxParallel: parallel},
					}
					run, err := run.Move(state.Submitted, state.Entry{At: at})
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
						t.Fatal(err)
					}
				}
				id := state.BatchPrefix + strings.TrimPrefix(string(first), state.RunPrefix)
				for range 2 {
					code, _, b := s.call("GET", "/v1/batches/"+id, "")
					counts, _ := b["counts"].(map[string]any)
					failed, _ := counts["failed"].(float64)
					want := 0
					if age == time.Hour {
						want = len(lost)
					}
					if code != http.StatusOK || b["total"] != 3.0 || int(failed) != want {
						t.Errorf("%s of lanes %d, %s old: %d, total %v, failed %v, want %d", name, parallel, age, code, b["total"], failed, want)
					}
				}
				for _, i := range lost {
					code, _, run := s.call("GET", "/v1/runs/"+string(first.Plus(i)), "")
					if age == time.Hour && (code != http.StatusOK || run["reason"] != "lost") || age != time.Hour && code != http.StatusNotFound {
						t.Errorf("%s of lanes %d, %s old: run %d is %d %v", name, parallel, age, i, code, run["reason"])
					}
				}
			}
		}
	}
}

// While another process has another store, a batch is reported without the runs that only that store may have.
func TestBatchInTwoStores(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	watch := onestore.NewWatch("JetStream", nil, slog.New(slog.DiscardHandler))
	store, b := watch.Store(s.store), watch.Bus(s.bus)
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := b.Heartbeats(t.Context(), func(bus.Heartbeat) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	at := state.At(time.Now().Add(-time.Hour))
	first := state.FirstIDAt(at.Time)
	run := state.State{
		ID: first, Agent: "hello", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal, CreatedAt: at,
		Batch: &state.Batch{Size: 2, MaxParallel: 1},
	}
	if run, err = run.Move(state.Submitted, state.Entry{At: at}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other store is known", func() bool {
		s.bus.SendHeartbeat(bus.Heartbeat{Worker: "w", Store: "Redis"})
		lost, err := state.State{ID: state.FirstIDAt(time.Now())}.Lost(at, "a test")
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Create(t.Context(), state.NewRun{State: lost})
		return errors.Is(err, onestore.ErrDiffers)
	})
	w := httptest.NewRecorder()
	path := "/v1/batches/" + state.BatchPrefix + strings.TrimPrefix(string(first), state.RunPrefix)
	g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil))
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "failed") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
