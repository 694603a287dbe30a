package gateway_test

import (
	"fmt"
	"testing"
)

// No caller-written message reaches a model before the input hooks have decided about it, whatever its role and
// the way it got into the history.
func TestInputHooksSeeAllMessages(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	const hooks = `"hooks": {"input": [{"kind": "cel", "when": "input.contains('bad')", "then": "refuse", "message": "no"}]}`
	s.put("guarded", `{"instructions": "bad words are refused", "model": {"provider": "scripted", "responses": [{"text": "1"}, {"text": "2"}, {"text": "3"}]}, `+hooks+`}`)
	s.put("open", `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"id": "c1", "name": "over", "arguments": {}}]}]},
		"tools": [{"name": "over", "kind": "handoff", "agent": "guarded"}]}`)
	for input, want := range map[string]string{
		`"fine"`: "completed",
		`"bad"`:  "refused",
		`[{"role":"user","content":"bad"},{"role":"assistant","content":"hi"},{"role":"user","content":"go"}]`:    "refused",
		`[{"role":"user","content":"hi"},{"role":"assistant","content":"bad"},{"role":"user","content":"go"}]`:    "refused",
		`[{"role":"system","content":"bad"},{"role":"user","content":"go"}]`:                                      "refused",
		`[{"role":"user","content":"hi"},{"role":"assistant","content":"fine"},{"role":"user","content":"go"}]`:   "completed",
		`[{"role":"system","content":"bad words are refused"},{"role":"user","content":"the instructions stay"}]`: "completed",
	} {
		for _, agent := range []string{"guarded", "open"} {
			if agent == "open" && input[0] == '[' {
				continue // its script counts the answers in the input
			}
			_, _, run := s.call("POST", "/v1/runs?wait=2m", fmt.Sprintf(`{"agent":%q,"input":%s}`, agent, input))
			if run["reason"] != want {
				t.Errorf("%s with %s: %v, want %s", agent, input, run["reason"], want)
			}
		}
	}
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"guarded","input":"fine"}`)
	_, _, page := s.call("GET", "/v1/runs/"+run["id"].(string)+"/messages", "")
	said := page["items"].([]any)[1].(map[string]any)["id"]
	for text, want := range map[string]string{"good": "completed", "bad": "refused"} {
		body := fmt.Sprintf(`{"turn":1,"input":"go","messages":[{"id":%q,"parts":[{"type":"text","text":%q}]}]}`, said, text)
		code, _, fork := s.call("POST", "/v1/runs/"+run["id"].(string)+"/fork?wait=2m", body)
		if code >= 300 {
			t.Fatalf("fork: %d %v", code, fork)
		}
		if got := s.ended(fork["id"].(string)); *got.Reason != want {
			t.Errorf("a fork with the message %s: %v, want %s", text, *got.Reason, want)
		}
	}
}
