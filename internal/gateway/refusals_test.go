package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// refusal is a request that the gateway refuses, with the status, the code and a part of the text.
type refusal struct {
	method, path, body string
	headers            []string
	status             int
	code, says         string
}

// wantRefused makes each request.
func (s *deployment) wantRefused(list []refusal) {
	s.t.Helper()
	for _, r := range list {
		code, _, p := s.call(r.method, r.path, r.body, r.headers...)
		detail, _ := p["detail"].(string)
		if code != r.status || p["code"] != r.code || !strings.Contains(detail, r.says) {
			s.t.Errorf("%s %.60s %.80s\n  = %d %v; want %d %s with %q", r.method, r.path, r.body, code, p, r.status, r.code, r.says)
		}
	}
}

// The limits of a submission are those that the reference states.
func TestRefusedSubmissions(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("remembers", `{model: {provider: scripted}, tools: [{name: memory, kind: memory, scope: metadata.user}]}`)
	metadata := func(n int) string {
		values := map[string]string{}
		for i := range n {
			values[fmt.Sprint("k", i)] = "v"
		}
		b, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run := func(more string) string { return `{"agent":"hello","input":"x",` + more + `}` }
	messages := strings.Repeat(`{"role":"user","content":"x"},`, 2001)
	bad := func(body, says string) refusal {
		return refusal{"POST", "/v1/runs", body, nil, 400, "invalid_request", says}
	}
	s.wantRefused([]refusal{
		bad(run(`"delay":"-1s"`), "delay is -1s"),
		bad(run(`"delay":"1s","start_at":"2099-01-01T00:00:00Z"`), "delay and start_at"),
		bad(run(`"confidence":1.5`), "confidence 1.5"),
		bad(run(`"confidence":-0.1`), "confidence -0.1"),
		bad(run(`"metadata":`+metadata(65)), "metadata has 65 entries"),
		bad(run(`"metadata":{"":"x"}`), "1 to 255 bytes"),
		bad(run(`"metadata":{"k":"`+strings.Repeat("x", 4097)+`"}`), "at most 4096"),
		bad(run(`"limits":{"deadline":0}`), "limits.deadline"),
		bad(run(`"limits":{"deadline":"2099-01-01T00:00:00Z"},"start_at":"2099-01-02T00:00:00Z"`), "its deadline is"),
		bad(`{"agent":"hello","input":[`+strings.TrimSuffix(messages, ",")+`]}`, "at most 2000"),
		bad(`{"agent":"remembers","input":"x"}`, "metadata.user is missing"),
		bad(`{"agent":"remembers","input":"x","metadata":{"user":"`+strings.Repeat("x", 4000)+`"}}`, "metadata.user has 4000 bytes"),
		{"POST", "/v1/runs", run(`"stream":"turns"`), []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "invalid_request", "256 bytes"},
		{"POST", "/v1/runs:batch", `{"runs":[` + run(`"stream":"turns"`) + `]}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "invalid_request", "256 bytes"},
		{"POST", "/v1/runs:batch", `{"runs":[` + run(`"stream":"turns"`) + `],"max_parallel":0}`, nil, 400, "invalid_request", "max_parallel is 0"},
		{"POST", "/v1/runs?wait=601", run(`"stream":"turns"`), nil, 400, "invalid_request", "at most 10m0s"},
		{"GET", "/v1/agents?status=asleep", ``, nil, 400, "invalid_request", "draft or published"},
	})
	if page, err := s.client.List(t.Context(), nil); err != nil || len(page.Items) != 0 {
		t.Errorf("%d runs exist, %v; want none of those that were refused", len(page.Items), err)
	}
	for _, more := range []string{`"metadata":` + metadata(64), `"metadata":{"k":"` + strings.Repeat("x", 4096) + `"}`, `"confidence":1`} {
		if code, _, p := s.call("POST", "/v1/runs", run(more)); code != 202 {
			t.Errorf("%.60s: %d %v, want it accepted", more, code, p)
		}
	}
	if code, _, p := s.call("POST", "/v1/runs?wait=60", run(`"stream":"turns"`)); code != 200 || p["status"] != "completed" {
		t.Errorf("a wait of 60: %d %v, want the run at its end", code, p)
	}
}

// A signal that cannot be right is refused, whatever the run waits for.
func TestRefusedSignals(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	code, _, waiting := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	if code != 200 || waiting["reason"] != "waiting_approval" {
		t.Fatalf("run = %d %v", code, waiting)
	}
	path := "/v1/runs/" + waiting["id"].(string) + "/signals" //nolint:forcetypeassert // a run
	bad := func(body, says string, headers ...string) refusal {
		return refusal{"POST", path, body, headers, 400, "invalid_request", says}
	}
	s.wantRefused([]refusal{
		bad(`{"message":"x","mode":"shout"}`, `mode is "shout"`),
		bad(`{"answer":"x","mode":"interrupt"}`, "mode applies to a message"),
		bad(`{"message":" "}`, "it is empty"),
		bad(`{"approvals":[{"decision":"approve"}]}`, "approvals[0].call_id is missing"),
		bad(`{"tool_results":[{"content":"x"}]}`, "tool_results[0].call_id is missing"),
		bad(`{"approvals":[{"call_id":"c1","decision":"approve"},{"call_id":"c1","decision":"deny"}]}`, "twice"),
		bad(`{"signal_id":"`+strings.Repeat("s", 256)+`","message":"x"}`, "signal_id has 256 bytes"),
		bad(`{"signal_id":"a","message":"x"}`, "send one of them", "Idempotency-Key", "b"),
	})
	busy := s.submit("slow")
	s.wantRefused([]refusal{{"POST", "/v1/runs/" + busy + "/signals", `{"message":"x","mode":"reject"}`, nil, 409, "run_busy", ""}})
	run, err := s.client.Get(t.Context(), waiting["id"].(string)) //nolint:forcetypeassert // as above
	if err != nil || run.Reason == nil || *run.Reason != "waiting_approval" {
		t.Errorf("the run is %+v, %v; want it to wait as before", run, err)
	}
	// An interrupt ends the wait, which a message in the queue does not.
	if _, err := s.client.Signal(t.Context(), run.ID, api.SignalRequest{Message: api.Text("stop"), Mode: api.ModeInterrupt}); err != nil {
		t.Fatal(err)
	}
	denied := s.events(run.ID, 0, func(e api.Event) bool { return e.Approval != nil })
	if a := denied[len(denied)-1].Approval; a.Decision != "deny" || a.Reason != "interrupted" {
		t.Errorf("the interrupt decides %+v, want a denial", a)
	}
}

// The report of an evaluation is refused if its parts contradict each other.
func TestRefusedEvaluations(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	const id = "run_01JD3X9K3W8Q4V5N6M7P8R9S0T"
	put := func(edit func(r map[string]any)) string {
		result := map[string]any{"case": "c", "version": "a@1", "repeat": 1, "run_id": id, "status": "completed", "failures": []any{}, "cost_usd": 0, "tokens": 1, "turns": 1, "seconds": 1}
		report := map[string]any{
			"file": "cases.yaml", "repeat": 1, "judge_cost_usd": 0, "results": []any{result},
			"versions": []any{map[string]any{"version": "a@1", "runs": 1, "passed": 1, "cost_usd": 0, "tokens": 1, "turns": 1, "seconds": 1}},
		}
		edit(report)
		b, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := func(r map[string]any, list, key string, value any) {
		r[list].([]any)[0].(map[string]any)[key] = value //nolint:forcetypeassert // as in put
	}
	var list []refusal
	for _, figure := range []string{"cost_usd", "tokens", "turns", "seconds"} {
		for _, of := range []string{"results", "versions"} {
			list = append(list, refusal{"PUT", "/v1/evaluations/e1", put(func(r map[string]any) { first(r, of, figure, -1) }), nil, 400, "invalid_request", of + "[0] has the cost_usd"})
		}
	}
	for says, edit := range map[string]func(r map[string]any){
		"results is empty":       func(r map[string]any) { r["results"] = []any{} },
		"versions has 0 entries": func(r map[string]any) { r["versions"] = []any{} },
		"already the first": func(r map[string]any) {
			r["versions"] = append(r["versions"].([]any), r["versions"].([]any)[0]) //nolint:forcetypeassert // as in put
		},
		"nothing to compare":            func(r map[string]any) { r["differences"] = []any{map[string]any{"figure": "tokens", "p": 0.5}} },
		"it counts 2 runs":              func(r map[string]any) { first(r, "versions", "runs", 2) },
		"results[0].repeat is 2":        func(r map[string]any) { first(r, "results", "repeat", 2) },
		"not the status of an ended":    func(r map[string]any) { first(r, "results", "status", "waiting") },
		"results[0].case is empty":      func(r map[string]any) { first(r, "results", "case", "") },
		"judge_cost_usd is -1":          func(r map[string]any) { r["judge_cost_usd"] = -1 },
		"is not one of the entries of":  func(r map[string]any) { first(r, "results", "version", "a@2") },
		"but the path has":              func(r map[string]any) { r["id"] = "other" },
		"those of an earlier entry":     func(r map[string]any) { r["results"] = append(r["results"].([]any), r["results"].([]any)[0]) }, //nolint:forcetypeassert // as in put
		"is not NAME@VERSION of an age": func(r map[string]any) { first(r, "versions", "version", "a"); first(r, "results", "version", "a") },
	} {
		list = append(list, refusal{"PUT", "/v1/evaluations/e1", put(edit), nil, 400, "invalid_request", says})
	}
	s.wantRefused(list)
	if code, _, p := s.call("PUT", "/v1/evaluations/e1", put(func(map[string]any) {})); code != 201 {
		t.Errorf("the report without a mistake: %d %v", code, p)
	}
}
