package gateway_test

import (
	"strings"
	"testing"
)

// A missing version is not reported as a missing agent.
func TestMissingVersion(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("desk", `{"model": {"provider": "scripted", "responses": [{"text": "Hello."}]}}`)
	code, _, problem := s.call("POST", "/v1/runs", `{"agent": "desk", "input": "go", "agent_version": 9}`)
	if detail, _ := problem["detail"].(string); code != 404 || problem["code"] != "agent_not_found" || !strings.HasPrefix(detail, `agent "desk" has no version 9: `) {
		t.Errorf("%d %v", code, problem)
	}
}
