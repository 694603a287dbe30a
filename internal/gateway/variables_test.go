package gateway_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

const greeter = `{"instructions": "Greet {{who}} {{times}} times. {{nobody}}",
	"variables": {"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}, "times": {"type": "integer", "default": 2}}},
	"model": {"provider": "scripted", "responses": [{"text": "Hello."}]}}`

// systemText returns a run's initial instructions.
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

// The values of a submission replace the variables in the agent's instructions, for a run, a batch and a fork.
// Invalid values are refused with their location.
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
		`{"agent": "greeter", "input": "go", "variables": {"who": "A", "times": "many"}}`:                  "variables.times",
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

	// Readers never receive bytes that are not UTF-8.
	_, _, odd := s.call("POST", "/v1/runs", "{\"agent\": \"greeter\", \"input\": \"go\", \"variables\": {\"who\": \"A\xff\"}}")
	if got, want := s.systemText(odd["id"]), "Greet A\uFFFD 2 times. {{nobody}}"; got != want || fmt.Sprint(odd["variables"]) != "map[who:A\uFFFD]" {
		t.Errorf("instructions = %q, want %q: %v", got, want, odd)
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

// The runs of a batch share a budget: neither the memory of their instructions nor the time to check their
// values grows with the number of runs.
func TestVariablesOfHostileBatches(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("long", `{"instructions": "{{a}}{{n}}", "model": {"provider": "scripted"},
		"variables": {"properties": {"n": {}, "a": {"default": "`+strings.Repeat("d", 100_000)+`"}}}}`)
	s.put("dear", `{"instructions": "{{a}}", "model": {"provider": "scripted"},
		"variables": {"properties": {"n": {}, "a": {"type": "array", "items": {"anyOf": [`+strings.Repeat(`{"type": "string"},`, 500)+`true]}}}}}`)
	batch := func(agent, values string) string {
		var runs []string
		for i := range 200 {
			runs = append(runs, fmt.Sprintf(`{"agent": %q, "input": "x", "variables": {"n": %d%s}}`, agent, i, values))
		}
		return `{"max_parallel": 1, "runs": [` + strings.Join(runs, ",") + `]}`
	}
	for body, want := range map[string]string{
		batch("long", ""): "runs[83]: variables: with their values, the instructions of the batch's runs have more than 8388608 bytes",
		batch("dear", `, "a": [`+strings.TrimSuffix(strings.Repeat("1,", 200), ",")+`]`): "was stopped after",
	} {
		if code, _, p := s.call("POST", "/v1/runs:batch", body); code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), want) {
			t.Errorf("batch = %d %.300v, want %s", code, p, want)
		}
	}
	same := strings.ReplaceAll(batch("long", ""), `{"n": `, `{"n": 1`)
	same = regexp.MustCompile(`"n": \d+`).ReplaceAllString(same, `"n": 1`)
	if code, _, p := s.call("POST", "/v1/runs:batch", same); code != 202 {
		t.Errorf("a batch of runs with equal values = %d %.300v", code, p)
	}
}

// The author of a tool of kind agent fixes the other agent's variables. A call that lacks one gets an error
// result.
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
