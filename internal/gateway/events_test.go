package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// frames reads a whole stream as raw SSE frames.
func (s *deployment) frames(path string, headers ...string) []sse.Event {
	s.t.Helper()
	return s.follow(path, nil, headers...)
}

// follow is frames. If waits is not nil, it closes waits at the event that says that the run waits.
func (s *deployment) follow(path string, waits chan<- struct{}, headers ...string) []sse.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		s.t.Fatalf("Content-Type = %q", got)
	}
	var all []sse.Event
	for in := sse.NewReader(resp.Body); ; {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if all = append(all, e); e.Type == string(state.EntryWaiting) && waits != nil {
			close(waits)
			waits = nil
		}
	}
}

// Every committed event has its number as its id and the common fields; a live event has no id and seq null.
func TestEventsOnTheWire(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit("adder")
	next := 1
	for _, f := range s.frames("/v1/runs/" + id + "/events") {
		var e map[string]any
		if err := json.Unmarshal(f.Data, &e); err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields("seq run_id type turn attempt at") {
			if _, ok := e[name]; !ok {
				t.Errorf("%s is missing in %s", name, f.Data)
			}
		}
		if e["type"] != f.Type || e["run_id"] != id {
			t.Errorf("event %q = %s", f.Type, f.Data)
		}
		if f.ID == "" {
			if e["seq"] != nil {
				t.Errorf("no id, but seq: %s", f.Data)
			}
			continue
		}
		if f.ID != strconv.Itoa(next) || e["seq"] != float64(next) {
			t.Errorf("id %s, seq %v, want %d", f.ID, e["seq"], next)
		}
		next++
	}
	// Last-Event-ID overrides after, because a browser repeats its first URL.
	last := strconv.Itoa(next - 2)
	got := s.frames("/v1/runs/"+id+"/events?after=1", "Last-Event-ID", last, "Accept", "text/event-stream, application/json")
	if len(got) != 1 || got[0].Type != string(state.EntryFinished) {
		t.Errorf("after %s: %d events", last, len(got))
	}
	// The stream sends bytes before it has an event.
	resp, err := http.Get(s.url + "/v1/runs/" + id + "/events")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(string(body), ": open\n\nid: 1\n") {
		t.Errorf("the stream begins with %.40q, %v", body, err)
	}
	resp.Body.Close()
	resp, err = http.Head(s.url + "/v1/runs/" + id + "/events")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD = %s", resp.Status)
	}
	if code, _, p := s.call("GET", "/v1/runs/"+id+"/events?stream=bytes", ""); code != 400 {
		t.Errorf("stream=bytes = %d %v", code, p)
	}
}

// muted is a bus that loses its notifications to watchers, and lets the test send others.
type muted struct {
	bus.Bus

	watched chan func(bus.Notice)
}

func (m muted) Watch(_ context.Context, _ state.RunID, fn func(bus.Notice)) (func(), error) {
	m.watched <- fn
	return func() {}, nil
}

func (s *deployment) muted() (*deployment, chan func(bus.Notice)) {
	s.t.Helper()
	b := muted{s.bus, make(chan func(bus.Notice), 8)}
	return s.over(s.store, b), b.watched
}

// Lost notifications delay events but lose none.
func TestEventsWithoutTheBus(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	there, _ := s.muted()
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	id := run["id"].(string)
	done := make(chan []api.Event, 1)
	go func() { done <- there.events(id, 0, nil) }()
	if _, err := s.client.Signal(t.Context(), id, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}); err != nil {
		t.Fatal(err)
	}
	for i, e := range <-done {
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has number %d", i+1, e.Seq)
		}
	}
}

// Duplicates are skipped and gaps are filled from the store. A reader that cannot keep up neither blocks the
// bus nor loses a committed event (I9).
func TestEventsOutOfOrder(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	there, watched := s.muted()
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	id := state.RunID(run["id"].(string))
	done := make(chan []sse.Event, 1)
	go func() { done <- there.frames("/v1/runs/" + string(id) + "/events?stream=turns") }()
	tell := <-watched
	if _, err := s.client.Signal(t.Context(), string(id), api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Wait(t.Context(), string(id)); err != nil {
		t.Fatal(err)
	}
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := state.At(time.Now())
	delta := api.EncodeLive(id, api.Live{Type: state.LiveModelDelta, Turn: 99, Attempt: 1, At: at})
	stale := api.EncodeLive(id, api.Live{Type: state.LiveTurnStarted, Turn: 0, Attempt: 1, At: at})
	grown := func(e state.Entry) bus.Notice { return bus.Notice{From: e.Seq - 1, To: e.Seq} }
	tell(bus.Notice{Live: stale})
	tell(grown(log[0]))
	for range 3000 {
		tell(bus.Notice{Live: delta})
	}
	for i := len(log) - 1; i >= 0; i-- {
		tell(grown(log[i]))
	}
	next := 1
	for _, f := range <-done {
		if f.Type == string(state.LiveModelDelta) {
			t.Errorf("a delta that the reader did not request")
		}
		if f.Type == string(state.LiveTurnStarted) {
			t.Errorf("turn 0 begins after turn 1: %s", f.Data)
		}
		if f.ID != "" {
			if f.ID != strconv.Itoa(next) {
				t.Errorf("id %s, want %d", f.ID, next)
			}
			next++
		}
	}
	if next-1 != len(log) {
		t.Errorf("%d events, want %d", next-1, len(log))
	}
}

// Deltas are sent only for runs that requested them, to readers who want them.
func TestDeltas(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("talker", `{model: {provider: scripted, responses: [{tool_calls: [{name: ask_user, id: q, arguments: {question: "ready?"}}]}, {text: "a b c d e f g", delay: 200ms}]}, tools: [{name: ask_user, kind: human}]}`)
	count := func(submitted, query string) int {
		_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"talker","input":"x","stream":"`+submitted+`"}`)
		id, _ := run["id"].(string)
		if run["status"] != "waiting" {
			t.Fatalf("run = %v", run)
		}
		// A reader that has not read the whole log when the run ends gets no deltas. So the run continues only
		// when the reader has the last event, and its model takes a moment.
		deltas, waits := 0, make(chan struct{})
		done := make(chan []sse.Event, 1)
		go func() { done <- s.follow("/v1/runs/"+id+"/events"+query, waits) }()
		<-waits
		if _, err := s.client.Signal(t.Context(), id, api.SignalRequest{Answer: &id}); err != nil {
			t.Fatal(err)
		}
		for _, f := range <-done {
			if f.Type == string(state.LiveModelDelta) {
				deltas++
			}
		}
		return deltas
	}
	got := 0
	for range 3 { // on a busy machine a slow reader gets none
		got += count("deltas", "")
		if got > 0 {
			break
		}
	}
	if got == 0 {
		t.Error("no deltas for a run that requested them")
	}
	if n := count("deltas", "?stream=turns"); n != 0 {
		t.Errorf("%d deltas for a reader who wants none", n)
	}
	if n := count("turns", "?stream=deltas"); n != 0 {
		t.Errorf("%d deltas of a run that did not request them", n)
	}
}

// An event has the same bytes wherever it is read.
func TestEventsAreTheSameInAList(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "adder", Input: json.RawMessage(`"1 < 2 & 3 > 2"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	frames := s.frames("/v1/runs/" + run.ID + "/events?stream=turns")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/runs/"+run.ID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames {
		if f.ID != "" && !bytes.Contains(body, f.Data) {
			t.Errorf("event %s is %s in the stream, and otherwise in\n%s", f.ID, f.Data, body)
		}
	}
}
