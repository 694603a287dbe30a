package gateway_test

import (
	"fmt"
	"testing"
)

// A decision that names what it was about does not approve the next turn's call of the same id.
func TestStaleApproval(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("twice", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1, arguments: {n: 1}}]}, {tool_calls: [{name: add, id: c1, arguments: {n: 1}}]}, {text: done}]}, tools: [{name: add, approval: always, idempotent: true, reuse: false}]}`)
	_, _, run := s.call("POST", "/v1/runs?wait=20s", `{"agent":"twice","input":"x"}`)
	id, _ := run["id"].(string)
	hashOf := func(run map[string]any) string {
		t.Helper()
		waiting, _ := run["waiting"].(map[string]any)
		calls, _ := waiting["calls"].([]any)
		if len(calls) != 1 {
			t.Fatalf("run waits for %v", waiting)
		}
		call, _ := calls[0].(map[string]any)
		hash, _ := call["hash"].(string)
		return hash
	}
	first := hashOf(run)
	approve := func(hash string) (int, any) {
		code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", fmt.Sprintf(`{"approvals":[{"call_id":"c1","decision":"approve","hash":%q}]}`, hash))
		return code, p["code"]
	}
	if code, problem := approve("0123"); code != 409 || problem != "stale_approval" {
		t.Errorf("a hash that is none: %d %v", code, problem)
	}
	if code, problem := approve(first); code != 202 {
		t.Fatalf("the hash of the call: %d %v", code, problem)
	}
	var second string
	eventually(t, "the next call waits", func() bool {
		_, _, run := s.call("GET", "/v1/runs/"+id, "")
		if run["status"] != "waiting" || run["turn_count"] != float64(2) {
			return false
		}
		second = hashOf(run)
		return true
	})
	if code, problem := approve(first); second == first || code != 409 || problem != "stale_approval" {
		t.Errorf("the hash of the turn before: %d %v", code, problem)
	}
	if code, problem := approve(second); code != 202 {
		t.Errorf("the hash of the call that waits: %d %v", code, problem)
	}
}
