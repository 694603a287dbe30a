package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A fork shares the history up to a turn and continues on its own (L9).
func TestFork(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("counting", `{"model": {"provider": "scripted", "responses": [
		{"tool_calls": [{"name": "add", "arguments": {"n": 1}}]}, {"tool_calls": [{"name": "add", "arguments": {"n": 2}}]}, {"text": "done"}]},
		"tools": [{"name": "add"}], "loop": {"max_turns": 3}}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"counting","input":"go","metadata":{"k":"v"}}`)
	if run["status"] != "completed" || run["turn_count"] != 3.0 {
		t.Fatalf("run = %v", run)
	}
	path := fmt.Sprintf("/v1/runs/%s/fork", run["id"])
	code, _, forked := s.call("POST", path, `{"turn":1,"input":"do it differently"}`)
	if code != 202 || forked["id"] == run["id"] {
		t.Fatalf("fork = %d %v", code, forked)
	}
	id := forked["id"].(string)
	s.events(id, 0, nil)
	_, _, page := s.call("GET", "/v1/runs/"+id+"/messages", "")
	var roles []string
	for _, m := range page["items"].([]any) {
		roles = append(roles, fmt.Sprintf("%v@%v", m.(map[string]any)["role"], m.(map[string]any)["turn"]))
	}
	// The fork's model starts its script from the beginning, and has all the turns that the agent may take.
	want := "[user@0 assistant@1 tool@1 user@1 assistant@2 tool@2 assistant@3 tool@3 assistant@4]"
	if fmt.Sprint(roles) != want {
		t.Errorf("messages = %v, want %s", roles, want)
	}
	_, _, turns := s.call("GET", "/v1/runs/"+id+"/turns", "")
	first := turns["items"].([]any)[0].(map[string]any)
	if first["reason"] != "forked" || first["detail"] != fmt.Sprintf("%s turn 1", run["id"]) {
		t.Errorf("first transition = %v", first)
	}
	_, _, forked = s.call("GET", "/v1/runs/"+id, "")
	if forked["status"] != "completed" || forked["turn_count"] != 4.0 || forked["metadata"].(map[string]any)["k"] != "v" || forked["usage"].(map[string]any)["model_calls"] != 3.0 {
		t.Errorf("forked run = %v", forked)
	}
	for body, want := range map[string]string{
		`{}`:                        "turn is missing",
		`{"turn":9}`:                "turn 9 does not exist: name a turn from 0 to 3",
		`{"turn":-1}`:               "turn -1 does not exist: name a turn from 0 to 3",
		`{"turn":3}`:                "turn 3 ends with an answer of the model, and nothing follows it: give an input",
		`{"turn":1,"input":[]}`:     "send a string, a list of messages, or a transcript",
		`{"turn":1,"inputs":"wat"}`: `unknown field "inputs"`,
	} {
		code, _, p := s.call("POST", path, body)
		if code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), want) {
			t.Errorf("fork %s = %d %v, want %q", body, code, p["detail"], want)
		}
	}
	// A turn with unanswered calls cannot be forked.
	_, _, waiting := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	if code, _, p := s.call("POST", fmt.Sprintf("/v1/runs/%s/fork", waiting["id"]), `{"turn":1}`); code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), "have no result yet") {
		t.Errorf("fork of a waiting turn = %d %v", code, p)
	}
}

// A repeated fork under its key answers with the first one's run, also when its source has been deleted.
func TestForkIsRepeatedAfterDeletion(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, source := s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	path := fmt.Sprintf("/v1/runs/%s", source["id"])
	_, _, first := s.call("POST", path+"/fork", `{"turn":0,"input":"y"}`, "Idempotency-Key", "k")
	if code, _, p := s.call("DELETE", path, ""); code != 204 {
		t.Fatalf("DELETE = %d %v", code, p)
	}
	if code, _, again := s.call("POST", path+"/fork", `{ "input":"y","turn":0 }`, "Idempotency-Key", "k"); code != 202 || first["id"] == nil || again["id"] != first["id"] {
		t.Errorf("repeated fork = %d %v, want run %v", code, again, first["id"])
	}
	if code, _, p := s.call("POST", path+"/fork", `{"turn":0,"input":"z"}`, "Idempotency-Key", "k"); code != 409 || p["code"] != "idempotency_conflict" {
		t.Errorf("fork with another body = %d %v, want 409", code, p)
	}
	if code, _, p := s.call("POST", path+"/fork", `{"turn":0,"input":"y"}`, "Idempotency-Key", "l"); code != 404 {
		t.Errorf("fork of a deleted run under a new key = %d %v, want 404", code, p)
	}
}

// The session view shows what the participants saw (K6).
func TestSessionView(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("prompted", `{"loop": {"type": "two_phase"}, "tools": [{"name": "add"}], "model": {"provider": "scripted", "responses": [
		{"text": "{\"tool\": \"add\", \"arguments\": {\"x\": 1}}"}, {"text": "{}"}, {"text": "One."}]}}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"prompted","input":"go"}`)
	if run["status"] != "completed" || run["output"] != "One." {
		t.Fatalf("run = %v", run)
	}
	_, _, page := s.call("GET", fmt.Sprintf("/v1/runs/%s/messages?view=session", run["id"]), "")
	var types []any
	for _, e := range page["items"].([]any) {
		types = append(types, e.(map[string]any)["type"])
	}
	if got := fmt.Sprint(types); got != "[user_message tool_call tool_result agent_response]" {
		t.Errorf("session = %s", got)
	}
}

// Do runs to the end in one call, passes on each event as it arrives, and returns them all (L8).
func TestDo(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	seen := 0
	run, events, err := s.client.Do(t.Context(), api.SubmitRequest{Agent: "adder", Input: json.RawMessage(`"go"`)}, "", func(api.Event) { seen++ })
	if err != nil || run.Status != "completed" || len(events) == 0 || seen != len(events) || events[len(events)-1].Type != state.EntryFinished {
		t.Errorf("Do = %s, %d events of which %d were passed on, %v", run.Status, len(events), seen, err)
	}
}

// Wait does not return while a run waits for its own child runs.
func TestWaitSeesThroughChildren(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("delegator", `{"tools": [{"name": "ask", "kind": "agent", "agent": "adder"}], "model": {"provider": "scripted", "responses": [
		{"tool_calls": [{"name": "ask", "arguments": {"task": "x"}}]}, {"text": "done"}]}}`)
	code, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"delegator","input":"go"}`)
	if code != 200 || run["status"] != "completed" {
		t.Fatalf("run = %d %v %v", code, run["status"], run["reason"])
	}
	_, _, page := s.call("GET", fmt.Sprintf("/v1/runs?parent=%s", run["id"]), "")
	items := page["items"].([]any)
	if len(items) != 1 || items[0].(map[string]any)["parent"].(map[string]any)["run_id"] != run["id"] {
		t.Errorf("runs below: %v", items)
	}
}
