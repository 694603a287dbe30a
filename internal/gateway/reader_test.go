package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A reader that disconnects does not affect the run and leaves nothing behind (A15).
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	id := run["id"].(string)
	ctx, leave := context.WithCancel(t.Context())
	for _, err := range s.client.Events(ctx, id, 0) {
		if err != nil {
			break
		}
		leave() // in the middle of the stream
	}
	leave()
	if code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"approvals":[{"call_id":"c1","decision":"approve"}]}`); code != 202 {
		t.Fatalf("signal = %d %v", code, p)
	}
	events := s.events(id, 0, nil)
	if last := events[len(events)-1]; last.Type != "run.finished" || last.Reason != "completed" {
		t.Errorf("the run ended %s", last.Reason)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if s.readers() == 0 {
			return
		}
		<-tick.C
	}
	t.Errorf("%d readers are left", s.readers())
}

// readers reads the gauge of open event streams.
func (s *deployment) readers() (n int) {
	s.t.Helper()
	resp, err := http.Get(s.url + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(b), "\nturnpike_event_readers ")
	if !ok {
		s.t.Fatal("no gauge of readers")
	}
	if _, err := fmt.Sscan(after, &n); err != nil {
		s.t.Fatal(err)
	}
	return n
}
