package gateway_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// CancelRuns cancels all matching runs in flight and no others.
func TestCancelRuns(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var slow []string
	for range 3 {
		slow = append(slow, s.submit("slow"))
	}
	gated := s.submit("gated")
	done := s.submit("hello")
	if _, err := s.client.Wait(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	slices.Sort(slow)
	slices.Reverse(slow)
	status := func(id string) any {
		_, _, run := s.call("GET", "/v1/runs/"+id, "")
		return run["status"]
	}
	check := func(what, body string, code int, matched, cancelled float64) {
		t.Helper()
		got, _, a := s.call("POST", "/v1/runs:cancel", body)
		if got != code || a["matched"] != matched || a["cancelled"] != cancelled || len(a["run_ids"].([]any)) != int(matched) || a["next_cursor"] != nil {
			t.Errorf("%s: %d %v", what, got, a)
		}
	}
	check("dry run", `{"filter":{"agent":"slow"},"dry_run":true}`, http.StatusOK, 3, 0)
	check("nobody's", `{"filter":{"metadata":{"k":"v"}}}`, http.StatusAccepted, 0, 0)
	check("of one agent", `{"filter":{"agent":"slow"},"reason":"enough"}`, http.StatusAccepted, 3, 3)
	for _, id := range slow {
		if run, err := s.client.Wait(t.Context(), id); err != nil || run.Status != "cancelled" || run.Transition.Detail != "enough" {
			t.Errorf("%s is %s (%q), %v", id, run.Status, run.Transition.Detail, err)
		}
	}
	check("again", `{"filter":{"agent":"slow"}}`, http.StatusAccepted, 0, 0)
	eventually(t, "the gated run waits", func() bool { return status(gated) == "waiting" })
	check("by status", `{"filter":{"status":"waiting","waiting_reason":"waiting_approval"}}`, http.StatusAccepted, 1, 1)
	eventually(t, "it is cancelled", func() bool { return status(gated) == "cancelled" })
	if status(done) != "completed" {
		t.Error("a run that had ended is", status(done))
	}
	for body, says := range map[string]string{
		`{}`:                                  "filter is missing",
		`{"filter":{}}`:                       "filter is empty",
		`{"filter":{"status":["completed"]}}`: "cannot be cancelled",
		`{"filter":{"status":["x"]}}`:         `status is "x": use one of`,
		`{"filter":{"id":"x"}}`:               "unknown field",
		`{"filter":{"agent":"a"},"reason":"` + strings.Repeat("x", 5000) + `"}`: "reason has",
	} {
		if code, _, p := s.call("POST", "/v1/runs:cancel", body); code != http.StatusBadRequest || !strings.Contains(p["detail"].(string), says) {
			t.Errorf("%.60s = %d %v", body, code, p)
		}
	}
}

// It does not cancel runs of another tenant, and the audit records who cancelled many runs.
func TestCancelRunsOfOneTenant(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	foreign, own := s.run("other"), s.run("acme")
	key := s.key("acme", access.Operator)
	status, _ := s.do("POST", "/v1/runs:cancel", key, "", `{"filter":{"status":["queued","running","waiting"]}}`)
	if status != http.StatusAccepted {
		t.Fatal(status)
	}
	if a := s.store.aborted; !slices.Equal(a, []string{own.ID}) {
		t.Errorf("aborted %v, want %s and not %s", a, own.ID, foreign.ID)
	}
	audit, err := s.client("acme", access.Admin).Audit(t.Context(), "", 0)
	if err != nil || !slices.ContainsFunc(audit.Items, func(e api.AuditEntry) bool {
		return e.Action == "run.cancel_many" && strings.Contains(e.Target, "queued")
	}) {
		t.Errorf("audit = %+v, %v", audit, err)
	}
}

// Each version of an agent is listed with the figures of its runs.
func TestAgentVersions(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	s.put("hello", `{model: {provider: scripted, responses: [{error: auth}]}}`)
	s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	code, _, page := s.call("GET", "/v1/agents/hello/versions?limit=1", "")
	v2 := page["items"].([]any)[0].(map[string]any)
	if runs := v2["runs"].(map[string]any); code != http.StatusOK || v2["version"] != 2.0 || v2["latest"] != true || runs["total"] != 2.0 || runs["statuses"].(map[string]any)["failed"] != 2.0 {
		t.Errorf("the newest = %d %v", code, v2)
	}
	if page["examined"] != 3.0 || page["complete"] != true {
		t.Errorf("page = %v", page)
	}
	_, _, page = s.call("GET", "/v1/agents/hello/versions?cursor="+page["next_cursor"].(string), "")
	v1 := page["items"].([]any)[0].(map[string]any)
	runs := v1["runs"].(map[string]any)
	if cost, there := runs["cost_usd"]; !there || cost != nil {
		t.Errorf("the cost of a model without a price = %v", cost)
	}
	if len(page["items"].([]any)) != 1 || v1["version"] != 1.0 || v1["latest"] != false || runs["statuses"].(map[string]any)["completed"] != 1.0 || runs["duration_ms"].(map[string]any)["p95"] == nil {
		t.Errorf("the first = %v", page)
	}
	if code, _, _ := s.call("GET", "/v1/agents/nobody/versions", ""); code != http.StatusNotFound {
		t.Errorf("versions of an unknown agent = %d", code)
	}
	if code, _, p := s.call("GET", "/v1/agents/hello/versions?cursor=9", ""); code != http.StatusBadRequest {
		t.Errorf("an invalid cursor = %d %v", code, p)
	}
}

// Workers are listed with their slots, build and turns, and unreachable ones are marked.
func TestWorkersAndQueues(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, func(c *worker.Config) { c.Slots, c.Version = 7, "v1.2.3" })
	taken := make(chan struct{}, 1)
	stop, err := s.bus.Heartbeats(t.Context(), func(h bus.Heartbeat) {
		if h.Worker == "w1" && maps.Equal(h.Turns, map[state.Priority]int{state.Normal: 1}) {
			select {
			case taken <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	id := s.submit("slow")
	find := func(name string) map[string]any {
		_, _, page := s.call("GET", "/v1/workers", "")
		for _, w := range page["items"].([]any) {
			if w := w.(map[string]any); w["id"] == name {
				return w
			}
		}
		return nil
	}
	var w map[string]any
	eventually(t, "the worker holds the run", func() bool {
		w = find("w1")
		return w != nil && w["holds"] == 1.0 && w["version"] == "v1.2.3" && w["status"] == "alive"
	})
	if w["slots"] != 7.0 || w["runs"].([]any)[0] != id || w["heard_at"] == nil {
		t.Errorf("worker = %v", w)
	}
	<-taken                                          // its heartbeats have its turns
	s.bus.SendHeartbeat(bus.Heartbeat{Worker: "w9"}) // its last heartbeat
	eventually(t, "it is unreachable", func() bool { w := find("w9"); return w != nil && w["status"] == "unreachable" })
	s.bus.SendHeartbeat(bus.Heartbeat{Worker: "w9", Leaving: true})
	eventually(t, "it has left", func() bool { return find("w9") == nil })

	code, _, queues := s.call("GET", "/v1/queues", "")
	lanes := queues["items"].([]any)
	if code != http.StatusOK || len(lanes) != 3 || lanes[0].(map[string]any)["lane"] != "high" || queues["runs"].(map[string]any)["running"] != 1.0 {
		t.Errorf("queues = %d %v", code, queues)
	}
}

// Workers and queues belong to the whole deployment: a principal of one tenant cannot see them.
func TestSiteIsTheDeployments(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	for _, path := range []string{"/v1/workers", "/v1/queues"} {
		if status, p := s.do("GET", path, s.key("acme", access.Operator), "", ""); status != http.StatusForbidden || p.Code != api.CodeForbidden {
			t.Errorf("%s of a tenant's operator: %d %s", path, status, p.Code)
		}
		if status, p := s.do("GET", path, s.key("*", access.Viewer), "", ""); status != http.StatusOK {
			t.Errorf("%s of the deployment's viewer: %d %s", path, status, p.Detail)
		}
	}
}

// A draft definition can be tried without being saved.
func TestDraft(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	draft := func(definition string) (int, map[string]any) {
		code, _, run := s.call("POST", "/v1/drafts", `{"definition":`+definition+`,"input":"x","metadata":{"ticket":"7"}}`)
		return code, run
	}
	code, run := draft(`{"name":"hello","model":{"provider":"scripted","responses":[{"text":"from a draft"}]}}`)
	if code != http.StatusAccepted {
		t.Fatalf("%d %v", code, run)
	}
	ended, err := s.client.Wait(t.Context(), run["id"].(string))
	if err != nil || ended.Output == nil || *ended.Output != "from a draft" || ended.Metadata["draft"] != "hello" || ended.Metadata["ticket"] != "7" {
		t.Errorf("run = %+v, %v", ended, err)
	}
	// The same draft again is the same agent, in YAML or JSON.
	_, again := draft(`"name: hello\nmodel: {provider: scripted, responses: [{text: from a draft}]}"`)
	if again["agent"] != run["agent"] || again["agent_version"] != 1.0 || again["id"] == run["id"] {
		t.Errorf("again = %v", again)
	}
	agents, err := s.client.Agents(t.Context())
	if err != nil || slices.ContainsFunc(agents, func(a api.Agent) bool { return a.Name == run["agent"] }) {
		t.Errorf("agents = %v, %v", agents, err)
	}
	if _, _, hello := s.call("GET", "/v1/agents/hello", ""); hello["version"] != 1.0 {
		t.Errorf("the saved agent = %v", hello)
	}
	for body, want := range map[string]string{
		`{"input":"x"}`: api.CodeInvalidRequest,
		`{"definition":{"model":{"provider":"scripted"}},"agent":"hello","input":"x"}`: api.CodeInvalidRequest,
		`{"definition":{"modell":{}},"input":"x"}`:                                     api.CodeInvalidAgent,
		`{"definition":"{","input":"x"}`:                                               api.CodeInvalidAgent,
	} {
		if code, _, p := s.call("POST", "/v1/drafts", body); code != http.StatusBadRequest || p["code"] != want {
			t.Errorf("%s = %d %v", body, code, p)
		}
	}
	twice := `{"definition":"model: {provider: scripted}\ntools:\n  - {name: a}\n  - {name: a}\n","input":"x"}`
	if _, _, p := s.call("POST", "/v1/drafts", twice); !strings.Contains(fmt.Sprint(p["errors"]), "line:4") {
		t.Errorf("errors of a draft = %v; want the line of the second tool", p)
	}
}

// A draft may contain anything, so it requires the roles to define agents and to submit.
func TestDraftWantsBothRoles(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	body := `{"definition":` + "\"" + `model: {provider: scripted, responses: [{text: x}]}` + "\"" + `,"input":"x"}`
	for _, role := range access.Roles() {
		if status, p := s.do("POST", "/v1/drafts", s.key("acme", role), "", body); status != http.StatusForbidden {
			t.Errorf("as %s: %d %s", role, status, p.Detail)
		}
	}
	if status, p := s.do("POST", "/v1/drafts", s.key("acme", access.Author, access.Submitter), "", body); status != http.StatusAccepted {
		t.Errorf("as both: %d %s", status, p.Detail)
	}
}

// The count of a worker's turns is complete, however many it has.
func TestWorkerHoldsMany(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{}) // no other worker evicts this one
	g, err := gateway.New(store, membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	n := 100_001
	if testing.Short() {
		n = 1001
	}
	first := state.FirstIDAt(time.Now())
	for i := range n {
		run, err := state.State{ID: first.Plus(i), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal}.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		ask := state.ClaimRequest{Run: run.ID, Version: run.Version, Token: "t", Worker: "w8", Lease: time.Hour, RedeliveryDelay: time.Hour}
		if c, err := store.Claim(t.Context(), ask); err != nil || c.Outcome != state.Claimed {
			t.Fatalf("claim: %s, %v", c.Outcome, err)
		}
	}
	workers, err := api.New(server.URL).Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(workers, func(w api.Worker) bool { return w.ID == "w8" })
	if i < 0 || workers[i].Holds != n || len(workers[i].Runs) != 10 {
		t.Errorf("workers = %+v", workers)
	}
}
