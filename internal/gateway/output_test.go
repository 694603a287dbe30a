package gateway_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// A submission's output schema applies to the run with its tools, to messages to it, to its forks, and to the
// result that a parent gets (D8).
func TestOutputSchema(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	const schema = `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`
	s.put("counter", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1}]}, {text: "42"}, {text: '{"n": 42}'}, {text: "43"}, {text: '{"n": 43}'}]}, tools: [{name: add}]}`)
	value := func(run map[string]any) string {
		b, err := json.Marshal(run["structured_output"])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(run["status"], " ", run["reason"], " ", run["turn_count"], " ", string(b))
	}
	code, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"counter","input":"6*7","output_schema":`+schema+`}`)
	if got := value(run); code != 200 || got != `completed completed 3 {"n":42}` {
		t.Fatalf("the run is %d %s", code, got)
	}
	id := run["id"].(string)
	if code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"message":"and one more"}`); code != 202 {
		t.Fatalf("message: %d %v", code, p)
	}
	s.events(id, 0, nil)
	if _, _, run = s.call("GET", "/v1/runs/"+id+"", ""); value(run) != `completed completed 5 {"n":43}` {
		t.Errorf("after a message the run is %s", value(run))
	}

	s.put("counter", `{model: {provider: scripted, responses: [{text: "forty-two"}, {text: '{"n": 42}'}]}, tools: [{name: add}]}`)
	code, _, fork := s.call("POST", "/v1/runs/"+id+"/fork", `{"turn":1,"agent_version":2}`)
	if code != 202 {
		t.Fatalf("fork: %d %v", code, fork)
	}
	s.events(fork["id"].(string), 0, nil)
	if _, _, fork = s.call("GET", "/v1/runs/"+fork["id"].(string), ""); value(fork) != `completed completed 3 {"n":42}` {
		t.Errorf("the fork is %s", value(fork))
	}

	s.put("child", `{output_schema: `+schema+`, model: {provider: scripted, responses: [{text: "no"}, {text: '{ "n": 7 }'}]}, tools: [{name: add}]}`)
	s.put("parent", `{model: {provider: scripted, responses: [{tool_calls: [{name: child, arguments: {task: count}}]}, {text: done}]}, tools: [{name: child, kind: agent, agent: child}]}`)
	parent := s.submit("parent")
	s.events(parent, 0, nil)
	_, _, list := s.call("GET", "/v1/runs/"+parent+"/messages", "")
	b, err := json.Marshal(list["items"].([]any)[2])
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Parts []struct{ Content string }
	}
	if err := json.Unmarshal(b, &result); err != nil || result.Parts[0].Content != `{"n":7}` {
		t.Errorf("the parent gets %s", b)
	}

	s.put("talker", `{model: {provider: scripted, responses: [{text: hm}]}, loop: {converse: true}}`)
	if code, _, p := s.call("POST", "/v1/runs", `{"agent":"talker","input":"x","output_schema":`+schema+`}`); code != 400 {
		t.Errorf("a conversation with a schema: %d %v", code, p)
	}
}
