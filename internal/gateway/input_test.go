package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Names in a request must match exactly, and incomplete input is refused.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	const call = `{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t","arguments":{}}]}`
	const result = `{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"x"}]}`
	tests := []struct{ input, says string }{
		{`[{"role":"user","parts":[{"type":"text","txt":"x"}]}]`, `parts[0].txt`},
		{`[{"Role":"user","content":"x"}]`, `"Role"`},
		{`[{"role":5,"content":"x"}]`, `"role" must be a string`},
		{`[{"role":"user","parts":[{"type":"text"}]}]`, "text is missing"},
		{`[{"role":"user","content":"  "}]`, "empty"},
		{`"  \n"`, "empty"},
		{`[{"role":"user"}]`, "neither"},
		{`[{"role":"user","parts":[{"type":"poem","text":"x"}]}]`, "poem"},
		{`[{"role":"user","parts":[{"type":"thinking","text":"x"}]}]`, "cannot have a part of type"},
		{`[{"role":"user","parts":[{"type":"image"}]}]`, "needs data or url"},
		{`[{"role":"user","parts":[{"type":"image","media_type":"image/png","data":"*"}]}]`, "base64"},
		{`[{"role":"assistant","parts":[{"type":"tool_call","name":"t"}]}]`, "no id or no name"},
		{`[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t","arguments":[1]}]}]`, "JSON object"},
		{`[` + call + `,{"role":"user","content":"x"}]`, "no result before the user message"},
		{`[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t"},{"type":"tool_call","id":"c","name":"t"}]},` + result + `]`, "two tool calls have the id"},
		{`[` + call + `,` + result + `,` + result + `]`, "has a result already"},
		{`[{"role":"user","content":"x","tombstoned":true}]`, "no message that the model would see"},
	}
	for _, tt := range tests {
		code, _, p := s.call("POST", "/v1/runs", `{"agent":"hello","input":`+tt.input+`}`)
		if detail, _ := p["detail"].(string); code != 400 || !strings.Contains(detail, tt.says) {
			t.Errorf("%s = %d %v, want 400 with %q", tt.input, code, p, tt.says)
		}
	}
	// Models reuse ids, also within one run: each call keeps its own result.
	body := strings.ReplaceAll(`{"agent":"adder","input":[`+call+`,`+result+`,`+call+`,`+result+`]}`, `"c"`, `"c1"`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", body)
	messages, err := s.client.Messages(t.Context(), run["id"].(string))
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, m := range messages {
		if m.Role == state.RoleTool {
			results = append(results, m.Parts[0].Content)
		}
	}
	if got := strings.Join(results, " "); got != "x x 42" {
		t.Errorf("results = %s, want x x 42", got)
	}
	for body, says := range map[string]string{
		`{"Agent":"hello","input":"x"}`:                                                              `"Agent"`,
		`{"agent":"hello","input":"x","input":"y"}`:                                                  "twice",
		`{"agent":"hello","input":"x","limits":{"max_tuns":1}}`:                                      "limits.max_tuns",
		`{"agent":"hello","input":"x","metadata":{"":"v"}}`:                                          "metadata",
		`{"agent":"hello","input":"x","webhook":{"url":"http://h","secret":"x"}}`:                    "webhook.secret",
		`{"agent":"hello","input":"x","start_at":"2999-01-01T00:00:00Z","limits":{"deadline":"1m"}}`: "deadline",
	} {
		if code, _, p := s.call("POST", "/v1/runs", body); code < 400 || !strings.Contains(p["detail"].(string), says) {
			t.Errorf("%s = %d %v, want an error with %q", body, code, p, says)
		}
	}
	if code, _, p := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x","output_schema":null,"limits":null,"webhook":null}`); code != 202 {
		t.Errorf("null as absent = %d %v", code, p)
	}
	for _, path := range []string{"/v1/runs?agent=a&agent=b", "/v1/runs?agent=%zz", "/v1/runs?created_after=yesterday"} {
		if code, _, p := s.call("GET", path, ""); code != 400 {
			t.Errorf("%s = %d %v", path, code, p)
		}
	}
	if code, _, p := s.call("GET", "/v1/runs?waiting_reason=boredom", ""); code != 400 || !strings.Contains(fmt.Sprint(p), "waiting_approval") {
		t.Errorf("an unknown waiting reason = %d %v, want the valid ones", code, p)
	}
	if code, _, p := s.call("GET", "/v1/runs?waiting_reason=waiting_approval", ""); code != 200 {
		t.Errorf("runs that wait for approval = %d %v", code, p)
	}
	if code, _, p := s.call("GET", "/v1/runs?created_after=2020-01-01T00:00:00+01:00", ""); code != 200 {
		t.Errorf("a plus in a query = %d %v", code, p)
	}
}

// The transcript of a run is valid input for another run, unchanged (A14, I5).
func TestTranscriptAsInput(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for _, view := range []string{"model", "full"} {
		id := s.submit("adder")
		s.events(id, 0, nil)
		_, _, page := s.call("GET", "/v1/runs/"+id+"/messages?view="+view, "")
		for _, m := range page["items"].([]any) {
			for _, f := range strings.Fields("id role turn at model synthetic undelivered tombstoned compacted parts") {
				if _, ok := m.(map[string]any)[f]; !ok {
					t.Errorf("view %s: a message has no %s: %v", view, f, m)
				}
			}
		}
		old := page["items"].([]any)
		input := append(old, map[string]any{"role": "user", "content": "and now?"})
		body, err := json.Marshal(map[string]any{"agent": "adder", "input": input})
		if err != nil {
			t.Fatal(err)
		}
		code, _, run := s.call("POST", "/v1/runs?wait=2m", string(body))
		if code != 200 || run["status"] != "completed" {
			t.Fatalf("view %s: %d %v", view, code, run)
		}
		_, _, page = s.call("GET", "/v1/runs/"+run["id"].(string)+"/messages", "")
		systems, ids := 0, map[string]bool{}
		for _, m := range page["items"].([]any) {
			m := m.(map[string]any)
			if m["role"] == "system" {
				systems++
			}
			if ids[m["id"].(string)] {
				t.Errorf("the id %v is used twice", m["id"])
			}
			ids[m["id"].(string)] = true
		}
		if systems != 1 {
			t.Errorf("view %s: the instructions appear %d times", view, systems)
		}
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	submit := func(body string) int {
		code, _, _ := s.call("POST", "/v1/runs", body, "Idempotency-Key", "k")
		return code
	}
	// Numbers that differ only beyond the precision of a float64 are different.
	if got := submit(`{"agent":"hello","input":"x","limits":{"total_tokens":9007199254740993}}`); got != 202 {
		t.Fatal(got)
	}
	if got := submit(`{"agent":"hello","input":"x","limits":{"total_tokens":9007199254740992}}`); got != 409 {
		t.Errorf("another number = %d, want 409", got)
	}
	// Over the bus, the agent may be given in the subject alone, and still counts for the key.
	s.bus.Submit("default", "hello", []byte(`{"input":"x"}`), map[string]string{"Nats-Msg-Id": "m", "Turnpike-Reply": "r1"})
	s.reply("r1")
	s.bus.Submit("default", "once", []byte(`{"input":"x"}`), map[string]string{"Nats-Msg-Id": "m", "Turnpike-Reply": "r2"})
	if got := s.reply("r2"); !strings.Contains(got, "idempotency_conflict") {
		t.Errorf("the same key for another agent = %s", got)
	}
	// Repeating the submission over HTTP after the end returns the same run; a waiting sender on the bus gets
	// its reply at once.
	code, _, run := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x"}`, "Idempotency-Key", "m")
	s.bus.Submit("default", "hello", []byte(`{"input":"x"}`), map[string]string{"Nats-Msg-Id": "m", "Turnpike-Reply": "r3"})
	if got := s.reply("r3"); code != 202 || !strings.Contains(got, run["id"].(string)) {
		t.Errorf("the repeated submission = %d %v; reply %s", code, run["id"], got)
	}
	s.bus.Submit("default", "hello", []byte(`{"input":"`+strings.Repeat("x", 1<<20)+`"}`), map[string]string{"Turnpike-Reply": "r4"})
	if got := s.reply("r4"); !strings.Contains(got, "body_too_large") {
		t.Errorf("a large submission = %.100s", got)
	}
}

// reply waits for the first reply on a subject.
func (s *deployment) reply(subject string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if got := s.bus.Replies(subject); len(got) > 0 {
			return string(got[0])
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("no reply on %s", subject)
		}
	}
}

// Concurrent submissions with one key create one run.
func TestIdempotencyRace(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var mu sync.Mutex
	ids := map[string]bool{}
	var group sync.WaitGroup
	for range 30 {
		group.Go(func() {
			run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: json.RawMessage(`"x"`)}, "k")
			if err != nil {
				t.Errorf("Submit: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[run.ID] = true
		})
	}
	group.Wait()
	if len(ids) != 1 {
		t.Errorf("%d runs, want 1", len(ids))
	}
}

// Of concurrent decisions about one call, exactly one counts.
func TestSignalRace(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	id := run["id"].(string)
	if code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"approvals":[{"call_id":"c1","decision":"approve"},{"call_id":"c1","decision":"deny"}]}`); code != 400 || !strings.Contains(p["detail"].(string), "twice") {
		t.Errorf("both at once = %d %v", code, p)
	}
	var mu sync.Mutex
	accepted := 0
	var group sync.WaitGroup
	for i := range 20 {
		decision := []string{"approve", "deny"}[i%2]
		group.Go(func() {
			_, err := s.client.Signal(t.Context(), id, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: decision}}})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				accepted++
			}
		})
	}
	group.Wait()
	if accepted != 1 {
		t.Errorf("%d decisions were accepted, want 1", accepted)
	}
	done, err := s.client.Wait(t.Context(), id)
	if err != nil || done.Status != "completed" {
		t.Errorf("Wait = %s, %v", done.Status, err)
	}
}

// To another tenant a run does not exist, on any route.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit("gated")
	other, err := gateway.New(s.store, s.bus, gateway.Config{Tenant: "other"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(other.Handler())
	t.Cleanup(server.Close)
	there := &deployment{t: t, url: server.URL, client: api.New(server.URL)}
	for _, r := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"GET", "/messages", ""}, {"GET", "/turns", ""}, {"GET", "/events", ""}, {"POST", "/cancel", "{}"}, {"POST", "/signals", `{"message":"x"}`},
	} {
		if code, _, p := there.call(r.method, "/v1/runs/"+id+r.path, r.body); code != 404 || p["code"] != "run_not_found" {
			t.Errorf("%s %s = %d %v", r.method, r.path, code, p)
		}
	}
	if page, err := there.client.List(t.Context(), nil); err != nil || len(page.Items) != 0 {
		t.Errorf("list = %v, %v", page.Items, err)
	}
}

func TestReadyTellsFindings(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	findings := []state.Finding{{Name: "redis: maxmemory-policy", OK: true}, {Name: "nats: version", Detail: "old"}}
	g, err := gateway.New(s.store, s.bus, gateway.Config{Checks: func(context.Context) []state.Finding { return findings }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	there := &deployment{t: t, url: server.URL}
	if code, _, ready := there.call("GET", "/readyz", ""); code != 200 || len(ready["findings"].([]any)) != 2 {
		t.Errorf("readyz = %d %v", code, ready)
	}
	findings[1].Fatal = true
	if code, _, ready := there.call("GET", "/readyz", ""); code != 503 || ready["status"] != "unavailable" {
		t.Errorf("readyz with a fatal finding = %d %v", code, ready)
	}
}

// A user message is accepted in any state of a run, and may be a message object.
func TestMessageForms(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit("hello")
	s.events(id, 0, nil)
	path := "/v1/runs/" + id + "/signals"
	for body, want := range map[string]int{
		`{"tool_results":[{"call_id":"c","content":"","images":[{"data":"?"}]}]}`: 400,
		`{"message":{"role":"assistant","content":"x"}}`:                          400, `{"message":{"role":"user"}}`: 400, `{"message":null}`: 400, `{"message":7}`: 400,
	} {
		if code, _, p := s.call("POST", path, body); code != want {
			t.Errorf("%s = %d %v", body, code, p)
		}
	}
	for _, role := range []string{"assistant", "robot"} { // a signal has only user messages, whatever roles an input may have
		_, _, p := s.call("POST", path, fmt.Sprintf(`{"message":{"role":%q,"content":"x"}}`, role))
		if want := fmt.Sprintf("message: role is %q: write user, or omit it", role); p["detail"] != want {
			t.Errorf("detail = %v, want %s", p["detail"], want)
		}
	}
	code, _, run := s.call("POST", path, `{"message":{"parts":[{"type":"text","text":"more"}]}}`)
	if code != 202 || state.Status(run["status"].(string)).Terminal() && run["output"] != "again" {
		t.Errorf("message = %d %v", code, run)
	}
}
