package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed/plain"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// deployment is a gateway with a worker.
type deployment struct {
	t      *testing.T
	url    string
	client *api.Client
	bus    *membus.Bus
	store  *flaky
}

// flaky is a store that can be unreachable.
type flaky struct {
	state.Store

	mu       sync.Mutex
	down     bool
	onRecord func(run state.RunID, r state.Record)
}

// recording calls call before each record of a turn.
func (f *flaky) recording(call func(run state.RunID, r state.Record)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onRecord = call
}

func (f *flaky) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	f.mu.Lock()
	call := f.onRecord
	f.mu.Unlock()
	if call != nil {
		call(l.Run, r)
	}
	return f.Store.Record(ctx, l, r)
}

var errDown = errors.New("connection refused")

func (f *flaky) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errDown
	}
	return nil
}

func (f *flaky) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *flaky) Ready(ctx context.Context) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Store.Ready(ctx)
}

func (f *flaky) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if err := f.err(); err != nil {
		return state.State{}, err
	}
	return f.Store.Load(ctx, id)
}

func (f *flaky) Agent(ctx context.Context, tenant, name string, v int) (state.AgentVersion, error) {
	if err := f.err(); err != nil {
		return state.AgentVersion{}, err
	}
	return f.Store.Agent(ctx, tenant, name, v)
}

func (f *flaky) AgentNames(ctx context.Context, tenant string) ([]string, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.AgentNames(ctx, tenant)
}

func newDeployment(t *testing.T, edit ...func(*worker.Config)) *deployment {
	t.Helper()
	s := &deployment{t: t, bus: membus.New(), store: &flaky{Store: memstore.New(memstore.Config{})}}
	g, err := gateway.New(s.store, s.bus, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := worker.Config{
		ID: "w1", Providers: map[string]model.Provider{"scripted": scripted.New()}, ShutdownGrace: time.Millisecond, Without: plain.Without(),
		Kinds: toolspec.Kinds(map[string]tool.Tool{"add": tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "42"}, nil })}),
	}
	for _, e := range edit {
		e(&cfg)
	}
	w, err := worker.New(s.store, s.bus, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	wg.Go(func() { _ = g.Run(ctx) })
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { cancel(); server.Close(); wg.Wait() })
	s.url, s.client = server.URL, api.New(server.URL)
	s.put("hello", `{model: {provider: scripted, responses: [{text: "hi there"}, {text: "again"}]}}`)
	s.put("adder", `{instructions: Add., model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1}]}, {text: "it is 42"}]}, tools: [{name: add}]}`)
	s.put("gated", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1}]}, {text: done}]}, tools: [{name: add, approval: always}]}`)
	s.put("slow", `{model: {provider: scripted, responses: [{text: never, delay: 1h}]}}`)
	s.put("once", `{model: {provider: scripted, responses: [{text: "x"}]}, loop: {type: single_call}}`)
	return s
}

func (s *deployment) put(name, def string) {
	s.t.Helper()
	if _, err := s.client.PutAgent(s.t.Context(), name, []byte(def)); err != nil {
		s.t.Fatal(err)
	}
}

// call makes a request and returns the status, headers and decoded body.
func (s *deployment) call(method, path, body string, headers ...string) (int, http.Header, map[string]any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
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
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var v map[string]any
	if len(b) > 0 {
		if err := json.Unmarshal(b, &v); err != nil {
			s.t.Fatalf("%s %s: %s", method, path, b)
		}
	}
	described, err := documented()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := described.check(req, resp, b); err != nil {
		s.t.Error(err)
	}
	return resp.StatusCode, resp.Header, v
}

func (s *deployment) submit(agent string) string {
	s.t.Helper()
	run, err := s.client.Submit(s.t.Context(), api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

// events follows a run until it has ended or ok returns true.
func (s *deployment) events(id string, after int64, ok func(api.Event) bool) []api.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var all []api.Event
	for e, err := range s.client.Events(ctx, id, after) {
		if err != nil {
			s.t.Fatalf("Events: %v", err)
		}
		if e.Seq > 0 {
			all = append(all, e)
		}
		if ok != nil && ok(e) {
			break
		}
	}
	return all
}

func TestSubmitAndWait(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	code, header, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"adder","input":"6*7","metadata":{"k":"v"},"limits":{"max_turns":5,"deadline":"10m"}}`)
	if code != 200 || run["status"] != "completed" || run["reason"] != "completed" || run["output"] != "it is 42" || run["turn_count"] != 2.0 {
		t.Fatalf("run = %d %v", code, run)
	}
	if header.Get("Location") != "/v1/runs/"+run["id"].(string) {
		t.Errorf("Location = %q", header.Get("Location"))
	}
	id := run["id"].(string)
	msgs, err := s.client.Messages(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, m := range msgs {
		roles = append(roles, string(m.Role))
	}
	if diff := cmp.Diff([]string{"system", "user", "assistant", "tool", "assistant"}, roles); diff != "" {
		t.Errorf("messages:\n%s", diff)
	}
	turns, err := s.client.Turns(t.Context(), id)
	if err != nil || len(turns) != 3 || turns[1].Reason != "next_turn" || len(turns[1].ToolCalls) != 1 || turns[1].Worker != "w1" || turns[2].Reason != "completed" {
		t.Errorf("turns = %+v, %v", turns, err)
	}
	if code, _, list := s.call("GET", "/v1/runs?status=completed&metadata.k=v", ""); code != 200 || len(list["items"].([]any)) != 1 {
		t.Errorf("list = %d %v", code, list)
	}
	if code, _, slow := s.call("POST", "/v1/runs?wait=50ms", `{"agent":"slow","input":"x"}`); code != 202 {
		t.Errorf("a run that does not end in time: %d %v", code, slow)
	}
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, first := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x"}`, "Idempotency-Key", "k")
	code, _, again := s.call("POST", "/v1/runs", `{ "input":"x", "agent":"hello" }`, "Idempotency-Key", "k")
	if code != 202 || again["id"] != first["id"] {
		t.Errorf("the same body in other notation: %d %v, want %v", code, again["id"], first["id"])
	}
	if code, _, p := s.call("POST", "/v1/runs", `{"agent":"hello","input":"y"}`, "Idempotency-Key", "k"); code != 409 || p["code"] != "idempotency_conflict" {
		t.Errorf("another body: %d %v", code, p)
	}
}

// Bad input is refused with the name of the invalid part; nothing is partly accepted.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	unknown := "run_01JD3X9K3W8Q4V5N6M7P8R9S0T"
	done := s.submit("hello")
	s.events(done, 0, nil)
	tests := []struct {
		method, path, body string
		status             int
		code, says         string
	}{
		{"POST", "/v1/runs", ``, 400, "invalid_json", "empty"},
		{"POST", "/v1/runs", `{`, 400, "invalid_json", "incomplete"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","colour":1}`, 400, "invalid_json", "colour"},
		{"POST", "/v1/runs", `{"input":"x"}`, 400, "invalid_request", "agent"},
		{"POST", "/v1/runs", `{"agent":"nobody","input":"x"}`, 404, "agent_not_found", "nobody"},
		{"POST", "/v1/runs", `{"agent":"hello"}`, 400, "invalid_request", "input"},
		{"POST", "/v1/runs", `{"agent":"hello","input":""}`, 400, "invalid_request", "empty"},
		{"POST", "/v1/runs", `{"agent":"hello","input":7}`, 400, "invalid_request", "input"},
		{"POST", "/v1/runs", `{"agent":"hello","input":[{"role":"king","content":"x"}]}`, 400, "invalid_request", "king"},
		{"POST", "/v1/runs", `{"agent":"hello","input":[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t","arguments":{}}]}]}`, 400, "invalid_request", "no result"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","priority":"urgent"}`, 400, "invalid_request", "urgent"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","limits":{"max_turns":201}}`, 400, "invalid_request", "above the maximum"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","limits":{"output_tokens":-1}}`, 400, "invalid_request", "limits.output_tokens is -1"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","limits":{"wait":-5}}`, 400, "invalid_request", "limits.wait is -5s"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","limits":{"cost_usd":-0.5}}`, 400, "invalid_request", "limits.cost_usd is -0.5:"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","output_schema":{"type":7}}`, 400, "invalid_request", "output_schema"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"x","stream":"bytes"}`, 400, "invalid_request", "bytes"},
		{"POST", "/v1/runs?wait=soon", `{"agent":"hello","input":"x"}`, 400, "invalid_request", "wait"},
		{"POST", "/v1/runs", `{"agent":"hello","input":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "body_too_large", "1048576"},
		{"GET", "/v1/runs/42", ``, 400, "invalid_id", "run_"},
		{"GET", "/v1/runs/" + unknown, ``, 404, "run_not_found", unknown},
		{"GET", "/v1/runs/" + unknown + "/messages", ``, 404, "run_not_found", ""},
		{"GET", "/v1/runs/" + unknown + "/events", ``, 404, "run_not_found", ""},
		{"GET", "/v1/runs?colour=red", ``, 400, "invalid_request", "colour"},
		{"GET", "/v1/runs?status=asleep", ``, 400, "invalid_request", "asleep"},
		{"GET", "/v1/runs?cursor=xyz", ``, 400, "invalid_cursor", ""},
		{"GET", "/v1/runs?limit=0", ``, 400, "invalid_request", "limit"},
		{"POST", "/v1/runs/" + unknown + "/cancel", `{}`, 404, "run_not_found", ""},
		{"POST", "/v1/runs/" + done + "/cancel", `{}`, 409, "run_finished", ""},
		{"POST", "/v1/runs/" + done + "/signals", `{}`, 400, "invalid_request", "exactly one"},
		{"POST", "/v1/runs/" + done + "/signals", `{"answer":"x","message":"y"}`, 400, "invalid_request", "exactly one"},
		{"POST", "/v1/runs/" + done + "/signals", `{"answer":"x"}`, 409, "run_finished", ""},
		{"POST", "/v1/runs/" + done + "/signals", `{"approvals":[{"call_id":"c","decision":"maybe"}]}`, 400, "invalid_request", "maybe"},
		{"POST", "/v1/runs/" + done + "/signals", `{"approvals":[{"call_id":"c","decision":"approve","arguments":[1]}]}`, 400, "invalid_request", "object"},
		{"PUT", "/v1/agents/bad", `model: {provider: nobody}`, 400, "invalid_agent", "nobody"},
		{"PUT", "/v1/agents/bad", `{"model":{"provider":"scripted"},"lop":1}`, 400, "invalid_agent", "lop"},
		{"PUT", "/v1/agents/bad", `{"name":"good","model":{"provider":"scripted"}}`, 400, "invalid_agent", "good"},
		{"PUT", "/v1/agents/bad", `{"model":{"provider":"scripted"},"loop":{"type":"single_call"},"tools":[{"name":"t"}]}`, 400, "invalid_agent", "single_call"},
		{"GET", "/v1/agents/nobody", ``, 404, "agent_not_found", ""},
		{"DELETE", "/v1/agents/nobody", ``, 404, "agent_not_found", ""},
		{"GET", "/v2/runs", ``, 404, "not_found", "openapi"},
		{"PATCH", "/v1/runs", ``, 405, "method_not_allowed", "POST"},
	}
	for _, tt := range tests {
		code, header, p := s.call(tt.method, tt.path, tt.body)
		detail, _ := p["detail"].(string)
		if code != tt.status || p["code"] != tt.code || !strings.Contains(detail, tt.says) || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.60s %.80s\n  = %d %v; want %d %s with %q", tt.method, tt.path, tt.body, code, p, tt.status, tt.code, tt.says)
		}
	}
	_, _, p := s.call("PUT", "/v1/agents/bad", "model: {provider: scripted}\ntools:\n  - name: t\n    knd: x\nlop: {}\n")
	if got := fmt.Sprint(p["errors"]); !strings.Contains(got, "at:tools[0].knd column:5") || !strings.Contains(got, "line:4") || !strings.Contains(got, "at:lop column:1") {
		t.Errorf("errors of a definition = %v; want each with its line", got)
	}
	if code, _, p := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x"}`, "Sec-Fetch-Site", "cross-site"); code != 403 {
		t.Errorf("a cursor of another deployment: %d %v", code, p)
	}
	if page, err := s.client.List(t.Context(), nil); err != nil || len(page.Items) != 1 {
		t.Errorf("%d runs exist, %v; the refused ones must not", len(page.Items), err)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	code, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	if code != 200 || run["status"] != "waiting" || run["reason"] != "waiting_approval" {
		t.Fatalf("run = %d %v", code, run)
	}
	calls := run["waiting"].(map[string]any)["calls"].([]any)
	if c := calls[0].(map[string]any); len(calls) != 1 || c["id"] != "c1" || c["tool"] != "add" {
		t.Errorf("waits for %v", calls)
	}
	path := "/v1/runs/" + run["id"].(string) + "/signals"
	if code, _, p := s.call("POST", path, `{"answer":"x"}`); code != 409 || p["code"] != "not_waiting" {
		t.Errorf("an answer to a call that does not wait: %d %v", code, p)
	}
	approve := `{"signal_id":"s1","approvals":[{"call_id":"c1","decision":"approve"}]}`
	for range 2 { // the same signal counts once
		if code, _, p := s.call("POST", path, approve); code != 202 {
			t.Fatalf("approve: %d %v", code, p)
		}
	}
	all := s.events(run["id"].(string), 0, nil)
	if last := all[len(all)-1]; last.Type != state.EntryFinished || last.Reason != state.EndCompleted {
		t.Errorf("last event = %s %s", last.Type, last.Reason)
	}
	// A user message continues a finished run; a single_call run cannot be continued.
	id := s.submit("hello")
	s.events(id, 0, nil)
	if code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"message":"more"}`); code != 202 {
		t.Fatalf("message: %d %v", code, p)
	}
	second := func(e api.Event) bool { return e.Type == state.EntryFinished && *e.Output == "again" }
	s.events(id, 3, second)
	once := s.submit("once")
	s.events(once, 0, nil)
	if code, _, p := s.call("POST", "/v1/runs/"+once+"/signals", `{"message":"more"}`); code != 409 || p["code"] != "not_supported" {
		t.Errorf("continue a single_call (D7): %d %v", code, p)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit("slow")
	s.events(id, 0, func(e api.Event) bool { return e.Type == state.LiveTurnStarted || e.Seq > 0 })
	for range 2 {
		if code, _, p := s.call("POST", "/v1/runs/"+id+"/cancel", `{"reason":"enough"}`); code != 202 && p["code"] != "run_finished" {
			t.Fatalf("cancel: %d %v", code, p)
		}
	}
	all := s.events(id, 0, nil)
	if last := all[len(all)-1]; last.Status != state.Cancelled || !strings.Contains(last.Detail, "enough") {
		t.Errorf("last event = %+v, want cancelled, with the reason of the request", last)
	}
}

// A reader that reconnects misses no event and gets none twice (I9).
func TestEventsResume(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit("adder")
	whole := s.events(id, 0, nil)
	for i, e := range whole {
		if e.Seq != int64(i+1) || e.RunID != id {
			t.Fatalf("event %d = %+v", i+1, e)
		}
	}
	for after := range int64(len(whole)) {
		rest := s.events(id, after, nil)
		if len(rest) != len(whole)-int(after) || rest[0].Seq != after+1 {
			t.Errorf("after %d: %d events from %d", after, len(rest), rest[0].Seq)
		}
	}
	// A reader that already has the last event of an ended run is done at once.
	for e, err := range s.client.Events(t.Context(), id, int64(len(whole))) {
		t.Errorf("after the last event: %+v, %v", e, err)
	}
	if code, _, list := s.call("GET", "/v1/runs?status=failed&status=completed", ""); code != 200 || len(list["items"].([]any)) != 1 {
		t.Errorf("two statuses: %d %v", code, list)
	}
	code, _, page := s.call("GET", "/v1/runs/"+id+"/events?limit=2", "", "Accept", "application/json")
	if code != 200 || len(page["items"].([]any)) != 2 || page["next_cursor"] != "2" {
		t.Errorf("page = %d %v", code, page)
	}
	if code, _, p := s.call("GET", "/v1/runs/"+id+"/events", "", "Last-Event-ID", "x"); code != 400 || p["code"] != "invalid_cursor" {
		t.Errorf("bad id: %d %v", code, p)
	}
}

func TestIntake(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.bus.Submit("default", "hello", []byte(`{"input":"x"}`), map[string]string{"Nats-Msg-Id": "m1", "Turnpike-Reply": "reply"})
	s.bus.Submit("default", "hello", []byte(`{"input":"x"}`), map[string]string{"Nats-Msg-Id": "m1", "Turnpike-Reply": "reply"})
	s.bus.Submit("default", "hello", []byte(`{"inptu":"x"}`), map[string]string{"Turnpike-Reply": "bad"})
	s.bus.Submit("default", "nobody", []byte(`{"input":"x"}`), nil)
	deadline := time.Now().Add(2 * time.Minute)
	for len(s.bus.Replies("reply")) == 0 || len(s.bus.Replies("bad")) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no reply")
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	var run api.Run
	if err := json.Unmarshal(s.bus.Replies("reply")[0], &run); err != nil || run.Status != "completed" || *run.Output != "hi there" {
		t.Errorf("reply = %s, %v", s.bus.Replies("reply")[0], err)
	}
	if !bytes.Contains(s.bus.Replies("bad")[0], []byte("inptu")) {
		t.Errorf("reply to bad input = %s", s.bus.Replies("bad")[0])
	}
	for {
		letters, err := s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(letters) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("dead letters = %+v", letters)
		}
	}
	if page, err := s.client.List(t.Context(), nil); err != nil || len(page.Items) != 1 {
		t.Errorf("%d runs, %v; want 1: the key counts once", len(page.Items), err)
	}
}

func TestDependenciesUnreachable(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	if code, _, ready := s.call("GET", "/readyz", ""); code != 200 || ready["status"] != "ok" {
		t.Errorf("readyz = %d %v", code, ready)
	}
	s.store.setDown(true)
	code, header, p := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x"}`)
	if code != 503 || p["code"] != "store_unavailable" || header.Get("Retry-After") == "" || strings.Contains(fmt.Sprint(p), "refused") {
		t.Errorf("submit = %d %v, Retry-After %q", code, p, header.Get("Retry-After"))
	}
	if code, _, ready := s.call("GET", "/readyz", ""); code != 503 || ready["store"] == "ok" {
		t.Errorf("readyz = %d %v", code, ready)
	}
	s.store.setDown(false)
	// Without the bus a run is still accepted: the sweeper publishes it.
	if err := s.bus.Close(); err != nil {
		t.Fatal(err)
	}
	if code, _, run := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x"}`); code != 202 || run["status"] != "queued" {
		t.Errorf("submit without the bus = %d %v", code, run)
	}
}

// The OpenAPI document and the routes agree in both directions.
func TestOpenAPIAgrees(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, doc := s.call("GET", "/openapi.json", "")
	if doc["openapi"] != "3.1.0" {
		t.Fatalf("openapi = %v", doc["openapi"])
	}
	listed := map[string]bool{"GET /metrics": true}
	for path, ops := range doc["paths"].(map[string]any) {
		for method := range ops.(map[string]any) {
			listed[strings.ToUpper(method)+" "+path] = true
		}
	}
	served := map[string]bool{"GET /metrics": true}
	for _, r := range gateway.Routes(s.t) {
		served[strings.Replace(r, "...}", "}", 1)] = true // an OpenAPI template cannot express slashes
	}
	if diff := cmp.Diff(served, listed); diff != "" {
		t.Errorf("routes served (-) and documented (+):\n%s", diff)
	}
	resp, err := http.Get(s.url + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "'self'") {
		t.Errorf("page = %s %v", resp.Status, resp.Header)
	}
}

// A stream without events still sends its headers.
func TestSilentStreamOpens(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/runs/"+run["id"].(string)+"/events?after=100", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req) // returns with the headers
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type = %q", got)
	}
}

// A PUT of a definition equal to the latest version creates no version.
func TestStatusOfAPut(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for _, put := range []struct {
		definition string
		status     int
		version    float64
	}{
		{talker, http.StatusCreated, 1}, {talker, http.StatusOK, 1}, {`{"model":{"provider":"scripted","responses":[{"text":"y"}]}}`, http.StatusOK, 2},
	} {
		status, _, v := s.call("PUT", "/v1/agents/fresh", put.definition)
		if status != put.status || v["version"] != put.version {
			t.Errorf("got %d and version %v, want %d and %v", status, v["version"], put.status, put.version)
		}
	}
}
