package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api/sse"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A client that follows a run which the store loses sees it fail, and so does everybody who asks
// for it afterwards.
func TestReaderOfALostRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	memory := s.store.Store.(*memstore.Store) //nolint:forcetypeassert // newDeployment made it
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
			t.Errorf("a reader that comes back with %q reads %d ends", after, n)
		}
	}
	if code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"message": "go on"}`); code != http.StatusConflict || p["code"] != "not_supported" {
		t.Errorf("a message: %d %v", code, p)
	}
}

// A request that waits for a run which the store loses is answered with the run, failed.
func TestWaitForALostRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	memory := s.store.Store.(*memstore.Store) //nolint:forcetypeassert // newDeployment made it
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
