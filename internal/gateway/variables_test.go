package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

const greeter = `{"instructions": "Greet {{who}} {{times}} times. {{nobody}}",
	"variables": {"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}, "times": {"type": "integer", "default": 2}}},
	"model": {"provider": "scripted", "responses": [{"text": "Hello."}]}}`

// systemText returns the instructions that a run began with.
func (s *deployment) systemText(id any) string {
	s.t.Helper()
	_, _, page := s.call("GET", fmt.Sprintf("/v1/runs/%v/messages", id), "")
	first := page["items"].([]any)[0].(map[string]any)
	if first["role"] != "system" {
		return ""
	}
	text := ""
	for _, p := range first["parts"].([]any) {
		text += p.(map[string]any)["text"].(string)
	}
	return text
}

// The values of a submission replace the variables of the agent's instructions, for a run, a batch
// and a fork; those that do not fit are refused with their place.
func TestVariables(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("greeter", greeter)

	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent": "greeter", "input": "go", "variables": {"who": "Ada & {{times}}"}}`)
	if run["status"] != "completed" || fmt.Sprint(run["variables"]) != "map[who:Ada & {{times}}]" {
		t.Fatalf("run = %v", run)
	}
	if got, want := s.systemText(run["id"]), "Greet Ada & {{times}} 2 times. {{nobody}}"; got != want {
		t.Errorf("instructions = %q, want %q", got, want)
	}

	for body, at := range map[string]string{
		`{"agent": "greeter", "input": "go"}`:                                                              "variables.who",
		`{"agent": "greeter", "input": "go", "variables": {"who": "A", "size": 1}}`:                        "variables.size",
		`{"agent": "greeter", "input": "go", "variables": {"who": "A", "times": "many"}}`:                  "variables",
		`{"agent": "gated", "input": "go", "variables": {"who": "A"}}`:                                     "variables",
		`{"agent": "greeter", "input": "go", "variables": {"who": "` + strings.Repeat("x", 70_000) + `"}}`: "variables",
	} {
		code, _, p := s.call("POST", "/v1/runs", body)
		var problem api.Problem
		if b, err := json.Marshal(p); err != nil || json.Unmarshal(b, &problem) != nil || code != 400 || len(problem.Errors) != 1 || problem.Errors[0].At != at {
			t.Errorf("%.80s = %d %v, want 400 at %s", body, code, p, at)
		}
	}

	code, _, batch := s.call("POST", "/v1/runs:batch", `{"runs": [{"agent": "greeter", "input": "go", "variables": {"who": "Bo"}}, {"agent": "greeter", "input": "go", "variables": {"who": "Cy", "times": 3}}]}`)
	if code != 202 {
		t.Fatalf("batch = %d %v", code, batch)
	}
	for i, want := range []string{"Greet Bo 2 times. {{nobody}}", "Greet Cy 3 times. {{nobody}}"} {
		id := batch["run_ids"].([]any)[i]
		if got := s.systemText(id); got != want {
			t.Errorf("run %d of the batch has the instructions %q, want %q", i, got, want)
		}
	}

	path := fmt.Sprintf("/v1/runs/%s/fork", run["id"])
	_, _, fork := s.call("POST", path, `{"turn": 0}`)
	if got, want := s.systemText(fork["id"]), "Greet Ada & {{times}} 2 times. {{nobody}}"; got != want || fmt.Sprint(fork["variables"]) != fmt.Sprint(run["variables"]) {
		t.Errorf("a fork has the instructions %q, want %q: %v", got, want, fork)
	}
	_, _, fork = s.call("POST", path, `{"turn": 0, "variables": {"who": "Di"}, "instructions": "Thank {{who}}."}`)
	if got, want := s.systemText(fork["id"]), "Thank Di."; got != want || fmt.Sprint(fork["variables"]) != "map[who:Di]" {
		t.Errorf("a fork with other variables has the instructions %q, want %q: %v", got, want, fork)
	}
	if _, _, turns := s.call("GET", fmt.Sprintf("/v1/runs/%s/turns", fork["id"]), ""); !strings.Contains(fmt.Sprint(turns), "the variables") {
		t.Errorf("turns of the fork = %v, want them to say that the variables changed", turns)
	}
	if code, _, p := s.call("POST", path, `{"turn": 0, "variables": {"whom": "Di"}}`); code != 400 {
		t.Errorf("a fork without a required variable = %d %v", code, p)
	}
}

// The author of a tool of kind agent fixes the variables of the other agent. A call that lacks one
// has an error as its result.
func TestVariablesOfChildren(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("greeter", greeter)
	for name, fixed := range map[string]string{"with": `, "variables": {"who": "Ada"}`, "without": ``} {
		s.put(name, `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "greet", "arguments": {"task": "go"}}]}, {"text": "Done."}]},
			"tools": [{"name": "greet", "kind": "agent", "agent": "greeter"`+fixed+`}]}`)
	}
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent": "with", "input": "go"}`)
	_, _, children := s.call("GET", fmt.Sprintf("/v1/runs?parent=%s", run["id"]), "")
	if items := children["items"].([]any); run["status"] != "completed" || len(items) != 1 || s.systemText(items[0].(map[string]any)["id"]) != "Greet Ada 2 times. {{nobody}}" {
		t.Errorf("run = %v, children = %v", run, children)
	}
	_, _, run = s.call("POST", "/v1/runs?wait=2m", `{"agent": "without", "input": "go"}`)
	_, _, messages := s.call("GET", fmt.Sprintf("/v1/runs/%s/messages", run["id"]), "")
	if want := `The agent "greeter" cannot be started: variables.who: it is missing`; run["status"] != "completed" || !strings.Contains(fmt.Sprint(messages), want) {
		t.Errorf("run = %v, messages = %v, want %s", run, messages, want)
	}
}
