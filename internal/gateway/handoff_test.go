package gateway_test

import (
	"fmt"
	"testing"
)

// A handoff tool without a name is named after its target agent, and the version shows that name.
func TestHandoffWithoutAName(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("billing", `{"model": {"provider": "scripted", "responses": [{"text": "Billing here."}, {"text": "Paid."}]}}`)
	s.put("desk", `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "transfer_to_billing", "arguments": {}}]}]},
		"tools": [{"kind": "handoff", "agent": "billing"}]}`)

	_, _, saved := s.call("GET", "/v1/agents/desk", "")
	tools := saved["definition"].(map[string]any)["tools"].([]any)
	if name := tools[0].(map[string]any)["name"]; name != "transfer_to_billing" {
		t.Errorf("the version names the tool %v", name)
	}
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent": "desk", "input": "pay"}`)
	if run["status"] != "completed" || run["output"] != "Paid." || fmt.Sprint(run["active_agent"]) != "map[name:billing version:1]" {
		t.Errorf("the run ends %v with %v by %v", run["status"], run["output"], run["active_agent"])
	}
}
